"""In which node of which tree does each record of an owner stand?

The owner learns it while the tree grows, and needs nobody's word for it: a person's way through a
tree meets one node a level, so who asks about one person at two records of a tree that lie on no
common way asks for more than a score.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.record_chains import NONE, Chains
from fedmq.boosting.node_numbers import ROOT

__all__ = ["RecordPlaces", "is_below"]


@dataclass(frozen=True, slots=True, eq=False)
class RecordPlaces:
    """By record: its ``tree`` (int32) and the number of its ``node`` there (int64).

    Trees are numbered from 0 without gaps, by the order of those that hold a record.
    """

    tree: NDArray[np.int32]
    node: NDArray[np.int64]
    trees: int

    @classmethod
    def of(cls, places: Sequence[tuple[int, int]]) -> Self:
        """The places of records, as (tree, node) each."""
        table = np.asarray(places, np.int64).reshape(-1, 2)
        numbers, tree = np.unique(table[:, 0], return_inverse=True)
        return cls(tree.astype(np.int32), np.ascontiguousarray(table[:, 1]), len(numbers))

    def fit(self, chains: Chains) -> bool:
        """Whether what follows in ``chains`` is the child on that side, or nothing."""
        for following, side in ((chains.left, 0), (chains.right, 1)):
            above = np.flatnonzero(following != NONE)
            below = following[above]
            same_tree = self.tree[above] == self.tree[below]
            if not (same_tree & (self.node[below] == 2 * self.node[above] + side)).all():
                return False
        return True

    def longest_ways(self) -> int:
        """The most records that one person's ways through all trees can meet."""
        best: dict[int, int] = {}
        met: dict[tuple[int, int], int] = {}
        for tree, node in sorted(zip(self.tree.tolist(), self.node.tolist(), strict=True)):
            above = node >> 1
            while above >= ROOT and (tree, above) not in met:
                above >>= 1
            met[tree, node] = 1 + met.get((tree, above), 0)
            best[tree] = max(best.get(tree, 0), met[tree, node])
        return sum(best.values())


def is_below(node: NDArray[np.int64], top: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each ``node`` is its ``top``, or stands somewhere below it."""
    levels = np.frexp(node.astype(np.float64))[1] - np.frexp(top.astype(np.float64))[1]
    below: NDArray[np.bool_] = (levels >= 0) & (node >> np.maximum(levels, 0) == top)
    return below
