"""How do float32 numbers enter a circuit, and how do they leave it?

As words of 32 bits that `floats` computes on: a mantissa of 24 bits, and an exponent above it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["EXPONENT_BITS", "MANTISSA_BITS", "float_bits", "floats_of"]

MANTISSA_BITS = 24
EXPONENT_BITS = 8


def float_bits(numbers: NDArray[np.float32] | NDArray[np.float64], bias: int) -> NDArray[np.bool_]:
    """Bits of ``numbers`` (n,) of 24 significant bits, none of them below zero: bool (32, n).

    Raises:
        ValueError: an exponent that with ``bias`` does not lie within 1 and 255.
    """
    finite = np.isfinite(numbers)
    fractions, exponents = np.frexp(np.where(finite, numbers, 1))
    mantissas = np.ldexp(fractions.astype(np.float64), MANTISSA_BITS).astype(np.uint32)
    exponents = np.where(mantissas > 0, exponents + (bias - 1), 1)
    if not (finite & (exponents > 0) & (exponents < 1 << EXPONENT_BITS)).all():
        raise ValueError(f"numbers whose exponents do not fit {EXPONENT_BITS} bits")
    exponents = np.where(mantissas > 0, exponents, 0).astype(np.uint32)
    words = (mantissas | exponents << np.uint32(MANTISSA_BITS)).astype("<u4")
    bits = np.unpackbits(words.view(np.uint8).reshape(-1, 4), axis=1, bitorder="little")
    return np.ascontiguousarray(bits.T).astype(np.bool_)


def floats_of(bits: NDArray[np.bool_], bias: int) -> NDArray[np.float32]:
    """The numbers of such ``bits`` (32, n), as far as float32 has them."""
    packed = np.packbits(np.ascontiguousarray(bits.T), axis=1, bitorder="little")
    words = packed.view("<u4").reshape(-1)
    mantissas = (words & np.uint32((1 << MANTISSA_BITS) - 1)).astype(np.float64)
    exponents = (words >> np.uint32(MANTISSA_BITS)).astype(np.intc)
    numbers = np.ldexp(mantissas, exponents - np.intc(bias + MANTISSA_BITS - 1))
    return np.asarray(numbers, np.float32)
