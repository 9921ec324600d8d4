"""How are integers modulo 2^128 computed with? As two words each, the lower one first."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "WIDE_BITS",
    "Wide",
    "add",
    "bits_of",
    "integers_of",
    "multiply",
    "negate",
    "shift_up",
    "subtract",
    "sum_of",
    "wide",
]

WIDE_BITS = 128

Wide = NDArray[np.uint64]
"""(..., 2)."""

_WORD = 64
_HALF = np.uint64(32)
_LOW_HALF = np.uint64(2**32 - 1)


def wide(numbers: NDArray[np.int64] | NDArray[np.uint64]) -> Wide:
    """Words of 64 bits; of signed ones the sign goes on above."""
    above = numbers >> 63 if numbers.dtype == np.int64 else np.zeros_like(numbers)
    return np.stack([numbers.view(np.uint64), above.view(np.uint64)], axis=-1)


def add(left: Wide, right: Wide) -> Wide:
    """The sum."""
    low = left[..., 0] + right[..., 0]
    carried = low < left[..., 0]
    return np.stack([low, left[..., 1] + right[..., 1] + carried], axis=-1)


def negate(numbers: Wide) -> Wide:
    """Zero less each number."""
    low = ~numbers[..., 0] + np.uint64(1)
    return np.stack([low, ~numbers[..., 1] + (low == 0)], axis=-1)


def subtract(left: Wide, right: Wide) -> Wide:
    """The difference."""
    low = left[..., 0] - right[..., 0]
    borrowed = left[..., 0] < right[..., 0]
    return np.stack([low, left[..., 1] - right[..., 1] - borrowed], axis=-1)


def shift_up(numbers: Wide, bits: int) -> Wide:
    """Times two to the power of ``bits``."""
    if bits >= WIDE_BITS:
        return np.zeros_like(numbers)
    low, high = numbers[..., 0], numbers[..., 1]
    if bits >= _WORD:
        return np.stack([np.zeros_like(low), low << np.uint64(bits - _WORD)], axis=-1)
    if bits:
        high = high << np.uint64(bits) | low >> np.uint64(_WORD - bits)
        low = low << np.uint64(bits)
    return np.stack([low, high], axis=-1)


def multiply(left: Wide, right: Wide) -> Wide:
    """The schoolbook's, in halves of words."""
    x, y = left[..., 0], right[..., 0]
    x_low, x_high, y_low, y_high = x & _LOW_HALF, x >> _HALF, y & _LOW_HALF, y >> _HALF
    middle = x_high * y_low + (x_low * y_low >> _HALF)
    other = x_low * y_high + (middle & _LOW_HALF)
    high = x_high * y_high + (middle >> _HALF) + (other >> _HALF)
    return np.stack([x * y, high + left[..., 1] * y + x * right[..., 1]], axis=-1)


def sum_of(numbers: Wide) -> Wide:
    """Along the first axis."""
    halves = np.stack([numbers & _LOW_HALF, numbers >> _HALF], axis=-1).sum(axis=0)
    low, high = halves[..., 0, :], halves[..., 1, :]  # each below 2^64 for 2^32 numbers
    return add(
        add(wide(low[..., 0]), shift_up(wide(low[..., 1]), 32)),
        shift_up(add(wide(high[..., 0]), shift_up(wide(high[..., 1]), 32)), 64),
    )


def bits_of(numbers: Wide, count: int) -> NDArray[np.bool_]:
    """The lowest ``count`` bits, the lowest first: bool (count, ...)."""
    words = np.ascontiguousarray(numbers, "<u8")
    unpacked = np.unpackbits(words.view(np.uint8), axis=-1, bitorder="little", count=count)
    return np.ascontiguousarray(np.moveaxis(unpacked, -1, 0)).astype(np.bool_)


def integers_of(bits: NDArray[np.bool_]) -> NDArray[np.int64]:
    """What fewer than 64 ``bits`` (count, ...), the lowest first, stand for: int64 (...)."""
    powers = np.int64(1) << np.arange(len(bits))
    return np.tensordot(powers, bits.astype(np.int64), axes=1)
