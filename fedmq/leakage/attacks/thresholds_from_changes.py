"""Which splits' thresholds does an offered change tell, once it is put into words?

A change to beyond a threshold turns the person around at this split and at all that lie between. So
what turns with one change and not yet with the next smaller one has the threshold that is told.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["bracket", "records_told"]


def records_told(
    column: NDArray[np.int32], left: NDArray[np.bool_], now: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """By offered change, the records whose threshold its words name: bool (changes, records).

    ``column`` (changes,) and ``left`` bool (changes, records) are what is offered of columns of
    numbers, ``now`` bool (records,) the person's directions.
    """
    turned = left != now
    rises = (turned & now).any(axis=1)  # a larger value is no longer left of a split
    told: NDArray[np.bool_] = turned.copy()
    for change, own in enumerate(turned):
        same = (column == column[change]) & (rises == rises[change])
        smaller = same & (turned.sum(axis=1) < own.sum())
        told[change] &= ~turned[smaller].any(axis=0)
    return told


def bracket(thresholds: NDArray[np.float32], left: NDArray[np.bool_]) -> tuple[float, float]:
    """Between which of ``thresholds`` (n,) a value lies that goes ``left`` bool (n,) of them."""
    above = float(thresholds[left].min(initial=np.inf))
    return float(thresholds[~left].max(initial=-np.inf)), above
