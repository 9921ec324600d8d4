"""Which numbers modulo 2^192 stand in so many limbs of 32 bits?

Limbs come lowest first, along the last axis but one: coefficients lie side by side. While sums are
taken a limb is an int64 of any size below 2^62; ``carried`` makes numbers of them.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedmq.privacy.lattice.layout import LIMB_BITS, LIMBS

__all__ = ["add_power", "add_shifted", "carried", "field_at", "signed_field"]

_WORD_BITS = 64


def carried(sums: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Sums of limbs, int64 (..., 6, n), as numbers modulo 2^192: uint32 of the same shape."""
    limbs = np.empty(sums.shape, np.uint32)
    carry: NDArray[np.int64] = np.zeros(sums.shape[:-2] + sums.shape[-1:], np.int64)
    for limb in range(LIMBS):
        carry += sums[..., limb, :]
        limbs[..., limb, :] = carry & 0xFFFFFFFF
        carry >>= LIMB_BITS
    return limbs


def add_shifted(sums: NDArray[np.int64], values: NDArray[np.int64], offset: int) -> None:
    """Add ``values`` (..., n), below 2^62 in magnitude, times ``2**offset`` to sums of limbs."""
    limb, shift = divmod(offset, LIMB_BITS)
    # A value times 2^shift is its 64 lowest bits, as two limbs, and what is above them, signed.
    low = (values << shift).view(np.uint32)
    for place, part in enumerate((low[..., 0::2], low[..., 1::2]), start=limb):
        if place < LIMBS:
            sums[..., place, :] += part
    if limb + 2 < LIMBS:
        sums[..., limb + 2, :] += values >> min(_WORD_BITS - shift, _WORD_BITS - 1)


def add_power(sums: NDArray[np.int64], bit: int, sign: int = 1) -> None:
    """Add ``sign * 2**bit`` to every one of the sums of limbs."""
    limb, shift = divmod(bit, LIMB_BITS)
    if limb < LIMBS:
        sums[..., limb, :] += sign * (1 << shift)


def field_at(limbs: NDArray[np.uint32], offset: int) -> NDArray[np.uint64]:
    """The 64 bits from ``offset`` on: uint64 (..., n)."""
    limb, shift = divmod(offset, LIMB_BITS)
    field = np.zeros(limbs.shape[:-2] + limbs.shape[-1:], np.uint64)
    for place in range(limb, min(limb + 3, LIMBS)):
        part = limbs[..., place, :].astype(np.uint64)
        up = LIMB_BITS * (place - limb) - shift
        field |= part << np.uint64(up) if up >= 0 else part >> np.uint64(-up)
    return field


def signed_field(limbs: NDArray[np.uint32], offset: int, bits: int) -> NDArray[np.int64]:
    """The ``bits`` (at most 64) from ``offset`` on as signed integers: int64 (..., n)."""
    unused = 64 - bits
    field = field_at(limbs, offset) << np.uint64(unused)
    signed: NDArray[np.int64] = field.view(np.int64) >> unused
    return signed
