"""How does a party multiply its columns by columns that it cannot read? Once, on a lattice.

The elements a of a ring are made of a public seed and are not sent. A column x, the rows of which
are the coefficients of some blocks, is encrypted under a secret s of its own (Regev, STOC 2005;
Lyubashevsky, Peikert and Regev, EUROCRYPT 2010):

    ``c_k = a_k·s + e_k + 2^offset·x_k`` for each block k, and ``m = a'·s + e'``

The other party multiplies by its weights, which are w_k read backwards, so that the constant
coefficient is an inner product. For each column of weights it answers a hint (so called by
Henzinger et al., USENIX Security 2023), and a number for each encrypted column:

    ``H = Σ a_k·w_k + a'·r + e''``   and   ``y = [Σ c_k·w_k + m·r]_0 + E``

with ternary r and errors e'' of this answer alone, so that H discloses no weight (it is a sample of
ring learning with errors), and E drawn evenly, which drowns what errors would tell of the weights
(Gentry, STOC 2009). ``y - [H·s]_0`` is the inner product at ``2^offset``, and E above it.

E hides all of y that is below its width: numbers of other contents disclose no more bits of a sum
than stand above that. N = 4096 and q = 2^96 are within the HomomorphicEncryption.org standard
(2018) for 128 bits: at most 2^109.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import MessageError
from fedmq.privacy.lattice.parameters import ERROR_BITS, carried
from fedmq.privacy.lattice.ring import (
    Transform,
    coefficients,
    draw_errors,
    draw_secret,
    draw_ternary,
    reversed_element,
    transformed,
)
from fedmq.privacy.random_stream import Stream

__all__ = [
    "DEGREE",
    "MODULUS_BITS",
    "NUMBER_BYTES",
    "ColumnKey",
    "Products",
    "ProductsLayout",
    "answer_products",
    "encrypt_column",
    "even_noise",
    "read_hints",
    "read_products",
]

DEGREE = 4096
MODULUS_BITS = 96
NUMBER_BYTES = MODULUS_BITS // 8
"""Bytes of a number."""

_CUT_UNIT = 16  # bits; of a coefficient of a hint so many low ones are rounded away, or more
_LARGEST_SECRET = 3 * DEGREE // 4  # coefficients other than 0; a secret with more is drawn again
_DISTANCE_BITS = 40  # of all answers of a session together: 2^-40
_MOST_ANSWERS_BITS = 14
_BLOCKS_AT_ONCE = 8
_WEIGHTS_AT_ONCE = 16
_ROWS_AT_ONCE = 4096


@dataclass(frozen=True, slots=True)
class ProductsLayout:
    """Sums over ``rows`` rows, of ``sum_bits`` with their sign.

    ``width``: noise is drawn evenly from so many numbers, of 2^-offset each. ``weight_bits``: the
    mean square of a column's weights is at most ``4**weight_bits``; 0: they are 0 or 1.
    ``masks``: noise is drawn evenly from all numbers modulo q, and ``width`` bounds errors alone.
    """

    rows: int
    sum_bits: int
    width: int
    weight_bits: int = 0
    masks: bool = False

    def __post_init__(self) -> None:
        # Sums of limbs over rows, and products of limbs by ternary numbers, in float64. A mean
        # magnitude is at most the root mean square.
        assert max(self.rows << self.weight_bits, DEGREE) << self.limb_bits < 1 << 53
        assert self.distance <= 2.0 ** -(_DISTANCE_BITS + _MOST_ANSWERS_BITS)
        assert self.largest_error < self.width // 2

    @staticmethod
    def offset_of(sum_bits: int) -> int:
        """The lowest bit of a sum of so many bits."""
        return MODULUS_BITS - sum_bits

    @property
    def offset(self) -> int:
        return self.offset_of(self.sum_bits)

    @property
    def distance(self) -> float:
        """The statistical distance of an answer from one without errors, at most.

        A shift of an even number by x moves it by x / width, on average by at most the root mean
        square of x over errors as an asking party draws them. A mask hides all.
        """
        if self.masks:
            return 0.0
        weighted = float(self.rows << 2 * self.weight_bits)
        return math.sqrt(ERROR_BITS / 2 * (weighted + 2 * _LARGEST_SECRET)) / self.width

    @property
    def largest_error(self) -> int:
        """The largest magnitude of all but the sum and its noise, in the worst case."""
        return self._largest_error(self.cut_bits)

    def _largest_error(self, cut_bits: int) -> int:
        drawn = ERROR_BITS * ((self.rows << self.weight_bits) + 2 * _LARGEST_SECRET)
        return drawn + (_LARGEST_SECRET << cut_bits >> 1)

    @property
    def cut_bits(self) -> int:
        """Low bits of a hint that are rounded away."""
        return max(
            bits
            for bits in range(0, MODULUS_BITS, _CUT_UNIT)
            if bits == 0 or self._largest_error(bits) < self.width // 2
        )

    @property
    def hint_bytes(self) -> int:
        """Bytes of a hint."""
        return DEGREE * (MODULUS_BITS - self.cut_bits) // 8

    @property
    def blocks(self) -> int:
        """Ring elements that hold a number for each row."""
        return -(-self.rows // DEGREE)

    @property
    def numbers(self) -> int:
        """Numbers of an encrypted column: one for each row, and those of masks."""
        return self.rows + DEGREE

    @property
    def limb_bits(self) -> int:
        """Bits of the parts of a number that are multiplied exactly by weights in float64."""
        return 24 if self.weight_bits else 32


# How is a column encrypted?


@dataclass(frozen=True, slots=True)
class ColumnKey:
    """A key for one column: two columns under one disclose their difference.

    ``public``: the seed of the elements that both sides make, of any number of keys.
    """

    public: bytes
    seed: bytes = field(repr=False)

    @property
    def secret(self) -> NDArray[np.int8]:
        """s, ternary (N,)."""
        return draw_secret(self.seed, DEGREE, _LARGEST_SECRET)


def encrypt_column(
    key: ColumnKey, column: NDArray[np.int64], layout: ProductsLayout
) -> NDArray[np.uint8]:
    """A column as it travels: uint8 (rows + N, 12). int64 (rows,), below 2^31 in magnitude."""
    secret = transformed(key.secret)
    found = np.empty((layout.numbers, NUMBER_BYTES), np.uint8)
    limb, shift = divmod(layout.offset, 32)
    for block in range(layout.blocks + 1):
        name = _MASKS if block == layout.blocks else f"{block}"
        limbs = coefficients(_elements(key.public, [name], 32)[0] * secret)
        limbs[0] += draw_errors(Stream(key.seed, f"fedmq products error {name}"), DEGREE)
        held = slice(block * DEGREE, min(layout.rows, (block + 1) * DEGREE))
        if name == _MASKS:
            held = slice(layout.rows, layout.numbers)
        else:
            shifted = column[held] << shift
            limbs[limb, : len(shifted)] += shifted & 0xFFFFFFFF
            if limb + 1 < len(limbs):
                limbs[limb + 1, : len(shifted)] += shifted >> 32
        found[held] = _wire(limbs[:, : held.stop - held.start], 32)
    return found


_MASKS = "of masks"


def _elements(seed: bytes, names: Sequence[str], limb_bits: int) -> Transform:
    """Uniform elements in the frequency domain: (names, limbs, N/2).

    Limbs are signed; once carried, an element is the same modulo q.
    """
    size, half = NUMBER_BYTES * DEGREE, 1 << (limb_bits - 1)
    drawn = [Stream(seed, f"fedmq products a {name}").read(size) for name in names]
    limbs = np.stack([_limbs(np.frombuffer(each, np.uint8), limb_bits) for each in drawn])
    return transformed(carried(limbs + half, limb_bits).astype(np.int64) - half)


def _wire(sums: NDArray[np.int64], limb_bits: int) -> NDArray[np.uint8]:
    """Sums of limbs (limbs, n) as numbers modulo q: uint8 (n, 12)."""
    limbs = carried(sums, limb_bits).T.astype("<u4", order="C")
    octets = limbs.view(np.uint8).reshape(len(limbs), -1, 4)
    return octets[:, :, : limb_bits // 8].reshape(len(limbs), NUMBER_BYTES)


def _limbs(numbers: NDArray[np.uint8], limb_bits: int) -> NDArray[np.int64]:
    """Numbers of 12 bytes each as limbs: int64 (limbs, n)."""
    size = limb_bits // 8
    octets = np.zeros((numbers.size // size, 4), np.uint8)
    octets[:, :size] = numbers.reshape(-1, size)
    return octets.view("<u4").reshape(numbers.size // NUMBER_BYTES, -1).T.astype(np.int64)


# What does the other party answer?


@dataclass(frozen=True, slots=True, eq=False)
class Products:
    """Of each column of weights its hint, uint8 (answers, hint bytes), and its numbers.

    ``numbers`` uint8 (answers, encrypted columns, 12).
    """

    hints: NDArray[np.uint8]
    numbers: NDArray[np.uint8]


def answer_products(
    public: bytes,
    encrypted: Sequence[NDArray[np.uint8]],
    weights: NDArray[np.integer[Any]],
    layout: ProductsLayout,
    seeds: Sequence[bytes],
    noise: Sequence[Sequence[int]],
) -> Products:
    """The inner products of ``encrypted`` columns, uint8 (rows + N, 12) each, with ``weights``.

    ``weights`` (rows, answers). ``seeds`` of the answers: each masks no other one. ``noise``: of
    each answer and column, see :func:`even_noise`.

    Raises:
        MessageError: the numbers are not as many as the layout says.
    """
    if any(column.shape != (layout.numbers, NUMBER_BYTES) for column in encrypted):
        raise MessageError("one encrypted number for each row is needed, and those of masks")
    masks = np.stack([draw_ternary(Stream(seed, "fedmq products mask"), DEGREE) for seed in seeds])
    hints = _weighted_elements(public, weights, layout)
    hints += coefficients(
        transformed(masks)[:, np.newaxis] * _elements(public, [_MASKS], layout.limb_bits)
    )
    for hint, seed in zip(hints, seeds, strict=True):
        hint[0] += draw_errors(Stream(seed, "fedmq products mask error"), DEGREE)
    turned = np.concatenate([weights.T, reversed_element(masks)], axis=1)
    numbers = np.empty((len(seeds), len(encrypted), NUMBER_BYTES), np.uint8)
    for place, column in enumerate(encrypted):
        sums = _weighted_numbers(column, turned, layout)
        for answer, limbs in enumerate(sums.tolist()):
            number = _whole(limbs, layout.limb_bits) + noise[answer][place]
            numbers[answer, place] = _octets(number)
    return Products(_cut(hints, layout), numbers)


def even_noise(seed: bytes, count: int, width: int) -> list[int]:
    """So many numbers drawn evenly below ``width``, but for 2^-64."""
    size = NUMBER_BYTES + 8
    drawn = Stream(seed, "fedmq products noise").read(size * count)
    return [
        int.from_bytes(drawn[first : first + size], "little") * width >> 8 * size
        for first in range(0, size * count, size)
    ]


def _weighted_elements(
    public: bytes, weights: NDArray[np.integer[Any]], layout: ProductsLayout
) -> NDArray[np.int64]:
    """``Σ a_k·w_k``: sums of limbs (answers, limbs, N).

    The transform of real coefficients that are read backwards is the conjugate one: so is that of
    the whole product, if elements are conjugate instead of the weights, which are many.
    """
    answers = weights.shape[1]
    total = np.zeros((answers, MODULUS_BITS // layout.limb_bits, DEGREE), np.int64)
    for start in range(0, layout.blocks, _BLOCKS_AT_ONCE):
        blocks = range(start, min(start + _BLOCKS_AT_ONCE, layout.blocks))
        names = [f"{block}" for block in blocks]
        elements = _elements(public, names, layout.limb_bits).conj().transpose(2, 0, 1)
        held = weights[blocks.start * DEGREE : blocks.stop * DEGREE]
        for first in range(0, answers, _WEIGHTS_AT_ONCE):
            part = held[:, first : first + _WEIGHTS_AT_ONCE]
            own = transformed(_by_block(part, len(blocks))).transpose(2, 0, 1)
            products = np.matmul(own, elements).transpose(1, 2, 0)
            total[first : first + part.shape[1]] += coefficients(np.conj(products, order="C"))
    return total


def _by_block(weights: NDArray[np.integer[Any]], blocks: int) -> NDArray[np.number[Any]]:
    """The weights (rows, answers) of so many blocks: (answers, blocks, N), 0 after the last row."""
    if len(weights) == blocks * DEGREE:
        return weights.T.reshape(weights.shape[1], blocks, DEGREE)
    held = np.zeros((weights.shape[1], blocks * DEGREE), weights.dtype)
    held[:, : len(weights)] = weights.T
    return held.reshape(len(held), blocks, DEGREE)


def _weighted_numbers(
    column: NDArray[np.uint8], weights: NDArray[np.integer[Any]], layout: ProductsLayout
) -> NDArray[np.int64]:
    """Sums of limbs (answers, limbs) of an encrypted column by weights (answers, numbers)."""
    total = np.zeros((len(weights), MODULUS_BITS // layout.limb_bits), np.int64)
    for first in range(0, len(column), _ROWS_AT_ONCE):
        part = slice(first, first + _ROWS_AT_ONCE)
        limbs = _limbs(column[part], layout.limb_bits).astype(np.float64)
        total += (weights[:, part].astype(np.float64) @ limbs.T).astype(np.int64)
    return total


def _cut(hints: NDArray[np.int64], layout: ProductsLayout) -> NDArray[np.uint8]:
    """Rounded hints as they travel: uint8 (answers, hint bytes)."""
    if layout.cut_bits:
        limb, shift = divmod(layout.cut_bits - 1, layout.limb_bits)
        hints[:, limb] += 1 << shift
    wired = (_wire(hint, layout.limb_bits) for hint in hints)
    return np.stack([numbers[:, layout.cut_bits // 8 :].reshape(-1) for numbers in wired])


def _whole(limbs: Sequence[int], limb_bits: int) -> int:
    return sum(limb << place * limb_bits for place, limb in enumerate(limbs))


def _octets(number: int) -> NDArray[np.uint8]:
    octets = (number % (1 << MODULUS_BITS)).to_bytes(NUMBER_BYTES, "little")
    return np.frombuffer(octets, np.uint8)


# How does the first party read an answer?


def read_products(
    keys: Sequence[ColumnKey], products: Products, layout: ProductsLayout
) -> list[list[int]]:
    """Of each answer, for each column: its sum at ``2^offset`` with noise, modulo 2^96.

    ``keys`` are those of the columns.

    Raises:
        MessageError: the answers have other lengths.
    """
    hints, numbers = products.hints, products.numbers
    if hints.shape != (len(hints), layout.hint_bytes):
        raise MessageError("a hint that is not a ring element")
    if numbers.shape != (len(hints), len(keys), NUMBER_BYTES):
        raise MessageError("an answer without a number for each column")
    return [
        [
            (int.from_bytes(number.tobytes(), "little") - known) % (1 << MODULUS_BITS)
            for number, known in zip(own, hinted, strict=True)
        ]
        for own, hinted in zip(numbers, read_hints(keys, hints, layout), strict=True)
    ]


def read_hints(
    keys: Sequence[ColumnKey], hints: NDArray[np.uint8], layout: ProductsLayout
) -> Iterator[list[int]]:
    """Of each of the ``hints``, uint8 (answers, hint bytes): ``[H·s]_0`` for the s of each key."""
    turned = np.stack([reversed_element(key.secret) for key in keys], axis=1).astype(np.float64)
    for hint in hints:
        units = np.ascontiguousarray(hint).view("<u2").reshape(DEGREE, -1).T.astype(np.float64)
        parts = (units @ turned).astype(np.int64).T.tolist()
        yield [_whole(limbs, _CUT_UNIT) << layout.cut_bits for limbs in parts]
