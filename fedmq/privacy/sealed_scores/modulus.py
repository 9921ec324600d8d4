"""How is computed in Z_q[X]/(X^N + 1) with q = 2^108, and modulo the prime t of what is encrypted?

An element is four limbs of 27 bits, lowest first, int64 (4, N). Products take one factor of 30
bits, in two halves of 15, by the transforms of `fedmq.privacy.lattice.ring`: with limbs between
-2^26 and 2^26 float64 keeps every coefficient of a product that looks random within 0.1 of the
integer, and each product is checked. Where there is machine code, it computes the same.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fedmq.privacy.lattice.ring import Transform, coefficients, transformed
from fedmq.privacy.random_stream import Stream
from fedmq.privacy.sealed_scores import machine_ring
from fedmq.privacy.sealed_scores.parameters import (
    DEGREE,
    FACTOR_BITS,
    GENERATOR,
    LIMB_BITS,
    LIMBS,
    PRIME,
    SENT_BITS,
)

__all__ = [
    "Limbs",
    "carried",
    "decrypted",
    "factor_transforms",
    "from_slots",
    "packed",
    "product",
    "reduced",
    "rounded",
    "scaled",
    "ternary_product",
    "to_slots",
    "transforms_of",
    "uniform",
    "unpacked",
]

Limbs = NDArray[np.int64]

_MASK = (1 << LIMB_BITS) - 1

# Elements modulo q


def carried(limbs: Limbs) -> Limbs:
    """The same element modulo q with limbs from 0 to 2^27 - 1, in place."""
    for place in range(LIMBS - 1):
        limbs[place + 1] += limbs[place] >> LIMB_BITS
    limbs &= _MASK
    return limbs


def uniform(stream: Stream, count: int = DEGREE) -> Limbs:
    """So many uniform numbers modulo q, as `unpacked` ones."""
    return unpacked(stream.words(2, count))


def unpacked(words: NDArray[np.uint64]) -> Limbs:
    """The limbs (4, n) of two words each, (2, n); bits above 108 do not count."""
    if machine_ring.can_compute():
        return machine_ring.unpacked(words)
    low, high = words
    shift = np.uint64
    parts = (low, low >> shift(27), (low >> shift(54)) | (high << shift(10)), high >> shift(17))
    return np.stack([(part & shift(_MASK)).astype(np.int64) for part in parts])


def packed(limbs: Limbs) -> NDArray[np.uint64]:
    """``limbs`` (4, n), which it carries, as they travel: two words each, uint64 (2, n)."""
    if machine_ring.can_compute():
        return machine_ring.packed(limbs)
    parts = carried(limbs).astype(np.uint64)
    shift = np.uint64
    low = parts[0] | (parts[1] << shift(27)) | (parts[2] << shift(54))
    high = (parts[2] >> shift(10)) | (parts[3] << shift(17))
    return np.stack([low, high])


def transforms_of(words: NDArray[np.uint64]) -> Transform:
    """An element as it travels, (2, N), in the frequency domain, made signed first: (4, N/2)."""
    if machine_ring.can_compute():
        return machine_ring.transforms_of(words)
    half = 1 << (LIMB_BITS - 1)
    signed = carried(unpacked(words) + half)
    signed -= half
    return transformed(signed)


def factor_transforms(numbers: NDArray[np.int64]) -> Transform:
    """A factor modulo t, (N,), in two halves of 15 bits in the frequency domain: (2, N/2)."""
    if machine_ring.can_compute():
        return machine_ring.factor_transforms(numbers)
    signed = np.where(numbers > PRIME // 2, numbers - PRIME, numbers)
    half = 1 << (FACTOR_BITS - 1)
    high = (signed + half) >> FACTOR_BITS
    return transformed(np.stack([signed - (high << FACTOR_BITS), high]))


def product(
    element: Transform, factor: Transform, added: Transform | None = None, count: int = DEGREE
) -> Limbs:
    """``element`` times ``factor``, plus ``added``: limbs (4, count), not carried.

    With a smaller ``count``, a power of two, only the coefficients at multiples of N / count.

    Raises:
        Inexact: float64 did not keep the product exact, which honest factors never cause.
    """
    if machine_ring.can_compute():
        return machine_ring.product(element, factor, added, count)
    limbs = np.zeros((LIMBS, count), np.int64)
    kept = LIMB_BITS - FACTOR_BITS
    for place in range(LIMBS):  # few at a time: what is large would be new memory each time
        both = element[place] * factor
        if added is not None:
            both[0] += added[place]
        low, high = coefficients(_every(both, count))
        limbs[place] += low + ((high & ((1 << kept) - 1)) << FACTOR_BITS)
        if place + 1 < LIMBS:
            limbs[place + 1] += high >> kept
    return limbs


def ternary_product(element: Transform, factor: Transform) -> Limbs:
    """``element`` times a ``factor`` of numbers from -1 to 1: limbs (4, N), not carried."""
    if machine_ring.can_compute():
        return machine_ring.ternary_product(element, factor)
    return np.stack([coefficients(limb * factor) for limb in element])


def _every(transforms: Transform, count: int) -> Transform:
    """The transforms (n, N/2) of what has X^(N / count) in the place of X: (n, count/2)."""
    if count == DEGREE:
        return transforms
    every: Transform = transforms.reshape(len(transforms), -1, count // 2).mean(axis=1)
    return every


def scaled(numbers: NDArray[np.int64]) -> Limbs:
    """``numbers`` modulo t times q / t, rounded: limbs (4, n), not carried."""
    if machine_ring.can_compute():
        return machine_ring.scaled(numbers)
    limbs = np.empty((LIMBS, len(numbers)), np.int64)
    left = numbers
    for place in reversed(range(LIMBS)):
        left = left << LIMB_BITS
        limbs[place] = left // PRIME
        left = left - limbs[place] * PRIME
    limbs[0] += 2 * left >= PRIME
    return limbs


def reduced(limbs: Limbs) -> NDArray[np.int64]:
    """Carried ``limbs`` (4, n) times t / q, rounded down: numbers modulo t, (n,)."""
    carry = np.zeros(limbs.shape[1], np.int64)
    for limb in limbs:
        carry = (limb * PRIME + carry) >> LIMB_BITS
    return carry


# Answers modulo 2^80, as three numbers of 27, 27 and 26 bits where they are computed with

_SENT_TOP = SENT_BITS - 2 * LIMB_BITS


def rounded(limbs: Limbs) -> NDArray[np.uint16]:
    """``limbs`` (4, n), their 28 lowest bits rounded away: uint16 (5, n), lowest first."""
    if machine_ring.can_compute():
        return machine_ring.rounded(limbs)
    limbs[1] += 1
    parts = carried(limbs).astype(np.uint64)
    shift = np.uint64
    low = (parts[1] >> shift(1)) | (parts[2] << shift(26)) | (parts[3] << shift(53))
    words = [(low >> shift(16 * place)).astype(np.uint16) for place in range(4)]
    return np.stack([*words, (parts[3] >> shift(11)).astype(np.uint16)])


def _sent_limbs(parts: NDArray[np.uint16]) -> Limbs:
    wide = parts.astype(np.int64)
    low = wide[0] | ((wide[1] & 0x7FF) << 16)
    middle = (wide[1] >> 11) | (wide[2] << 5) | ((wide[3] & 0x3F) << 21)
    return np.stack([low, middle, (wide[3] >> 6) | (wide[4] << 10)])


def decrypted(
    masks: NDArray[np.uint16], numbers: NDArray[np.uint16], secret: Transform, farthest: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """``numbers`` less the ``masks`` times the secret, times t / 2^80: int64 modulo t, (n,).

    ``masks`` uint16 (5, N), ``numbers`` (5, n): the coefficients at multiples of N / n. Beside it,
    which of them are in doubt: a number up to ``farthest`` above or below would round otherwise.
    """
    count, room = numbers.shape[1], _SENT_TOP + LIMB_BITS
    near = 1 + ((farthest * PRIME) >> (SENT_BITS - room))
    if machine_ring.can_compute():
        return machine_ring.decrypted(masks, numbers, secret, near)
    products = _every(transformed(_sent_limbs(masks)) * secret, count)
    low, middle, top = _sent_limbs(numbers) + coefficients(products)
    mask = (1 << LIMB_BITS) - 1
    middle = middle + (low >> LIMB_BITS)
    top = (top + (middle >> LIMB_BITS)) & ((1 << _SENT_TOP) - 1)
    carry = ((low & mask) * PRIME) >> LIMB_BITS
    carry = (middle & mask) * PRIME + carry
    below = carry & mask
    carry = top * PRIME + (carry >> LIMB_BITS)
    # Of the room below a whole number, its 53 highest bits
    place = ((carry & ((1 << _SENT_TOP) - 1)) << LIMB_BITS) | below
    return carry >> _SENT_TOP, (place < near) | (place > (1 << room) - 1 - near)


# Slots: the values of a plaintext at the odd powers of a root of unity (Smart and Vercauteren,
# 2014). Products of plaintexts are products slot by slot.


def to_slots(numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """The slots of a plaintext (..., n), a power of two: its values at ψ^(2k+1)."""
    if numbers.shape[-1] == DEGREE and machine_ring.can_compute():
        return machine_ring.to_slots(numbers)
    size = numbers.shape[-1]
    root = pow(GENERATOR, (PRIME - 1) // (2 * size), PRIME)
    return _evaluated(numbers * _powers(root, size) % PRIME, root * root % PRIME)


def from_slots(slots: NDArray[np.int64]) -> NDArray[np.int64]:
    """The plaintext with these slots (..., n), in the order of `to_slots`."""
    if slots.shape[-1] == DEGREE and machine_ring.can_compute():
        return machine_ring.from_slots(slots)
    size = slots.shape[-1]
    inverse = pow(pow(GENERATOR, (PRIME - 1) // (2 * size), PRIME), -1, PRIME)
    numbers = _evaluated(slots, inverse * inverse % PRIME)
    share = pow(size, -1, PRIME)
    return numbers * (_powers(inverse, size) * share % PRIME) % PRIME


_KNOWN: dict[tuple[int, int], NDArray[np.int64]] = {}


def _powers(root: int, count: int) -> NDArray[np.int64]:
    """1, root, root², … modulo t: int64 (count,)."""
    if (root, count) not in _KNOWN:
        powers = np.ones(1, np.int64)
        while len(powers) < count:
            step = pow(root, len(powers), PRIME)
            powers = np.concatenate([powers, powers * step % PRIME])
        _KNOWN[root, count] = powers[:count]
    return _KNOWN[root, count]


def _evaluated(numbers: NDArray[np.int64], root: int) -> NDArray[np.int64]:
    """Σ_c numbers[..., c] root^(ck) by k, for a ``root`` of order n.

    Of a square of numbers first the columns, then the rows (Gentleman and Sande, 1966).
    """
    size = numbers.shape[-1]
    side = min(size, _SIDE)
    rest = size // side
    square = _times(_matrix(pow(root, rest, PRIME), side), numbers.reshape(-1, side, rest))
    if rest > 1:
        square = square * _turns(root, side, rest) % PRIME
        matrix = _matrix(pow(root, side, PRIME), rest)
        square = _times(matrix, square.swapaxes(-1, -2))
    return square.reshape(numbers.shape)


_SIDE = 64
_HALF = 15  # bits: 64 products of 15 and 30 bits are exact in float64


@lru_cache
def _matrix(root: int, size: int) -> NDArray[np.float64]:
    """root^(jk), for a ``root`` of order ``size``, low and high halves: float64 (2, size, size)."""
    places = np.arange(size)
    every = _powers(root, size)[np.outer(places, places) % size]
    return np.stack([every & ((1 << _HALF) - 1), every >> _HALF]).astype(np.float64)


@lru_cache
def _turns(root: int, rows: int, columns: int) -> NDArray[np.int64]:
    """root^(jk): (rows, columns)."""
    powers = _powers(root, rows * columns)
    return powers[np.outer(np.arange(rows), np.arange(columns))]


def _times(matrix: NDArray[np.float64], numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """The product with ``numbers`` below t, (..., size, n), modulo t."""
    wide = numbers.astype(np.float64)
    low = np.matmul(matrix[0], wide).astype(np.int64)
    numbers = np.matmul(matrix[1], wide).astype(np.int64)
    numbers %= PRIME
    numbers <<= _HALF
    numbers += low
    numbers %= PRIME
    return numbers
