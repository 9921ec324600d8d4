"""The active party learns who is left of whom in features it does not hold.

Every split that a passive party wins shows who goes left. Splits that never contradict each other
may be of one feature; together they sort the rows by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Partition", "best_concordance", "inferred_orders"]


@dataclass(frozen=True, slots=True, eq=False)
class Partition:
    """Rows of a node (int32), and which of them went left (bool)."""

    rows: NDArray[np.int32]
    left: NDArray[np.bool_]


def inferred_orders(rows: int, partitions: Sequence[Partition]) -> list[NDArray[np.float64]]:
    """One order per feature that the attacker makes out: ranks (rows,), 0 to 1, NaN unknown.

    Partitions join the first order that they do not contradict: no row that is left of a threshold
    may be right of a larger one.
    """
    sides = []
    for partition in partitions:
        side = np.zeros(rows, dtype=np.int8)
        side[partition.rows] = np.where(partition.left, -1, 1)
        sides.append(side)
    groups: list[list[NDArray[np.int8]]] = []
    for side in sides:
        for group in groups:
            if all(_nested(side, other) for other in group):
                group.append(side)
                break
        else:
            groups.append([side])
    return [_ranks(np.stack(group)) for group in groups]


def _nested(one: NDArray[np.int8], other: NDArray[np.int8]) -> bool:
    """Whether both share rows, and thresholds of one feature could have made both."""
    shared = (one != 0) & (other != 0)
    crossing = ((one < 0) & (other > 0)).any() and ((one > 0) & (other < 0)).any()
    return bool(shared.any()) and not crossing


def _ranks(sides: NDArray[np.int8]) -> NDArray[np.float64]:
    seen = np.abs(sides).sum(axis=0)
    right = (sides > 0).sum(axis=0)
    return np.where(seen > 0, right / np.maximum(seen, 1), np.nan)


def best_concordance(
    ranks: NDArray[np.float64], values: NDArray[np.float32], sample: int = 1000, seed: int = 0
) -> tuple[float, float]:
    """How well ``ranks`` sort the feature of ``values`` (rows, features) that they fit best.

    Among the pairs of a sample of rows that the ranks separate: the share sorted as the feature
    sorts them (0.5 is guessing; ties of the feature count half); and the share separated.
    """
    known = np.flatnonzero(~np.isnan(ranks))
    if not len(known) or not values.shape[1]:
        return 0.5, 0.0
    random = np.random.default_rng(seed)
    rows = random.permutation(known)[:sample]
    i, j = np.triu_indices(len(rows), k=1)
    order = np.sign(ranks[rows[i]] - ranks[rows[j]])
    apart = order != 0
    if not apart.any():
        return 0.5, 0.0
    best = 0.5
    for column in values.T:
        truth = column[rows[i[apart]]] - column[rows[j[apart]]]
        present = ~np.isnan(truth)
        if present.any():
            right = np.sign(truth[present]) * order[apart][present]
            best = max(best, float((right.mean() + 1) / 2))
    return best, float(apart.mean())
