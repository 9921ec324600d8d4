"""How are numbers of people added by group, by somebody who cannot read them?

One ciphertext for each person holds in slots side by side: is the label 1, is the person selected,
both at once, and the score in fixed point. Their product by group decrypts to the sums. What lies
above the slots is masked before it leaves: whoever encrypts something else than slots reads
:func:`sum_bits` bits of a group and no more.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from gmpy2 import mpz, powmod
from numpy.typing import NDArray

from fedmq.errors import MessageError
from fedmq.privacy.homomorphic.paillier import PrivateKey, PublicKey, generate
from fedmq.privacy.homomorphic.residues import from_wire, to_wire
from fedmq.privacy.homomorphic.scheme import Prime, draw_unit

__all__ = [
    "DecryptGroupSums",
    "EncryptPeople",
    "GroupFigures",
    "MakeGroupKey",
    "add_by_group",
    "decrypting",
    "sum_bits",
]

SCORE_BITS = 16
"""Of a score's fraction: a mean is exact to 2^-17."""


@dataclass(frozen=True, slots=True)
class GroupFigures:
    """Of one group: how many have label 1, are selected, are both; and the sum of their scores."""

    ones: int
    selected: int
    selected_ones: int
    score: float


@dataclass(frozen=True)
class MakeGroupKey:
    """A key of ``bits`` bits for one question."""

    label: ClassVar[str] = "MakeGroupKey"
    bits: int

    def run(self) -> PrivateKey:
        return generate(self.bits)


@dataclass(frozen=True, eq=False)
class EncryptPeople:
    """``ones`` and ``selected`` bool (people,), ``score`` float64 (people,) in [0, 1]."""

    label: ClassVar[str] = "EncryptPeople"
    key: PrivateKey
    ones: NDArray[np.bool_]
    selected: NDArray[np.bool_]
    score: NDArray[np.float64]

    def run(self) -> NDArray[np.uint8]:
        """uint8 (people, bytes), as of the wire."""
        slot = len(self.ones).bit_length()
        fixed = np.rint(self.score * 2**SCORE_BITS).astype(np.int64)
        plaintexts = [
            (((score << slot | int(one and chosen)) << slot | int(chosen)) << slot) | int(one)
            for one, chosen, score in zip(
                self.ones.tolist(), self.selected.tolist(), fixed.tolist(), strict=True
            )
        ]
        return to_wire(self.key.encrypt(plaintexts), self.key.public.modulus)


@dataclass(frozen=True, eq=False)
class DecryptGroupSums:
    """The sums over groups of ``people`` people in all: uint8 (groups, bytes)."""

    label: ClassVar[str] = "DecryptGroupSums"
    key: PrivateKey
    ciphertexts: NDArray[np.uint8]
    people: int

    def run(self) -> tuple[GroupFigures, ...]:
        """By group; MessageError where ciphertexts do not fit the key."""
        public, slot = self.key.public, self.people.bit_length()
        sums = decrypting(self.key).decrypt(from_wire(self.ciphertexts, public.modulus))
        found = []
        for masked in sums:
            joined = int(masked % public.n) % (1 << sum_bits(self.people))
            ones, selected, both = (joined >> place * slot & (1 << slot) - 1 for place in range(3))
            score = (joined >> 3 * slot) / 2**SCORE_BITS
            found.append(GroupFigures(ones, selected, both, score))
        return tuple(found)


def decrypting(key: PrivateKey) -> PrivateKey:
    """The same key for noise of any order, as that of sums by group is."""
    primes = Prime.whole(key.first.p), Prime.whole(key.second.p)
    return PrivateKey(*primes, key.noise_base, key.tabled_noise)


def sum_bits(people: int) -> int:
    """Bits of the sums of a group, of at most so many people."""
    return 4 * people.bit_length() + SCORE_BITS


def add_by_group(
    public: PublicKey, ciphertexts: NDArray[np.uint8], group_of: NDArray[np.integer]
) -> NDArray[np.uint8]:
    """Sums by group, masked above their bits and under fresh noise: uint8 (groups, bytes).

    ``ciphertexts`` uint8 (people, bytes), ``group_of`` (people,) from 0 on.

    Raises:
        MessageError: not one ciphertext of this key for each person, or a key too short for sums.
    """
    numbers, modulus = from_wire(ciphertexts, public.modulus), public.modulus
    if len(numbers) != len(group_of):
        raise MessageError("one ciphertext for each person is needed")
    bits = sum_bits(len(numbers))
    masks = int(public.n >> bits)
    if masks < 2**40:
        raise MessageError("the key is too short for sums of so many people")
    sums = [mpz(1)] * (int(group_of.max()) + 1)
    for group, number in zip(group_of.tolist(), numbers, strict=True):
        sums[group] = sums[group] * number % modulus
    # All that the key can hold above the bits, so that what is decrypted is uniform there.
    masked = public.add_plaintexts(sums, [secrets.randbelow(masks) << bits for _ in sums])
    # Whole noise: that of the key's owner may be made to show which people were added.
    noise = [powmod(draw_unit(public.n), public.n, modulus) for _ in sums]
    return to_wire([c * r % modulus for c, r in zip(masked, noise, strict=True)], modulus)
