"""How does the active party put rows in the order of a column that it does not hold?

Every split that a passive party wins shows the rows that go left. Splits that never contradict each
other may be of one feature; together they sort the rows by it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Partition",
    "best_concordance",
    "guessed_columns",
    "inferred_orders",
    "order_of_people",
    "order_of_ranks",
    "pairs_judged",
]


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


def guessed_columns(left: NDArray[np.bool_]) -> NDArray[np.int64]:
    """A column's number for each record, from ``left`` bool (rows, records): int64 (records,).

    A record joins the first column with whose records it is nested, all of them.
    """
    sides = left.astype(np.float32)
    only_one = sides.T @ (1 - sides)  # rows that are left of one record and right of the other
    nested = (only_one == 0) | (only_one.T == 0)
    columns: list[list[int]] = []
    for record in range(left.shape[1]):
        for column in columns:
            if nested[record, column].all():
                column.append(record)
                break
        else:
            columns.append([record])
    guessed = np.empty(left.shape[1], np.int64)
    for number, column in enumerate(columns):
        guessed[column] = number
    return guessed


def pairs_judged(guessed: NDArray[np.integer], truth: NDArray[np.integer]) -> tuple[float, float]:
    """Of all pairs of records: for how many it is right whether they share a column; guessing."""
    one, other = np.triu_indices(len(truth), k=1)
    same = truth[one] == truth[other]
    if not len(same):
        return 1.0, 1.0
    right = (guessed[one] == guessed[other]) == same
    return float(right.mean()), float(max(same.mean(), 1 - same.mean()))


def order_of_people(
    left: NDArray[np.bool_],
    columns: NDArray[np.integer],
    values: NDArray[np.float32],
    sample: int = 1000,
    seed: int = 0,
) -> float:
    """How much of the order of ``values`` (rows,) the best of ``columns`` (records,) tells.

    People stand in a column by how many of its thresholds they are right of. Of the pairs of a
    sample of them that differ: the share in the right order, less the share in the wrong one.
    """
    known = np.flatnonzero(~np.isnan(values))
    rows = np.random.default_rng(seed).permutation(known)[:sample]
    one, other = np.triu_indices(len(rows), k=1)
    truth = np.sign(values[rows[one]] - values[rows[other]])
    if not truth.any():
        return 0.0
    best = 0.0
    for column in np.unique(columns).tolist():
        right_of = (~left[np.ix_(rows, columns == column)]).sum(axis=1)
        told = np.sign(right_of[one] - right_of[other])
        best = max(best, float((told * truth).sum() / np.abs(truth).sum()))
    return best


def order_of_ranks(
    orders: Sequence[NDArray[np.float64]],
    values: NDArray[np.float32],
    sample: int = 1000,
    seed: int = 0,
) -> float:
    """How much of the order of ``values`` (rows,) the best of ``orders`` tells, either way round.

    Of the pairs of a sample of people that differ: the share in the right order, less the share in
    the wrong one. An order is ranks (rows,), NaN where nothing is known.
    """
    known = np.flatnonzero(~np.isnan(values))
    rows = np.random.default_rng(seed).permutation(known)[:sample]
    one, other = np.triu_indices(len(rows), k=1)
    truth = np.sign(values[rows[one]] - values[rows[other]])
    if not truth.any():
        return 0.0
    best = 0.0
    for ranks in orders:
        told = np.nan_to_num(np.sign(ranks[rows[one]] - ranks[rows[other]]))
        best = max(best, abs(float((told * truth).sum())) / float(np.abs(truth).sum()))
    return best
