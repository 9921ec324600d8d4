"""Gradients as fixed-point integers, so that a sum is exact in whatever order it is taken."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["RESOLUTION_BITS", "FixedPoint"]

RESOLUTION_BITS = 40
"""Of the largest gradient of a tree, if nothing else is asked for."""

_SUM_BITS = 62


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """Scales of one tree: g is the integer ``round(g * 2**g_bits)``, h with ``h_bits`` likewise.

    A tree of vector leaves has a g and an h for each output, one after the other.

    ``value_bits``: no encoded number exceeds ``2**value_bits`` in magnitude.
    """

    g_bits: int
    h_bits: int
    value_bits: int

    @classmethod
    def of(cls, gradients: NDArray[np.float32]) -> FixedPoint:
        """Scales that fit ``gradients`` (rows, 2 * outputs), those of the training rows of a tree.

        The resolution is 2**-40 of the power of two above the largest magnitude, or coarser where
        the sum over all rows would leave 62 bits.
        """
        return cls.covering(_largest(gradients), len(gradients))

    @classmethod
    def covering(cls, largest: NDArray[np.floating], rows: int) -> FixedPoint:
        """The same for ``rows`` rows whose g and h do not exceed ``largest`` (2,)."""
        value_bits = min(RESOLUTION_BITS, _SUM_BITS - max(rows - 1, 0).bit_length())
        exponents = np.frexp(largest)[1].tolist()  # largest < 2**exponent
        return cls(value_bits - exponents[0], value_bits - exponents[1], value_bits)

    @classmethod
    def of_bits(cls, gradients: NDArray[np.float32], bits: int) -> FixedPoint:
        """Scales that take ``gradients`` to ``bits`` bits, the sign of g included.

        ``gradients`` (rows, 2 * outputs). The largest magnitude is 2**(bits - 1), or lies above
        half of it. Sums of int64 have room for 16 bits of any rows that a training can have.
        """
        value_bits = bits - 1
        mantissas, exponents = np.frexp(_largest(gradients))
        g_exponent, h_exponent = (exponents - (mantissas == 0.5)).tolist()
        return cls(value_bits - g_exponent, value_bits - h_exponent, value_bits)

    def round_by_lot(
        self, gradients: NDArray[np.float32], lots: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """``gradients`` as int64, up or down by ``lots`` in [0, 1): both (rows, 2 * outputs).

        Stochastic rounding, so that the expectation is the gradient itself (Shi et al., NeurIPS
        2022, equation 5). A small hessian may become 0.
        """
        scaled = np.ldexp(gradients.astype(np.float64), self._bits(gradients))
        return np.floor(scaled + lots).astype(np.int64)

    def encode(self, gradients: NDArray[np.float32]) -> NDArray[np.int64]:
        """``gradients`` (rows, 2 * outputs) as int64.

        A positive hessian is never rounded to nothing: XGBoost takes a side without hessian for
        one without rows.
        """
        scaled = np.ldexp(gradients.astype(np.float64), self._bits(gradients))
        encoded = np.rint(scaled).astype(np.int64)
        encoded[:, 1::2] = np.maximum(encoded[:, 1::2], gradients[:, 1::2] > 0)
        return encoded

    def to_float(self, sums: NDArray[np.int64]) -> NDArray[np.float64]:
        """Integer sums (..., 2 * outputs) as float64, rounded once."""
        return np.ldexp(sums.astype(np.float64), -self._bits(sums))

    def _bits(self, numbers: NDArray[np.generic]) -> NDArray[np.int64]:
        """Of each column, by turns of g and of h."""
        return np.tile([self.g_bits, self.h_bits], numbers.shape[-1] // 2)

    def rescaled(self, sums: NDArray[np.int64], other: FixedPoint) -> NDArray[np.int64]:
        """Sums (..., 2) of the grid ``other`` on this one, cut off where they leave 62 bits."""
        shifts = np.array([self.g_bits - other.g_bits, self.h_bits - other.h_bits])
        up, down = np.maximum(shifts, 0), np.minimum(shifts, 0)
        largest = np.int64(1) << np.maximum(_SUM_BITS - up, 0)
        finer = np.clip(sums, -largest, largest) << up
        coarser = np.rint(np.ldexp(finer.astype(np.float64), down)).astype(np.int64)
        chosen: NDArray[np.int64] = np.where(shifts < 0, coarser, finer)
        return chosen


def _largest(gradients: NDArray[np.float32]) -> NDArray[np.float32]:
    """The largest magnitudes of any g and of any h: (2,)."""
    magnitudes = np.abs(gradients).max(axis=0, initial=0.0)
    largest: NDArray[np.float32] = magnitudes.reshape(-1, 2).max(axis=0)
    return largest
