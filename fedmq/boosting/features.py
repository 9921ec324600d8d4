"""A table's feature columns as XGBoost sees them: float32, NaN for missing, never infinite."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmq.errors import DataError

__all__ = ["feature_matrix"]


def feature_matrix(values: ArrayLike, names: Sequence[str], where: str) -> NDArray[np.float32]:
    """``values`` (rows, features) as a C-ordered float32 matrix with NaN for missing.

    Raises ``DataError`` naming ``where``, the column and the first row (counted from 1) of a value
    that is infinite, or becomes so in float32; XGBoost refuses these too.
    """
    with np.errstate(over="ignore"):
        matrix = np.array(values, dtype=np.float32, order="C")
    if matrix.ndim != 2 or matrix.shape[1] != len(names):
        raise DataError(f"{where}: expected {len(names)} feature columns, got {matrix.shape}")
    infinite = np.isinf(matrix)
    if infinite.any():
        column = int(np.argmax(infinite.any(axis=0)))
        row = int(np.argmax(infinite[:, column])) + 1
        raise DataError(
            f"{where}: column {names[column]!r}, row {row} is infinite or too large for float32; "
            "leave the cell empty if the value is missing"
        )
    return matrix
