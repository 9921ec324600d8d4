"""How does a party correlate its columns with columns that it cannot read?

By inner products on a lattice (`fedmq.privacy.lattice.inner_products`): a standardised column in
fixed point is encrypted, and the other party's own standardised column are the weights. A number of
each pair decrypts to a coefficient times the rows, with noise.

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

import numpy as np
from numpy.typing import NDArray

from fedmq.computation import computation
from fedmq.errors import MessageError
from fedmq.privacy.lattice.inner_products import (
    DEGREE,
    MODULUS_BITS,
    ColumnKey,
    ProductsLayout,
    answer_products,
    encrypt_column,
    even_noise,
    read_hints,
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

SENT_WORDS = 3
"""Numbers modulo q = 2^96 travel as three words of 32 bits, the lowest first."""

HINT_WORDS = 3
"""Words of 16 bits of a hint's coefficient."""

# What one side's rounding to fixed point does to a coefficient is below 2^-(bits + 1).
_ASKED_BITS = 12
_OWN_BITS = 10
_HALF_A_HUNDREDTH = 0.005

_FLOOD_BITS = 75
_MODULUS = 1 << MODULUS_BITS

Seeds = tuple[bytes, ...]
Words = NDArray[np.uint32]


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """How inner products over so many ``rows`` lie in numbers modulo 2^96; 100,000 at most.

    All bounds are worst cases over columns of mean square 1, and checked here.
    """

    rows: int

    def __post_init__(self) -> None:
        most = round(self.rows * 2 ** (_ASKED_BITS + _OWN_BITS) * 1.001) << self.unit_bits
        assert most + self.half_noise + self.flood + self.products.largest_error < _MODULUS // 2
        # Of what is told 2^-10 at most is error and flood.
        assert (self.flood + self.products.largest_error) << 10 < self.half_noise
        assert self.products.hint_bytes == DEGREE * HINT_WORDS * 2

    @property
    def products(self) -> ProductsLayout:
        """That of the products, in which the flood drowns errors."""
        sum_bits = self.rows.bit_length() + _ASKED_BITS + _OWN_BITS + 2
        return ProductsLayout(self.rows, sum_bits, self.flood, _OWN_BITS)

    @property
    def length(self) -> int:
        """Numbers of one encrypted column: one for each row, and those of masks."""
        return self.products.numbers

    @property
    def unit_bits(self) -> int:
        """D is 2 to the power of it: above are an inner product with its noise, and its sign."""
        return self.products.offset

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
    layout, fixed = ColumnLayout(len(standard)).products, _fixed(standard, _ASKED_BITS)
    found = [
        encrypt_column(ColumnKey(public, seed), column, layout)
        for seed, column in zip(seeds, fixed.T, strict=True)
    ]
    return np.stack(found).view("<u4")


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
    contents = _distinct(secret, "own column", every)[part]
    # Hints are new with every other question: a liar's learn nothing more of one r.
    seeds = [seed_of(secret, "session", content, asked.whole) for content in contents]
    noise = [
        [
            _even(seed_of(secret, "noise", content, digest), layout.half_noise)
            + drawn
            - layout.flood // 2
            for digest, drawn in zip(
                asked.every, even_noise(seed, len(asked.every), layout.flood), strict=True
            )
        ]
        for content, seed in zip(contents, seeds, strict=True)
    ]
    columns = np.ascontiguousarray(encrypted).view(np.uint8)
    found = answer_products(public, list(columns), every[:, part], layout.products, seeds, noise)
    hints = found.hints.view("<u2").reshape(len(seeds), DEGREE, HINT_WORDS)
    return Multiplied(hints, found.numbers.view("<u4"))


def _even(seed: bytes, half: int) -> int:
    """A whole number, even from ``half`` below 0 to half above, but for 2^-128."""
    return int.from_bytes(seed, "little") % (2 * half + 1) - half


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
    for place, row in enumerate(_readings(seeds, hints, rows)):
        for at, taken in enumerate(row):
            found[place, at] = _signed(_number(sums[place, at]) - taken) / layout.whole
    return np.clip(np.round(found, 2), -1.0, 1.0)


def _readings(seeds: Sequence[bytes], hints: NDArray[np.uint16], rows: int) -> Iterator[list[int]]:
    """[H·s]_0 of each hint, for the s of all ``seeds``."""
    keys = [ColumnKey(b"", seed) for seed in seeds]
    wired = np.ascontiguousarray(hints).reshape(len(hints), -1).view(np.uint8)
    return read_hints(keys, wired, ColumnLayout(rows).products)


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
    for place, row in enumerate(_readings(seeds, hints, rows)):
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


def _as_words(number: int) -> Words:
    return np.frombuffer((number % _MODULUS).to_bytes(4 * SENT_WORDS, "little"), "<u4")


def _number(words: Words) -> int:
    return int.from_bytes(words.astype("<u4").tobytes(), "little")


def _signed(number: int) -> int:
    half = _MODULUS // 2
    return (number + half) % _MODULUS - half
