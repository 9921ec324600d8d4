"""How does a party correlate its columns with columns that it cannot read?

By learning with errors over the ring Z_q[X]/(X^N + 1), q = 2^96. Of a column x of fixed-point
numbers, whose rows are the coefficients of some blocks, the asking party sends under a secret s
(Regev, STOC 2005; Lyubashevsky, Peikert and Regev, EUROCRYPT 2010):

    c_k = a_k·s + e_k + D·x_k,  for each block k,  and  m = a'·s + e'

The other party multiplies by its own column, which is b_k read backwards, so that the constant
coefficient is an inner product (Henzinger and others, USENIX Security 2023, call H a hint):

    H = Σ a_k·b_k + a'·r + e''      y = [Σ c_k·b_k + m·r]_0 + noise

H is one for each own column, and a sample of learning with errors, of secret r: it looks random. y
is one number for each pair. The asking party reads y - [H·s]_0 = D·<x, b> + errors + noise.

The noise has two parts. One is even, from half a hundredth below to half a hundredth above: of a
coefficient no more is told than two digits tell, log2(201) bits, and its rounding is one of the two
hundredths next to it. **It follows from the question**: from a secret of the owner, the ciphertext
of the one column and the content of the other. The same question gets the same noise, so that to
ask again tells nothing. The other part is small, and drowns what the errors say of b and r.

Ciphertexts, too, follow from a secret and the column alone: the same column of the same people is
encrypted alike each time. So the owner sees that a column is the same as before, and nothing else
of it; no two columns ever have the same s.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.computation import computation
from fedmq.errors import MessageError
from fedmq.privacy.lattice.parameters import ERROR_BITS
from fedmq.privacy.lattice.ring import (
    Transform,
    coefficients,
    draw_errors,
    draw_secret,
    reversed_element,
    transformed,
)
from fedmq.privacy.random_stream import SEED_BYTES, Stream

__all__ = [
    "DEGREE",
    "HINT_WORDS",
    "SENT_WORDS",
    "AskedColumns",
    "ColumnLayout",
    "Multiplied",
    "Seeds",
    "add_products",
    "asked_columns",
    "column_marks",
    "column_seeds",
    "decrypt_products",
    "encrypt_columns",
    "marked",
    "masked_products",
    "masked_readings",
    "pair_coefficients",
    "public_seed",
    "seed_of",
]

DEGREE = 4096
"""N of the ring."""

SENT_WORDS = 3
"""Numbers modulo q = 2^96 travel as three words of 32 bits, the lowest first."""

HINT_WORDS = 5
"""Hints travel as five words of 16 bits: their 16 lowest bits are rounded away."""

_LIMBS, _LIMB_BITS = 4, 24
_MODULUS = 1 << _LIMBS * _LIMB_BITS
_CUT_BITS = 16

# What one side's rounding to fixed point does to a coefficient is below 2^-(bits + 1).
_ASKED_BITS = 12
_OWN_BITS = 10
_HALF_A_HUNDREDTH = 0.005

_LARGEST_SECRET = 3 * DEGREE // 4  # coefficients other than 0; a secret with more is drawn again
_FLOOD_BITS = 74
_DISTANCE_BITS = 40  # of all answers of a session together: 2^-40
_MOST_ANSWERS = 100 * 100

Seeds = tuple[bytes, ...]
Words = NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """How inner products over so many ``rows`` lie in numbers modulo 2^96; 100,000 at most.

    All bounds are worst cases over columns of mean square 1, and checked here.
    """

    rows: int

    def __post_init__(self) -> None:
        # Sums of limbs, at most 2^24, times own numbers, stay whole in float64.
        assert (self.largest_weight + _LARGEST_SECRET) << _LIMB_BITS < 1 << 53
        most = round(self.rows * 2 ** (_ASKED_BITS + _OWN_BITS) * 1.001) << self.unit_bits
        assert most + self.half_noise + self.flood + self.largest_error < _MODULUS // 2
        # Of what is told 2^-10 at most is error and flood.
        assert (self.flood + self.largest_error) << 10 < self.half_noise
        assert self.distance <= 2.0**-_DISTANCE_BITS

    @property
    def blocks(self) -> int:
        """Ring elements that hold a number for each row."""
        return -(-self.rows // DEGREE)

    @property
    def length(self) -> int:
        """Numbers of one encrypted column: c for each row, then m."""
        return self.rows + DEGREE

    @property
    def unit_bits(self) -> int:
        """D is 2 to the power of it: above are an inner product with its noise, and its sign."""
        return _LIMBS * _LIMB_BITS - self.rows.bit_length() - _ASKED_BITS - _OWN_BITS - 2

    @property
    def whole(self) -> int:
        """What a coefficient of 1 is, modulo q."""
        return self.rows << (_ASKED_BITS + _OWN_BITS + self.unit_bits)

    @property
    def half_noise(self) -> int:
        """Noise is even between this number below 0 and it."""
        return self.whole // round(1 / _HALF_A_HUNDREDTH)

    @property
    def flood(self) -> int:
        """The room of the number that is drawn anew to drown errors."""
        return 1 << _FLOOD_BITS

    @property
    def largest_weight(self) -> int:
        """The most that magnitudes of an own column's numbers sum to: its mean square is 1."""
        return self.rows << _OWN_BITS | self.rows

    @property
    def largest_error(self) -> int:
        """The largest magnitude of errors in an answer, in the worst case."""
        drawn = ERROR_BITS * (self.largest_weight + 2 * _LARGEST_SECRET)
        return drawn + (_LARGEST_SECRET << _CUT_BITS >> 1)

    @property
    def distance(self) -> float:
        """The statistical distance of a session's answers from answers without errors, at most.

        A shift of an even number by x moves it by x / room; the expected magnitude of a shift is at
        most its root mean square, over errors as an asking party draws them.
        """
        drawn = ERROR_BITS / 2 * (self.rows * (2**_OWN_BITS + 0.5) ** 2 + 2 * _LARGEST_SECRET)
        rounded = 4.0**_CUT_BITS / 12 * _LARGEST_SECRET
        return _MOST_ANSWERS * math.sqrt(drawn + rounded) / self.flood


