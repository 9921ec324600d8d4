"""How much a leaf says about the labels of its rows (SecureBoost, Table 1)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["leaf_purity"]


def leaf_purity(leaves: Sequence[NDArray[np.integer]], labels: NDArray[np.float32]) -> float:
    """The share of rows whose label is that of their leaf's majority; leaves are given by rows."""
    leaves = [rows for rows in leaves if len(rows)]
    majorities = sum(max(labels[rows].sum(), len(rows) - labels[rows].sum()) for rows in leaves)
    return float(majorities / sum(len(rows) for rows in leaves))
