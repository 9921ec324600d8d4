"""Tables that Python users hold: NumPy arrays, and pandas, Polars or Arrow data frames."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.features import feature_matrix
from fedmq.errors import DataError

__all__ = ["feature_table"]


def feature_table(data: Any, where: str) -> tuple[NDArray[np.float32], tuple[str, ...]]:
    """``data`` as float32 (rows, features) with NaN for missing, and the features' names.

    Columns of an array are named f0, f1, ...

    Raises:
        DataError: it is no table, holds text, or infinite values; the text begins with ``where``.
    """
    names = getattr(data, "column_names", None)  # Arrow
    if names is None and hasattr(data, "columns"):
        names = list(data.columns)  # pandas, Polars
    if names is not None:
        columns = [_column(data[name], where, str(name)) for name in names]
        shape = (len(data), 0)
        return _checked(np.column_stack(columns) if columns else np.empty(shape), names, where)
    values = np.asarray(data)
    if values.ndim != 2:
        raise DataError(f"{where}: a table has rows and columns, this has shape {values.shape}")
    if values.dtype.kind not in "fiub":
        values = _numbers(values, where, "the array")
    return _checked(values, [f"f{index}" for index in range(values.shape[1])], where)


def _checked(
    values: NDArray[Any], names: list[str], where: str
) -> tuple[NDArray[np.float32], tuple[str, ...]]:
    labels = tuple(str(name) for name in names)
    if len(set(labels)) < len(labels):
        twice = next(name for name in labels if labels.count(name) > 1)
        raise DataError(f"{where}: column {twice!r} appears more than once")
    return feature_matrix(values, labels, where), labels


def _column(column: Any, where: str, name: str) -> NDArray[Any]:
    values = column.to_numpy()
    return values if values.dtype.kind in "fiub" else _numbers(values, where, f"column {name!r}")


def _numbers(values: NDArray[Any], where: str, what: str) -> NDArray[np.float64]:
    """Objects as numbers: None and pandas' NA are missing."""
    flat = values.ravel()
    numbers = np.empty(flat.shape, dtype=np.float64)
    for row, value in enumerate(flat.tolist()):
        try:
            missing = value is None or type(value).__name__ == "NAType"
            numbers[row] = np.nan if missing else value
        except (TypeError, ValueError):
            raise DataError(
                f"{where}: {what}, row {row + 1} holds {value!r}, which is no number"
            ) from None
    return numbers.reshape(values.shape)
