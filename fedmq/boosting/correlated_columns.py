"""How much are columns of numbers alike? Pearson's coefficients, and variance inflation factors.

The coefficient of two columns is of the rows in which both have a value. A column's variance
inflation factor is 1 / (1 - R²) of its regression on all others, over the rows in which no value is
missing: the diagonal of the inverse of their correlation matrix (Belsley, Kuh and Welsch, 1980).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["MOST_COLUMNS", "CorrelatedColumns", "rounded_inflation"]

MOST_COLUMNS = 500
"""Of more columns of numbers, the first so many are compared."""

_HUNDREDTH = 0.01  # by which a coefficient of two digits is off, at most
_PART = 0.01  # of a column: less of it in a direction is what rounding turns others into
_NOTHING = 1e-10  # an eigenvalue of columns that follow from one another, and a variance of none


@dataclass(frozen=True, slots=True, eq=False)
class CorrelatedColumns:
    """``coefficients`` float64 (columns, columns), NaN for a column that does not vary.

    ``inflation`` (columns,): infinite where other columns tell a column exactly, NaN where there
    are too few rows, or it does not vary.
    """

    names: tuple[str, ...]
    coefficients: NDArray[np.float64]
    inflation: NDArray[np.float64]

    @classmethod
    def of(cls, values: NDArray[np.float32], names: Sequence[str]) -> Self:
        """The columns of ``values``, float32 (rows, columns), with NaN where one is missing."""
        wide = values[:, :MOST_COLUMNS].astype(np.float64)
        return cls(tuple(names[:MOST_COLUMNS]), _coefficients(wide), _inflation(wide))


def _coefficients(values: NDArray[np.float64]) -> NDArray[np.float64]:
    known = ~np.isnan(values)
    present = known.astype(np.float64)
    means = np.where(known, values, 0.0).sum(axis=0) / np.maximum(present.sum(axis=0), 1)
    centred = np.where(known, values - means, 0.0)
    if known.all():  # then products with `present` are sums of columns
        present = present[:, :1]
    count = present.T @ present
    sums = centred.T @ present
    squares = (centred**2).T @ present
    with np.errstate(divide="ignore", invalid="ignore"):
        covariance = centred.T @ centred - sums * sums.T / count
        variance = squares - sums**2 / count
        variance[variance <= _NOTHING * squares] = np.nan
        found: NDArray[np.float64] = covariance / np.sqrt(variance * variance.T)
    return np.clip(found, -1.0, 1.0)


def _inflation(values: NDArray[np.float64]) -> NDArray[np.float64]:
    whole = values[~np.isnan(values).any(axis=1)]
    found = np.full(values.shape[1], np.nan)
    if len(whole) < values.shape[1] + 2:
        return found
    spread = whole.std(axis=0)
    varying = np.flatnonzero(spread > 1e-6 * np.abs(whole).max(axis=0))
    standard = (whole[:, varying] - whole[:, varying].mean(axis=0)) / spread[varying]
    coefficients = standard.T @ standard / len(whole)
    found[varying] = _of_matrix(coefficients, _NOTHING * max(1, len(varying)), _NOTHING)
    return found


def rounded_inflation(coefficients: NDArray[np.float64]) -> NDArray[np.float64]:
    """The inflation (columns,) by ``coefficients`` (columns, columns) of two digits.

    What rounding can make of a matrix is taken for nothing: infinite, where others leave so little
    of a column that two digits do not tell it from none.
    """
    return _of_matrix(coefficients, _HUNDREDTH * math.sqrt(len(coefficients)), _PART)


def _of_matrix(
    coefficients: NDArray[np.float64], nothing: float, part: float
) -> NDArray[np.float64]:
    """The diagonal of the pseudo-inverse without eigenvalues below ``nothing``.

    It is infinite for columns of which more than a ``part`` lies in their directions.
    """
    eigenvalues, vectors = np.linalg.eigh(coefficients)
    dependent = eigenvalues < nothing
    parts = vectors**2
    found = (parts[:, ~dependent] / eigenvalues[~dependent]).sum(axis=1)
    found[(parts[:, dependent] > part).any(axis=1)] = np.inf
    return np.asarray(found, np.float64)
