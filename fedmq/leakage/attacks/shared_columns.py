"""The label holder puts splits of one column side by side, and people in the order of the column.

In mode ``bitmap`` it sees who goes left at every split of an owner. Which splits share a column the
owner shows where its policy says ``explain = "column"``. Otherwise it is guessed: of two thresholds
of one column, whoever is left of the smaller is left of the larger, missing values aside.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["guessed_columns", "order_of_people", "pairs_judged"]


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
