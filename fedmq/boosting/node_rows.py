"""Which rows stand in a node? Ascending numbers of rows, parted and chosen at the speed of memory.

NumPy's brackets take three times as long as the methods here, and a tree of a million rows calls
for ten million of these.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting import machine_rows

__all__ = ["marked", "masked", "parted", "span", "taken"]

_Value = TypeVar("_Value", bound=np.generic)
_Row = TypeVar("_Row", bound=np.integer)


def parted(
    rows: NDArray[np.int32], left: NDArray[np.bool_]
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The ``rows`` that go ``left``, bool (rows,), and the others; both in their order."""
    if len(rows) >= machine_rows.FEWEST_ROWS and machine_rows.can_part(rows):
        return machine_rows.parted(rows, left)
    return rows.compress(left), rows.compress(~left)


def marked(rows: NDArray[_Row], marks: NDArray[np.bool_]) -> NDArray[_Row]:
    """Those of ``rows`` with a mark; ``rows`` itself where all of the table have one.

    ``marks`` bool (rows of the table,).
    """
    return rows if marks.all() else rows.compress(marks.take(rows))


def masked(values: NDArray[_Value], mask: NDArray[np.bool_]) -> NDArray[_Value]:
    """``values`` (rows, ...) where ``mask``, bool (rows,); themselves where it is true of all."""
    return values if mask.all() else values[mask]


def taken(values: NDArray[_Value], rows: NDArray[np.integer]) -> NDArray[_Value]:
    """``values`` (all rows, ...) of a node's ``rows``; themselves where these are all."""
    return values if len(rows) == len(values) else values.take(rows, axis=0)


def span(rows: NDArray[_Row]) -> slice | NDArray[_Row]:
    """``rows`` as a slice where each is the next of the one before: it is read without a copy."""
    if not len(rows):
        return rows
    first, last = int(rows[0]), int(rows[-1])
    follows = last - first == len(rows) - 1 and bool((rows[1:] - rows[:-1] == 1).all())
    return slice(first, last + 1) if follows else rows
