"""How much a leaf says about the labels of its rows (SecureBoost, Table 1, Theorems 2 and 3)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["leaf_purity", "positives_from_weight"]


def leaf_purity(leaves: Sequence[NDArray[np.integer]], labels: NDArray[np.float32]) -> float:
    """The share of rows whose label is that of their leaf's majority; leaves are given by rows."""
    leaves = [rows for rows in leaves if len(rows)]
    majorities = sum(max(labels[rows].sum(), len(rows) - labels[rows].sum()) for rows in leaves)
    return float(majorities / sum(len(rows) for rows in leaves))


def positives_from_weight(
    weight: float, rows: int, *, eta: float, reg_lambda: float, mean_prediction: float = 0.5
) -> float:
    """The number of positive labels among the ``rows`` of a leaf, from the ``weight`` it adds.

    Of ``-eta G / (H + lambda)`` with ``G = rows p - positives`` and ``H = rows p (1 - p)``. Exact
    in a first tree, where p is the base score for all (Theorem 2); in a later one p is the mean
    prediction in the leaf, which is how far Theorem 3's bound on the purity reaches.
    """
    p = mean_prediction
    return rows * p + weight / eta * (rows * p * (1 - p) + reg_lambda)
