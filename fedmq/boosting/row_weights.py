"""How often rows count, and where they start: checked once, when they are read."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmq.errors import DataError

__all__ = ["base_margins", "first_margins", "row_weights"]


def row_weights(values: ArrayLike, where: str) -> NDArray[np.float32]:
    """``values`` (rows,) as weights: float32 (rows,).

    Raises:
        DataError: one is negative, infinite or missing; the text names its row, counted from 1.
    """
    with np.errstate(over="ignore"):
        weights = np.array(values, dtype=np.float32)
    _check(weights, np.isfinite(weights) & (weights >= 0), f"{where}: weight", "0 or more")
    return weights


def base_margins(values: ArrayLike, where: str) -> NDArray[np.float32]:
    """``values`` (rows,) as margins: float32 (rows,).

    Raises:
        DataError: one is infinite or missing; the text names its row, counted from 1.
    """
    with np.errstate(over="ignore"):
        margins = np.array(values, dtype=np.float32)
    _check(margins, np.isfinite(margins), f"{where}: base_margin", "finite")
    return margins


def first_margins(values: ArrayLike, rows: int, outputs: int, where: str) -> NDArray[np.float32]:
    """``values`` as the margins where so many ``rows`` start: float32 (rows,), or (rows, outputs).

    Raises:
        DataError: they are no numbers, or of another shape; or as of `base_margins`.
    """
    try:
        given = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise DataError(f"{where}: base_margin is no array of numbers") from None
    if given.ndim == 2 and given.shape[1] == 1:
        given = given[:, 0]
    shape = (rows,) if outputs == 1 else (rows, outputs)
    if given.shape != shape:
        raise DataError(f"{where}: base_margin has shape {given.shape}, {shape} is needed")
    return base_margins(given, where)


def _check(values: NDArray[np.float32], fits: NDArray[np.bool_], what: str, wanted: str) -> None:
    if not fits.all():
        row = int(np.argmin(fits.reshape(len(fits), -1).all(axis=1)))
        raise DataError(f"{what} in row {row + 1} is {values[row]}; a number is needed, {wanted}")
