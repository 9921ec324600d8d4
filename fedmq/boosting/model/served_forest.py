"""A served model: the active party walks all trees, owners answer for their records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmq.boosting.model.share import ActiveShare
from fedmq.boosting.model.tree import ACTIVE_PARTY, LEAF, Forest, LookupTable
from fedmq.boosting.objectives.objective import FirstMargin, Objective
from fedmq.boosting.objectives.registry import objective_of
from fedmq.boosting.splits import ROOT
from fedmq.errors import DataError

__all__ = ["NONE", "Chains", "RecordPlaces", "ServedForest", "is_below"]

NONE = -1
"""No record of the same owner follows."""


@dataclass(frozen=True, slots=True, eq=False)
class Chains:
    """By record id, the owner's record that follows on the left and on the right; int32 each.

    With chains an owner answers at once for all of its consecutive records on a row's path.
    Questions then number the changes of party, not the records. The shape tells the owner nothing
    new: during training it learnt the node of each of its splits.
    """

    left: NDArray[np.int32]
    right: NDArray[np.int32]

    @classmethod
    def of(cls, left: ArrayLike, right: ArrayLike) -> Self:
        """The chains with these successors.

        Raises:
            ValueError: a record does not exist, or stands before the one that leads to it.
        """
        chains = cls(np.asarray(left, np.int32), np.asarray(right, np.int32))
        for following in (chains.left, chains.right):
            if following.shape != chains.left.shape or (following >= len(following)).any():
                raise ValueError("a chain leads to a record that does not exist")
        return chains

    def __len__(self) -> int:
        return len(self.left)

    def exits(
        self,
        table: LookupTable,
        values: NDArray[np.float32],
        rows: NDArray[np.integer],
        records: NDArray[np.integer],
    ) -> NDArray[np.uint32]:
        """Where ``values[rows[i]]``, which stands at ``records[i]``, leaves the owner's records.

        Twice the last record, plus 1 if the row goes left there; uint32, as long as ``rows``.
        """
        at = records.astype(np.int64)
        left = table.directions(values, rows, at)
        walking = np.arange(len(at))
        # No path is longer than the number of records, even in malformed chains.
        for _ in range(len(self)):
            here = at[walking]
            following = np.where(left[walking], self.left[here], self.right[here])
            goes_on = following != NONE
            if not goes_on.any():
                break
            walking = walking[goes_on]
            at[walking] = following[goes_on]
            left[walking] = table.directions(values, rows[walking], at[walking])
        exits: NDArray[np.uint32] = (2 * at + left).astype(np.uint32)
        return exits


@dataclass(frozen=True, slots=True, eq=False)
class RecordPlaces:
    """By record: its ``tree`` (int32) and the number of its ``node`` there (int64).

    The owner learns the places itself while the tree grows. A person's path through a tree meets
    one node a level. A question about one person at two records of a tree that lie on no common
    path asks for more than a score.

    Trees that hold a record are numbered from 0 without gaps, in their order.
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
        """Whether each successor in ``chains`` is the child on that side, or absent."""
        for following, side in ((chains.left, 0), (chains.right, 1)):
            above = np.flatnonzero(following != NONE)
            below = following[above]
            same_tree = self.tree[above] == self.tree[below]
            if not (same_tree & (self.node[below] == 2 * self.node[above] + side)).all():
                return False
        return True

    def longest_ways(self) -> int:
        """The most records that one person's paths through all trees can meet."""
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


