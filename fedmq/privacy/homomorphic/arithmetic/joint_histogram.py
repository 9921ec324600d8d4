"""Which features to sum together, so that an encrypted histogram costs fewer products.

Summing n rows into the bins of one feature takes about n products. Two features summed into their
*joint* cells take n products together; the bins of each are then sums of those cells, of which
there are few: n + U products instead of 2n, where U counts the joint cells that hold a row. Groups
of features are joined greedily, the greatest saving first.

The *fullest* cell of a group needs no product of its rows: it is the total less all others, for one
inverse. So a column that is mostly zero, or mostly missing, costs its other rows alone. One group
is summed in full, for the total.

Cells are counted on the bins, which costs next to nothing beside the products.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Cells", "FeatureCells", "JointCells", "Tricks", "plan_cells", "saved_by_skipping"]

# Products that a joint must save to be worth its bookkeeping.
_LEAST_SAVING = 64

# A modular inverse takes the time of so many products, by measurement at 2048 and 4096 bits.
_INVERSE = 32

# Joint cells are counted in a table of cells, at most so many times longer than the rows.
_SPARSEST = 16


@dataclass(frozen=True, slots=True)
class Tricks:
    """What may be done to save products; the sums are the same."""

    joint: bool = True
    skip_fullest: bool = True


@dataclass(frozen=True, eq=False)
class FeatureCells:
    """The occupied bins of one feature.

    ``cell_of`` (rows,) int64 is each row's cell, ``codes`` (cells,) the bin of each cell, and
    ``fullest`` the most rows that are in one.
    """

    feature: int
    cell_of: NDArray[np.int64]
    codes: NDArray[np.int64]
    fullest: int

    @property
    def size(self) -> int:
        """Number of cells."""
        return len(self.codes)

    @property
    def spread(self) -> int:
        """Products that it takes to get from the sums of cells to those of bins."""
        return 0


@dataclass(frozen=True, eq=False)
class JointCells:
    """The occupied pairs of cells of two groups.

    ``cell_of`` (rows,) int64 is each row's cell; ``first_of`` and ``second_of`` (cells,) are the
    cells of ``first`` and ``second`` that each cell belongs to.
    """

    cell_of: NDArray[np.int64]
    first: FeatureCells | JointCells
    second: FeatureCells | JointCells
    first_of: NDArray[np.int64]
    second_of: NDArray[np.int64]
    fullest: int

    @property
    def size(self) -> int:
        """Number of cells."""
        return len(self.first_of)

    @property
    def spread(self) -> int:
        """Products that it takes to get from the sums of cells to those of bins."""
        parts = (self.first, self.second)
        return sum(self.size - part.size + part.spread for part in parts)


Cells = FeatureCells | JointCells


def saved_by_skipping(group: Cells) -> int:
    """Products that are saved if the fullest cell is the total less the others; below 0 if none.

    The first factor of a cell is no product, but the product of all others is one for each.
    """
    return group.fullest - group.size - _INVERSE


def products(groups: Sequence[Cells], tricks: Tricks) -> int:
    """Products that it takes to sum all rows into the bins of all features of ``groups``."""
    taken = sum(len(group.cell_of) - group.size + group.spread for group in groups)
    skipping = groups if tricks.skip_fullest else ()
    saved = [max(0, saved_by_skipping(group)) for group in skipping]
    return taken - sum(saved) + min(saved, default=0)


def plan_cells(bins: NDArray[np.integer], tricks: Tricks) -> list[Cells]:
    """Groups of features to sum jointly, covering each column of ``bins`` (rows, features) once.

    Every group is one feature without ``tricks.joint``.
    """
    rows = len(bins)
    features: list[Cells] = [
        _feature_cells(feature, bins[:, feature]) for feature in range(bins.shape[1])
    ]
    if not tricks.joint or rows <= _LEAST_SAVING:
        return features
    return min(_joined(features), features, key=lambda groups: products(groups, tricks))


def _joined(features: Sequence[Cells]) -> list[Cells]:
    """Groups joined greedily, as if no fullest cell were skipped: that joins a little too much."""
    groups = dict(enumerate(features))
    savings = {(a, b): _saving(groups[a], groups[b]) for b in groups for a in range(b)}
    joined = len(groups)
    while savings:
        a, b = max(savings, key=savings.__getitem__)
        if savings[a, b] < _LEAST_SAVING:
            break
        union = _join(groups.pop(a), groups.pop(b))
        savings = {pair: saving for pair, saving in savings.items() if not {a, b} & set(pair)}
        savings |= {(name, joined): _saving(group, union) for name, group in groups.items()}
        groups[joined] = union
        joined += 1
    return list(groups.values())


def _feature_cells(feature: int, codes: NDArray[np.integer]) -> FeatureCells:
    return FeatureCells(feature, *_occupied(codes, np.bincount(codes)))


def _occupied(
    place: NDArray[np.integer], counts: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Each row's number among the occupied places, these places, and the most rows in one."""
    rank = np.cumsum(counts > 0) - 1
    return rank[place], np.flatnonzero(counts), int(counts.max(initial=0))


def _counts(first: Cells, second: Cells) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Each row's place in the table of all pairs of cells, and how many rows each place holds."""
    place = first.cell_of * second.size + second.cell_of
    return place, np.bincount(place, minlength=first.size * second.size)


def _saving(first: Cells, second: Cells) -> int:
    """Products saved by joining; none if the table of pairs is too sparse to promise any."""
    rows = len(first.cell_of)
    if first.size * second.size > _SPARSEST * rows:
        return 0
    return rows - int(np.count_nonzero(_counts(first, second)[1]))


def _join(first: Cells, second: Cells) -> JointCells:
    cell_of, places, fullest = _occupied(*_counts(first, second))
    of_first, of_second = np.divmod(places, second.size)
    return JointCells(cell_of, first, second, of_first, of_second, fullest)
