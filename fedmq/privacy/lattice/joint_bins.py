"""Which features are counted at once, and where does each row stand then?

Several features are where their cells together are few, and are told apart by the margins of the
small table. Where a row stands is found once for all queries.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix, Cuts

__all__ = ["JointBins"]

_MOST_CELLS = 4096  # of several features together: a table that stays in the fastest cache


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """Features that are counted at once, and in which of their joint cells rows stand: (rows,).

    Codes are as short as they can be: of a wide table there are many.
    """

    features: Sequence[int]
    codes: NDArray[np.unsignedinteger]


@dataclass(frozen=True, slots=True, eq=False)
class JointBins:
    """The bins of some features, ready to be summed in; ``cuts`` are those of all features."""

    cuts: Cuts
    groups: Sequence[_Group]

    @classmethod
    def of(cls, bins: BinMatrix, features: NDArray[np.integer]) -> JointBins:
        """Those of ``features``, in ascending order."""
        groups = []
        for joint in _joint_features(bins.cuts, features):
            length = math.prod(_cells(bins.cuts, feature) for feature in joint)
            codes = np.zeros(len(bins.codes), np.min_scalar_type(length))
            for feature in joint:
                codes *= codes.dtype.type(_cells(bins.cuts, feature))
                codes += bins.codes[:, feature].astype(codes.dtype)
            groups.append(_Group(joint, codes))
        return cls(bins.cuts, groups)

    def sums(self, weights: NDArray[np.float64], first: int = 0) -> NDArray[np.int64]:
        """Sums of whole ``weights`` (limbs, rows) per cell: (limbs, cells), 0 elsewhere.

        They are those of the rows from ``first`` on.
        """
        sums = np.zeros((len(weights), self.cuts.n_cells), np.int64)
        for group in self.groups:
            shape = [_cells(self.cuts, feature) for feature in group.features]
            length = math.prod(shape)
            codes = group.codes[first : first + weights.shape[1]].astype(np.intp)
            tables = np.stack([np.bincount(codes, limb, length) for limb in weights])
            tables = tables.reshape(-1, *shape)
            for axis, (feature, cells) in enumerate(zip(group.features, shape, strict=True), 1):
                others = tuple(other for other in range(1, tables.ndim) if other != axis)
                place = int(self.cuts.first_cell[feature])
                sums[:, place : place + cells] = tables.sum(axis=others)
        return sums


def _cells(cuts: Cuts, feature: int) -> int:
    return int(cuts.n_bins[feature]) + 1


def _joint_features(cuts: Cuts, features: NDArray[np.integer]) -> Iterator[list[int]]:
    joint: list[int] = []
    together = 1
    for feature in features.tolist():
        cells = _cells(cuts, feature)
        if joint and together * cells > _MOST_CELLS:
            yield joint
            joint, together = [], 1
        joint.append(feature)
        together *= cells
    if joint:
        yield joint