@dataclass(frozen=True, eq=False)
class ServedForest:
    """All trees of a model side by side, and the nodes of their records.

    ``node_of[owner]`` int32 (records,): the node of each record, NONE where no tree uses it.

    ``likely_left`` bool (nodes,): whether most of the training weight (XGBoost's cover) went left.
    """

    share: ActiveShare
    forest: Forest
    node_of: tuple[NDArray[np.int32], ...]
    likely_left: NDArray[np.bool_]

    @classmethod
    def of(cls, share: ActiveShare) -> Self:
        """The trees that predictions of ``share`` use.

        Raises:
            DataError: two nodes share a record, as no training of fedmq makes them.
        """
        forest = Forest.of(share.used_trees, share.params)
        node_of = []
        for owner, party in enumerate(share.parties):
            nodes = np.flatnonzero(forest.owner == owner)
            records = forest.record[nodes]
            if len(np.unique(records)) < len(records):
                raise DataError(f"model {share.model_id}: two nodes share a record of {party}")
            places = np.full(int(records.max()) + 1 if len(records) else 0, NONE, np.int32)
            places[records] = nodes
            node_of.append(places)
        cover = np.concatenate([np.empty(0, np.float32), *(t.cover for t in share.used_trees)])
        likely_left = cover[forest.left] >= cover[forest.right]
        return cls(share, forest, tuple(node_of), likely_left)

    @property
    def trees(self) -> int:
        """Number of trees."""
        return len(self.forest.roots)

    @cached_property
    def objective(self) -> Objective:
        """The objective of the model's parameters."""
        return objective_of(self.share.params)

    @cached_property
    def first_margin(self) -> FirstMargin:
        """The margin, or those of all classes, that every row starts from."""
        return self.objective.first_margin(self.share.base_score)

    @cached_property
    def asked(self) -> dict[int, str]:
        """The other parties whose records the trees use, by index of the owner."""
        owners = np.unique(self.forest.owner[self.forest.owner > ACTIVE_PARTY]).tolist()
        return {owner: self.share.parties[owner] for owner in owners}

    @cached_property
    def rounds(self) -> int:
        """The most times that a path from a root to a leaf enters another party."""
        entered = np.zeros(len(self.forest.owner), np.int32)
        entered[self.forest.roots] = self.forest.owner[self.forest.roots] > ACTIVE_PARTY
        for node in np.flatnonzero(self.forest.owner != LEAF).tolist():  # parents come first
            for child in (self.forest.left[node], self.forest.right[node]):
                owner = self.forest.owner[child]
                enters = owner > ACTIVE_PARTY and owner != self.forest.owner[node]
                entered[child] = entered[node] + enters
        return int(entered.max(initial=0))

    def chains(self, owner: int) -> Chains:
        """How the records of ``owner`` follow one another."""
        nodes = self.node_of[owner]
        used = nodes != NONE

        def following(children: NDArray[np.int32]) -> NDArray[np.int32]:
            child = children[nodes[used]]
            records = np.full(len(nodes), NONE, np.int32)
            same = self.forest.owner[child] == owner
            records[used] = np.where(same, self.forest.record[child], NONE)
            return records

        return Chains(following(self.forest.left), following(self.forest.right))

    def below_exits(self, owner: int, exits: NDArray[np.uint32]) -> NDArray[np.int32]:
        """The nodes that :meth:`Chains.exits` of ``owner`` lead to.

        Raises:
            DataError: an exit at a record that no tree uses.
        """
        records = (exits >> 1).astype(np.int64)
        places = self.node_of[owner]
        if len(records) and (int(records.max()) >= len(places) or (places[records] == NONE).any()):
            raise DataError(f"{self.share.parties[owner]} names a record that no tree uses")
        return self.forest.below(places[records], (exits & 1).astype(np.bool_))

    def directions(
        self, values: NDArray[np.float32], bitmaps: Mapping[int, NDArray[np.bool_]]
    ) -> NDArray[np.bool_]:
        """Which rows go left at every split, on their path or not: bool (rows, nodes).

        ``values`` (rows, features) are the active party's own; ``bitmaps`` bool (rows, records) by
        index of each other owner that is asked.
        """
        left = np.zeros((len(values), len(self.forest.owner)), np.bool_)
        rows = np.arange(len(values))
        for owner in (ACTIVE_PARTY, *self.asked):
            nodes = np.flatnonzero(self.forest.owner == owner)
            records = self.forest.record[nodes]
            if owner == ACTIVE_PARTY:
                left[:, nodes] = self.share.lookup_table.directions(
                    values, np.repeat(rows, len(nodes)), np.tile(records, len(rows))
                ).reshape(len(rows), len(nodes))
            else:
                left[:, nodes] = bitmaps[owner][:, records]
        return left

    def leaves(self, left: NDArray[np.bool_]) -> NDArray[np.int32]:
        """Where rows with these directions (rows, nodes) end: int32 (rows, trees)."""
        nodes = np.tile(self.forest.roots, (len(left), 1))
        rows = np.arange(len(left))[:, None]
        while len(walking := np.flatnonzero((self.forest.owner[nodes] != LEAF).any(axis=0))):
            here = nodes[:, walking]
            below = self.forest.below(here, left[rows, here])
            nodes[:, walking] = np.where(self.forest.is_leaf(here), here, below)
        return nodes

    def scores(
        self, leaves: NDArray[np.int32], base_margin: NDArray[np.float32] | None = None
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Leaves (rows, trees) to margins and predictions: float32 (rows,), or (rows, classes).

        ``base_margin``, of their shape, is where rows start instead of at the base score.
        """
        if base_margin is not None:
            margins = self.forest.added(leaves, base_margin)
        else:
            margins = self.forest.margins(leaves, self.first_margin)
        return margins, self.objective.predictions(margins)
