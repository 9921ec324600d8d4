"""How do two parties begin oblivious transfers? With 128 of them, by exponentiation.

Naor and Pinkas, "Efficient Oblivious Transfer Protocols" (SODA 2001), section 3, in the group of
2048 bits of RFC 3526, against parties that follow the protocol. The sender publishes C, of unknown
logarithm, and R = g^r. For the choice c the receiver makes PK_c = g^k and PK_{1-c} = C / PK_c, and
sends PK_0. Both know PK_c^r = R^k; the receiver cannot know PK_{1-c}^r. It rests on Diffie-Hellman,
which a quantum computer would break.

The receiver may also begin, if nobody knows C's logarithm: then C is made of a public text.

Protocols on Curve25519 subtract points, or map choices to them; X25519 alone offers neither.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import ClassVar

import gmpy2
import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from fedmq.errors import MessageError
from fedmq.privacy.random_stream import Stream

__all__ = [
    "ELEMENT_BYTES",
    "TRANSFERS",
    "ChooseAhead",
    "ChooseSeeds",
    "ChosenSeeds",
    "MakeOffer",
    "OfferedSeeds",
    "check_elements",
    "shape_of",
]

TRANSFERS = 128
"""The number of base transfers: one per bit of security."""

ELEMENT_BYTES = 256

_MODULUS = mpz(
    "0xFFFFFFFFFFFFFFFFC90FDAA22168C234C4C6628B80DC1CD129024E088A67CC74"
    "020BBEA63B139B22514A08798E3404DDEF9519B3CD3A431B302B0A6DF25F1437"
    "4FE1356D6D51C245E485B576625E7EC6F44C42E9A637ED6B0BFF5CB6F406B7ED"
    "EE386BFB5A899FA5AE9F24117C4B1FE649286651ECE45B3DC2007CB8A163BF05"
    "98DA48361C55D39A69163FA8FD24CF5F83655D23DCA3AD961C62F356208552BB"
    "9ED529077096966D670C354E4ABC9804F1746C08CA18217C32905E462E36CE3B"
    "E39E772C180E86039B2783A2EC07A28FB5C55DF06F4C52C9DE2BCBF695581718"
    "3995497CEA956AE515D2261898FA051015728E5A8AACAA68FFFFFFFFFFFFFFFF",
    0,
)
_GENERATOR = mpz(2)  # of the squares, whose number is prime
_EXPONENT_BYTES = 32  # twice as many bits as of security


def shape_of(count: int) -> tuple[int, int]:
    """The shape of ``count`` elements of the group."""
    return count, ELEMENT_BYTES


def check_elements(elements: object, count: int) -> NDArray[np.uint8]:
    """``elements`` as ``count`` elements of the group: uint8 (count, 256), little-endian.

    Raises:
        MessageError: ``elements`` have another type, shape or range.
    """
    if (
        not isinstance(elements, np.ndarray)
        or elements.dtype != np.uint8
        or elements.shape != shape_of(count)
    ):
        raise MessageError(f"{count} elements of {ELEMENT_BYTES} bytes are needed for transfers")
    for element in map(_number, elements):
        if not 1 < element < _MODULUS - 1 or gmpy2.jacobi(element, _MODULUS) != 1:
            raise MessageError("an element for transfers that is not of the group")
    return elements


@dataclass(frozen=True, eq=False)
class MakeOffer:
    """Make the sender's public elements, C and R: uint8 (2, 256).

    With ``ahead``, for a receiver that begins.
    """

    label: ClassVar[str] = "MakeOffer"
    seed: bytes = field(repr=False)
    ahead: bool = False

    def run(self) -> NDArray[np.uint8]:
        common = _common(self.seed, self.ahead)
        return np.stack([_bytes(common), _bytes(_power(_GENERATOR, _sender(self.seed)))])


@dataclass(frozen=True, eq=False)
class ChooseSeeds:
    """The receiver's answer to an ``offer``, uint8 (128, 256), and its seeds, uint8 (128, 32).

    ``choices`` bool (128,). Raises `MessageError` for a malformed offer.
    """

    label: ClassVar[str] = "ChooseSeeds"
    offer: NDArray[np.uint8]
    choices: NDArray[np.bool_] = field(repr=False)
    seed: bytes = field(repr=False)

    def run(self) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        common, power = map(_number, check_elements(self.offer, 2))
        chosen = _chosen(common, self.choices, self.seed)
        return chosen, _chosen_seeds(power, chosen, self.choices, self.seed)


@dataclass(frozen=True, eq=False)
class ChooseAhead:
    """What a receiver sends that begins: uint8 (n, 256). ``choices`` bool (n,)."""

    label: ClassVar[str] = "ChooseAhead"
    choices: NDArray[np.bool_] = field(repr=False)
    seed: bytes = field(repr=False)

    def run(self) -> NDArray[np.uint8]:
        return _chosen(_common(self.seed, ahead=True), self.choices, self.seed)


@dataclass(frozen=True, eq=False)
class ChosenSeeds:
    """The seeds of a receiver that chose ahead, uint8 (n, 32), by a sender's ``offer``.

    ``chosen``: as `ChooseAhead` made it. Raises `MessageError` for a malformed offer.
    """

    label: ClassVar[str] = "ChosenSeeds"
    offer: object
    chosen: NDArray[np.uint8]
    choices: NDArray[np.bool_] = field(repr=False)
    seed: bytes = field(repr=False)

    def run(self) -> NDArray[np.uint8]:
        _, power = map(_number, check_elements(self.offer, 2))
        return _chosen_seeds(power, self.chosen, self.choices, self.seed)


@dataclass(frozen=True, eq=False)
class OfferedSeeds:
    """Both seeds of each transfer, as the sender of ``MakeOffer(seed, ahead)`` knows them.

    uint8 (count, 2, 32). Raises `MessageError` for malformed ``chosen``.
    """

    label: ClassVar[str] = "OfferedSeeds"
    chosen: object
    seed: bytes = field(repr=False)
    ahead: bool = False
    count: int = TRANSFERS

    def run(self) -> NDArray[np.uint8]:
        chosen = check_elements(self.chosen, self.count)
        exponent = _sender(self.seed)
        common_power = _power(_common(self.seed, self.ahead), exponent)
        seeds = np.empty((self.count, 2, 32), np.uint8)
        for place, element in enumerate(map(_number, chosen)):
            first = _power(element, exponent)
            second = common_power * gmpy2.invert(first, _MODULUS) % _MODULUS
            for choice, shared in ((False, first), (True, second)):
                seeds[place, int(choice)] = _seed(place, choice, chosen[place], shared)
        return seeds


def _common(seed: bytes, ahead: bool) -> mpz:
    """C: with ``ahead`` the square of a hash, of which nobody knows the logarithm."""
    if not ahead:
        return _power(_GENERATOR, _exponents(seed, "common", 1)[0])
    text = b"".join(
        hashlib.sha256(b"fedmq transfer element %d" % part).digest()
        for part in range(ELEMENT_BYTES // 32)
    )
    return mpz.from_bytes(text, "little") ** 2 % _MODULUS


def _chosen(common: mpz, choices: NDArray[np.bool_], seed: bytes) -> NDArray[np.uint8]:
    chosen = np.empty(shape_of(len(choices)), np.uint8)
    for place, exponent in enumerate(_exponents(seed, "choice", len(choices))):
        own = _power(_GENERATOR, exponent)
        first = common * gmpy2.invert(own, _MODULUS) % _MODULUS if choices[place] else own
        chosen[place] = _bytes(first)
    return chosen


def _chosen_seeds(
    power: mpz, chosen: NDArray[np.uint8], choices: NDArray[np.bool_], seed: bytes
) -> NDArray[np.uint8]:
    seeds = np.empty((len(choices), 32), np.uint8)
    for place, exponent in enumerate(_exponents(seed, "choice", len(choices))):
        shared = _power(power, exponent)
        seeds[place] = _seed(place, bool(choices[place]), chosen[place], shared)
    return seeds


def _sender(seed: bytes) -> mpz:
    return _exponents(seed, "sender", 1)[0]


def _exponents(seed: bytes, purpose: str, count: int) -> list[mpz]:
    drawn = Stream(seed, f"fedmq lattice transfer {purpose}").read(_EXPONENT_BYTES * count)
    return [
        mpz.from_bytes(drawn[start : start + _EXPONENT_BYTES], "little")
        for start in range(0, len(drawn), _EXPONENT_BYTES)
    ]


def _power(base: mpz, exponent: mpz) -> mpz:
    # Constant time for exponents of the same length; the exponent must not be 0.
    return gmpy2.powmod_sec(base, exponent + 1, _MODULUS)


def _seed(place: int, choice: bool, first: NDArray[np.uint8], shared: mpz) -> NDArray[np.uint8]:
    label = b"fedmq lattice transfer %d %d\0" % (place, choice)
    digest = hashlib.sha256(label + first.tobytes() + _bytes(shared).tobytes()).digest()
    return np.frombuffer(digest, np.uint8)


def _number(element: NDArray[np.uint8]) -> mpz:
    return mpz.from_bytes(element.tobytes(), "little")


def _bytes(number: mpz) -> NDArray[np.uint8]:
    return np.frombuffer(number.to_bytes(ELEMENT_BYTES, "little"), np.uint8)
