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
_SPREAD = 1e-6  # of a column's largest magnitude; less varies by rounding
_ROWS_AT_ONCE = 8192
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
        values, names = values[:, :MOST_COLUMNS], tuple(names[:MOST_COLUMNS])
        missing = np.isnan(values)
        if not missing.any():
            coefficients, varying = _of_whole(values)
            return cls(names, coefficients, _inflation(coefficients, varying, len(values)))
        whole = values[~missing.any(axis=1)]
        inflation = _inflation(*_of_whole(whole), len(whole))
        return cls(names, _of_pairs(values.astype(np.float64), ~missing), inflation)


def _of_pairs(values: NDArray[np.float64], known: NDArray[np.bool_]) -> NDArray[np.float64]:
    """The coefficient of each two columns, over the rows in which both are ``known``."""
    present = known.astype(np.float64)
    means = np.where(known, values, 0.0).sum(axis=0) / np.maximum(present.sum(axis=0), 1)
    centred = np.where(known, values - means, 0.0)
    count, sums = present.T @ present, centred.T @ present
    return _coefficients(centred.T @ centred, sums, (centred**2).T @ present, count)


def _of_whole(values: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The coefficients of columns without missing values, and which columns (columns,) vary."""
    rows, columns = values.shape
    means = values.mean(axis=0, dtype=np.float64) if rows else np.zeros(columns)
    products, sums = np.zeros((columns, columns)), np.zeros((columns, 1))
    for first in range(0, rows, _ROWS_AT_ONCE):
        centred = values[first : first + _ROWS_AT_ONCE].astype(np.float64) - means
        products += centred.T @ centred
        sums += centred.sum(axis=0)[:, np.newaxis]
    squares = np.diag(products)[:, np.newaxis]
    largest = np.maximum(values.max(axis=0, initial=0.0), -values.min(axis=0, initial=0.0))
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = np.sqrt(np.maximum(squares - sums**2 / rows, 0.0) / rows)
        varying = spread[:, 0] > _SPREAD * largest
        return _coefficients(products, sums, squares, float(rows)), varying


def _coefficients(
    products: NDArray[np.float64],
    sums: NDArray[np.float64],
    squares: NDArray[np.float64],
    count: NDArray[np.float64] | float,
) -> NDArray[np.float64]:
    """Pearson's coefficients by sums over ``count`` rows of columns that are nearly centred."""
    with np.errstate(divide="ignore", invalid="ignore"):
        covariance = products - sums * sums.T / count
        variance = squares - sums**2 / count
        variance[variance <= _NOTHING * squares] = np.nan
        found: NDArray[np.float64] = covariance / np.sqrt(variance * variance.T)
    return np.clip(found, -1.0, 1.0)


def _inflation(
    coefficients: NDArray[np.float64], varying: NDArray[np.bool_], rows: int
) -> NDArray[np.float64]:
    found = np.full(len(coefficients), np.nan)
    if rows >= len(coefficients) + 2:
        own = coefficients[np.ix_(varying, varying)]
        found[varying] = _of_matrix(own, _NOTHING * max(1, len(own)), _NOTHING)
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
