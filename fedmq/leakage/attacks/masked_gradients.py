"""The passive party of SMM-2 reads labels from ``W = g - Z' Z'^T g``.

For a logistic loss, g is negative exactly where the label is 1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedmq.privacy.masking.null_space import leverages

__all__ = ["bare_rows", "labels_from_signs"]

_BARE = 1e-9


def labels_from_signs(hidden: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Labels (rows,) from the answer W for g (rows,)."""
    return hidden < 0


def bare_rows(vectors: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Rows in which all ``vectors`` (rows, r) vanish: there W is g itself. bool (rows,)."""
    taken = leverages(vectors)
    return taken <= _BARE * max(float(taken.mean()), np.finfo(float).tiny)