# What follows from a secret


def seed_of(secret: bytes, purpose: str, *parts: bytes) -> bytes:
    """32 bytes that follow from the ``secret``, what they are for, and ``parts`` of any length."""
    digest = hashlib.blake2b(digest_size=SEED_BYTES, key=secret)
    for part in (f"fedmq column products 1 {purpose}".encode(), *parts):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.digest()


def public_seed(secret: bytes) -> bytes:
    """The seed of the elements a that both sides make."""
    return seed_of(secret, "public")


@computation("SeedsOfColumns")
def column_seeds(secret: bytes, standard: NDArray[np.float64]) -> Seeds:
    """The seed of each of the columns ``standard`` (rows, columns), which hides it.

    Another for each, also of two that are the same: the other side is not to see that.
    """
    return _distinct(secret, "asked column", _fixed(standard, _ASKED_BITS))


def _distinct(secret: bytes, purpose: str, fixed: NDArray[np.int64]) -> Seeds:
    before: Counter[bytes] = Counter()
    found = []
    for column in fixed.T:
        content = hashlib.blake2b(np.ascontiguousarray(column).tobytes()).digest()
        found.append(seed_of(secret, purpose, content, before[content].to_bytes(4, "little")))
        before[content] += 1
    return tuple(found)


def _fixed(standard: NDArray[np.float64], bits: int) -> NDArray[np.int64]:
    fixed: NDArray[np.int64] = np.rint(standard * 2**bits).astype(np.int64)
    return fixed


# The asking party encrypts


@computation("EncryptColumns")
def encrypt_columns(public: bytes, seeds: Sequence[bytes], standard: NDArray[np.float64]) -> Words:
    """Columns ``standard`` (rows, columns) as words, uint32 (columns, rows + N, 3).

    ``seeds``: those that `column_seeds` gives them; ``public`` of `public_seed`.
    """
    rows, columns = standard.shape
    layout, fixed = ColumnLayout(rows), _fixed(standard, _ASKED_BITS)
    elements = _public_transforms(public, layout.blocks)
    limb, shift = divmod(layout.unit_bits, _LIMB_BITS)
    found = np.empty((columns, layout.length, SENT_WORDS), np.uint32)
    for place, seed in enumerate(seeds):
        secret = transformed(draw_secret(seed, DEGREE, _LARGEST_SECRET))
        drawn = draw_errors(Stream(seed, "fedmq column products error"), layout.blocks + 1, DEGREE)
        for block, element in enumerate(elements):
            limbs = coefficients(element * secret)
            limbs[0] += drawn[block]
            held = slice(block * DEGREE, min(rows, (block + 1) * DEGREE))
            if block == layout.blocks:
                held = slice(rows, rows + DEGREE)
            else:
                count = held.stop - held.start
                limbs[limb, :count] += fixed[held, place] << shift
            found[place, held] = _words(_carried(limbs)[:, : held.stop - held.start])
    return found


