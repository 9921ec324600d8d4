"""Which features to sum together, so that an encrypted histogram costs fewer products.

Summing n rows into the bins of one feature takes about n products. Two features summed into their
*joint* cells take n products together; the bins of each are then sums of those cells, of which
there are few: n + U products instead of 2n, where U counts the joint cells that hold a row. Joining
two groups of features into one thus saves n - U products, whatever the groups are made of. Groups
are joined greedily, the smallest U first. U is counted on the bins, which costs next to nothing
beside the products. Ten credit-card features of 30,000 rows, mostly of few values, take 4.7 times
fewer products that way; ten independent ones of 33 bins each, 1.9 times.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["FeatureCells", "JointCells", "plan_cells"]

# Products that a joint must save to be worth its bookkeeping.
_LEAST_SAVING = 64

# Joint cells are counted in a table of flags, at most so many times longer than the rows.
_SPARSEST = 16


@dataclass(frozen=True, eq=False)
class FeatureCells:
    """The occupied bins of one feature.

    ``cell_of`` (rows,) int64 is each row's cell, ``codes`` (cells,) the bin of each cell.
    """

    feature: int
    cell_of: NDArray[np.int64]
    codes: NDArray[np.int64]

    @property
    def size(self) -> int:
        """Number of cells."""
        return len(self.codes)

    def products(self, count: int) -> int:
        """Products that it takes to sum ``count`` numbers into these cells."""
        return count


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

    @property
    def size(self) -> int:
        """Number of cells."""
        return len(self.first_of)

    def products(self, count: int) -> int:
        """Products that it takes to sum ``count`` numbers into these cells and their parts'."""
        return count + self.first.products(self.size) + self.second.products(self.size)


def plan_cells(bins: NDArray[np.integer], *, joint: bool = True) -> list[FeatureCells | JointCells]:
    """Groups of features to sum jointly, covering each column of ``bins`` (rows, features) once.

    Every group is one feature unless ``joint``.
    """
    rows = len(bins)
    groups: dict[int, FeatureCells | JointCells] = {
        feature: _feature_cells(feature, bins[:, feature]) for feature in range(bins.shape[1])
    }
    if not joint or rows <= _LEAST_SAVING:
        return list(groups.values())
    names = list(groups)
    sizes = {
        (a, b): _joint_size(groups[a], groups[b]) for i, b in enumerate(names) for a in names[:i]
    }
    joined = len(names)
    while sizes:
        a, b = min(sizes, key=sizes.__getitem__)
        if rows - sizes[a, b] < _LEAST_SAVING:
            break
        union = _join(groups.pop(a), groups.pop(b))
        sizes = {pair: size for pair, size in sizes.items() if not {a, b} & set(pair)}
        sizes |= {(name, joined): _joint_size(group, union) for name, group in groups.items()}
        groups[joined] = union
        joined += 1
    return list(groups.values())


def _feature_cells(feature: int, codes: NDArray[np.integer]) -> FeatureCells:
    present, cell_of = np.unique(codes, return_inverse=True)
    return FeatureCells(feature, cell_of.astype(np.int64), present.astype(np.int64))


def _occupied(
    first: FeatureCells | JointCells, second: FeatureCells | JointCells
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Each row's place in the table of all pairs of cells, and which places hold a row."""
    place = first.cell_of * second.size + second.cell_of
    flags = np.zeros(first.size * second.size, dtype=np.bool_)
    flags[place] = True
    return place, flags


def _joint_size(first: FeatureCells | JointCells, second: FeatureCells | JointCells) -> int:
    """Occupied joint cells; all rows if the table of pairs is too sparse to promise a saving."""
    rows = len(first.cell_of)
    if first.size * second.size > _SPARSEST * rows:
        return rows
    return int(np.count_nonzero(_occupied(first, second)[1]))


def _join(first: FeatureCells | JointCells, second: FeatureCells | JointCells) -> JointCells:
    place, flags = _occupied(first, second)
    places = np.flatnonzero(flags)
    rank = np.cumsum(flags) - 1
    return JointCells(rank[place], first, second, places // second.size, places % second.size)
