"""Columns of numbers with mean 0 and mean square 1: the mean product of two is their correlation.

A missing value stands at the mean of its column, 0. So all coefficients are of the same rows, and
those of several parties make one matrix.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["carried_by", "standardised"]

_NOTHING = 1e-10  # the share of a column's mean square that rounding leaves of one that is constant


def standardised(values: NDArray[np.floating]) -> NDArray[np.float64]:
    """Columns ``values`` (rows, columns), NaN where one is missing; all 0 for a constant."""
    wide = values.astype(np.float64)
    known = ~np.isnan(wide)
    wide = np.where(known, wide, 0.0)
    largest = np.abs(wide).max(axis=0, initial=0.0)
    wide /= np.where(largest > 0, largest, 1.0)
    means = wide.sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    centred = np.where(known, wide - means, 0.0)
    squares = (centred**2).mean(axis=0)
    varies = squares > _NOTHING * np.where(known, wide**2, 0.0).mean(axis=0)
    standard: NDArray[np.float64] = centred / np.sqrt(np.where(varies, squares, 1.0))
    return np.where(varies, standard, 0.0)


def carried_by(standard: NDArray[np.float64]) -> NDArray[np.float64]:
    """How many people carry the variance of columns ``standard`` (rows, columns): (columns,).

    Rows divided by the kurtosis: 1 of one value far out, and g of a mark that g of many people
    bear; no more than have another value than the most frequent one.
    """
    fourth = (standard**4).sum(axis=0)
    squares = (standard**2).sum(axis=0)
    by_kurtosis = np.where(fourth > 0, squares**2 / np.where(fourth > 0, fourth, 1.0), 0.0)
    most = [np.unique(column, return_counts=True)[1].max(initial=0) for column in standard.T]
    return np.minimum(by_kurtosis, len(standard) - np.array(most, np.float64))