def _public_transforms(seed: bytes, blocks: int) -> Transform:
    """The elements of all blocks, and last a', in the frequency domain: (blocks + 1, 4, N/2)."""
    found = np.empty((blocks + 1, _LIMBS, DEGREE // 2), np.complex128)
    for block in range(blocks + 1):
        name = "masks" if block == blocks else str(block)
        drawn = Stream(seed, f"fedmq column products a {name}").read(4 * SENT_WORDS * DEGREE)
        limbs = _limbs(np.frombuffer(drawn, "<u4").reshape(DEGREE, SENT_WORDS)).astype(np.int64)
        # Signed, they keep products small.
        half = 1 << (_LIMB_BITS - 1)
        limbs = _carried(limbs + half) - half
        found[block] = transformed(limbs)
    return found


# The other party multiplies


@dataclass(frozen=True, slots=True)
class AskedColumns:
    """What a question is: a digest of ``every`` asked column, and of all together, ``whole``."""

    whole: bytes
    every: tuple[bytes, ...]


@computation("DigestColumns")
def asked_columns(public: bytes, encrypted: Words) -> AskedColumns:
    """The digests of columns that `encrypt_columns` made."""
    every = tuple(
        hashlib.blake2b(public + np.ascontiguousarray(column).tobytes()).digest()
        for column in encrypted
    )
    return AskedColumns(hashlib.blake2b(b"".join(every)).digest(), every)


@dataclass(frozen=True, slots=True, eq=False)
class Multiplied:
    """``hints`` uint16 (own columns, N, 5), and ``sums`` uint32 (own columns, asked columns, 3)."""

    hints: NDArray[np.uint16]
    sums: Words

    @classmethod
    def joined(cls, parts: Sequence[Multiplied]) -> Multiplied:
        """Those of neighbouring own columns together."""
        return cls(
            np.concatenate([part.hints for part in parts]),
            np.concatenate([part.sums for part in parts]),
        )


@computation("AddProducts")
def add_products(
    secret: bytes,
    public: bytes,
    asked: AskedColumns,
    encrypted: Words,
    standard: NDArray[np.float64],
    part: slice,
) -> Multiplied:
    """Noised inner products of ``encrypted`` columns and own ones.

    Own are those in ``part`` of ``standard`` (rows, columns).

    ``secret``: this party's own, from which the noise follows, and the question.

    Raises:
        MessageError: the encrypted columns are not of so many rows.
    """
    rows = len(standard)
    layout = ColumnLayout(rows)
    if encrypted.shape[1:] != (layout.length, SENT_WORDS):
        raise MessageError("encrypted columns have a number for each row, and their masks")
    every = _fixed(standard, _OWN_BITS)
    own = every[:, part]
    assert np.abs(own).sum(axis=0).max(initial=0) <= layout.largest_weight
    contents = _distinct(secret, "own column", every)[part]
    # Hints are new with every other question: a liar's learn nothing more of one r.
    seeds = [seed_of(secret, "session", content, asked.whole) for content in contents]
    secrets = np.stack([draw_secret(seed, DEGREE, _LARGEST_SECRET) for seed in seeds])
    hints = _hints(_public_transforms(public, layout.blocks), own, secrets, seeds, layout)
    weights = np.concatenate([own, reversed_element(secrets).T]).astype(np.float64)
    floods = [Stream(seed, "fedmq column products flood") for seed in seeds]
    sums = np.empty((len(seeds), len(encrypted), SENT_WORDS), np.uint32)
    for at, (column, digest) in enumerate(zip(encrypted, asked.every, strict=True)):
        products = (_limbs(column).astype(np.float64) @ weights).astype(np.int64)
        for place, limbs in enumerate(products.T.tolist()):
            number = sum(limb << _LIMB_BITS * power for power, limb in enumerate(limbs))
            number += _even(seed_of(secret, "noise", contents[place], digest), layout.half_noise)
            number += int.from_bytes(floods[place].read(16), "little") % layout.flood
            sums[place, at] = _as_words(number - layout.flood // 2)
    return Multiplied(hints, sums)


def _even(seed: bytes, half: int) -> int:
    """A whole number, even from ``half`` below 0 to half above, but for 2^-128."""
    return int.from_bytes(seed, "little") % (2 * half + 1) - half


def _hints(
    elements: Transform,
    own: NDArray[np.int64],
    secrets: NDArray[np.int8],
    seeds: Sequence[bytes],
    layout: ColumnLayout,
) -> NDArray[np.uint16]:
    padded = np.zeros((own.shape[1], layout.blocks * DEGREE), np.int64)
    padded[:, : len(own)] = own.T
    hints = np.empty((len(seeds), DEGREE, HINT_WORDS), np.uint16)
    for place, seed in enumerate(seeds):
        factors = np.concatenate(
            [
                reversed_element(padded[place].reshape(layout.blocks, DEGREE)),
                secrets[place : place + 1],
            ]
        )
        total = (elements * transformed(factors)[:, np.newaxis]).sum(axis=0)
        limbs = coefficients(total)
        limbs[0] += draw_errors(Stream(seed, "fedmq column products hint"), DEGREE)
        limbs[0] += 1 << (_CUT_BITS - 1)
        words = _words(_carried(limbs)).view(np.uint16)
        hints[place] = words[:, _CUT_BITS // 16 :]
    return hints


# The asking party reads


@computation("DecryptProducts")
def decrypt_products(
    seeds: Sequence[bytes], hints: NDArray[np.uint16], sums: Words, rows: int
) -> NDArray[np.float64]:
    """The coefficients in hundredths, float64 (own columns, asked columns).

    ``seeds`` of the asked columns; ``hints`` and ``sums`` as in `Multiplied`.
    """
    layout = ColumnLayout(rows)
    found = np.empty(sums.shape[:2])
    for place, row in enumerate(_readings(seeds, hints)):
        for at, taken in enumerate(row):
            found[place, at] = _signed(_number(sums[place, at]) - taken) / layout.whole
    return np.clip(np.round(found, 2), -1.0, 1.0)


def _readings(seeds: Sequence[bytes], hints: NDArray[np.uint16]) -> Iterator[list[int]]:
    """[H·s]_0 of each hint, for the s of all ``seeds``."""
    drawn = [draw_secret(seed, DEGREE, _LARGEST_SECRET) for seed in seeds]
    secrets = reversed_element(np.stack(drawn)).T.astype(np.float64)
    for hint in hints:
        products = (hint.T.astype(np.float64) @ secrets).astype(np.int64)
        yield [
            sum(word << 16 * power + _CUT_BITS for power, word in enumerate(words))
            for words in products.T.tolist()
        ]


# Two parties of which neither reads
#
# Both add the same mask, uniform modulo q: the answering party to y, the asking one to [H·s]_0 and
# to noise of its own. A third party, which does not know the mask, takes one from the other. It
# learns the coefficient under both noises, and nothing else. Here s is fresh, since answers to a
# party that lies may tell of it; noise follows from marks of both columns in place of a ciphertext.


@computation("MarkColumns")
def column_marks(secret: bytes, standard: NDArray[np.float64]) -> NDArray[np.uint8]:
    """What tells each of the columns ``standard`` (rows, columns) from others: uint8 (columns, 32).

    It follows from the ``secret`` and the column: a column that is the same has the same mark.
    """
    marks = _distinct(secret, "mark", _fixed(standard, _ASKED_BITS))
    return np.frombuffer(b"".join(marks), np.uint8).reshape(-1, SEED_BYTES)


def marked(asked: AskedColumns, marks: NDArray[np.uint8]) -> AskedColumns:
    """The question ``asked`` with the ``marks`` of its columns: noise follows from these."""
    return AskedColumns(asked.whole, tuple(mark.tobytes() for mark in marks))


@computation("MaskProducts")
def masked_products(sums: Words, mask: bytes) -> Words:
    """The ``sums`` of `Multiplied` and a mask that follows from the seed ``mask``."""
    return _sum_of(sums, _mask(mask, sums.shape[:2]))


@computation("MaskReadings")
def masked_readings(
    seeds: Sequence[bytes],
    hints: NDArray[np.uint16],
    rows: int,
    noise: tuple[bytes, NDArray[np.uint8], NDArray[np.uint8]],
    mask: bytes,
) -> Words:
    """[H·s]_0 with noise and the mask of `masked_products`: uint32 (own, asked columns, 3).

    ``seeds`` of the asked columns. ``noise``: this party's secret, and the marks of its columns
    and of the other party's.
    """
    half, found = ColumnLayout(rows).half_noise, np.empty((len(hints), len(seeds), 3), np.uint32)
    secret, asked, own = noise
    for place, row in enumerate(_readings(seeds, hints)):
        for at, number in enumerate(row):
            drawn = seed_of(secret, "asked noise", asked[at].tobytes(), own[place].tobytes())
            found[place, at] = _as_words(number + _even(drawn, half))
    return _sum_of(found, _mask(mask, found.shape[:2]))


@computation("ReadPair")
def pair_coefficients(products: Words, readings: Words, rows: int) -> NDArray[np.float64]:
    """The coefficients in hundredths, of `masked_products` and `masked_readings`."""
    layout = ColumnLayout(rows)
    found = [
        [
            _signed(_number(product) - _number(reading)) / layout.whole
            for product, reading in zip(*pair, strict=True)
        ]
        for pair in zip(products, readings, strict=True)
    ]
    coefficients = np.array(found, np.float64).reshape(products.shape[:2])
    return np.clip(np.round(coefficients, 2), -1.0, 1.0)


def _mask(seed: bytes, shape: tuple[int, ...]) -> Words:
    drawn = Stream(seed, "fedmq column products mask").read(4 * SENT_WORDS * math.prod(shape))
    return np.frombuffer(drawn, "<u4").reshape(*shape, SENT_WORDS)


def _sum_of(one: Words, other: Words) -> Words:
    found, carry = np.empty(one.shape, np.uint32), np.zeros(one.shape[:-1], np.uint64)
    for word in range(SENT_WORDS):
        carry += one[..., word].astype(np.uint64) + other[..., word]
        found[..., word] = carry & np.uint64(0xFFFFFFFF)
        carry >>= np.uint64(32)
    return found


# Numbers modulo 2^96: limbs of 24 bits, the lowest first, where they are computed with


def _as_words(number: int) -> Words:
    return np.frombuffer((number % _MODULUS).to_bytes(4 * SENT_WORDS, "little"), "<u4")


def _number(words: Words) -> int:
    return int.from_bytes(words.astype("<u4").tobytes(), "little")


def _signed(number: int) -> int:
    half = _MODULUS // 2
    return (number + half) % _MODULUS - half


def _carried(limbs: NDArray[np.int64]) -> NDArray[np.int64]:
    """The same numbers (4, n) with limbs from 0 to 2^24 - 1, in place."""
    for place in range(_LIMBS - 1):
        limbs[place + 1] += limbs[place] >> _LIMB_BITS
    limbs &= (1 << _LIMB_BITS) - 1
    return limbs


def _words(limbs: NDArray[np.int64]) -> Words:
    """Carried ``limbs`` (4, n) as words, uint32 (n, 3)."""
    octets = limbs.T.astype("<u4", order="C").view(np.uint8).reshape(-1, _LIMBS, 4)
    return np.ascontiguousarray(octets[:, :, :3]).reshape(-1, 4 * SENT_WORDS).view("<u4")


def _limbs(words: NDArray[Any]) -> NDArray[np.uint32]:
    """The limbs (4, n) of words (n, 3)."""
    octets = np.zeros((len(words), _LIMBS, 4), np.uint8)
    packed = np.ascontiguousarray(words, "<u4").view(np.uint8)
    octets[:, :, :3] = packed.reshape(-1, _LIMBS, 3)
    return np.ascontiguousarray(octets.reshape(-1, 4 * _LIMBS).view("<u4").T)
