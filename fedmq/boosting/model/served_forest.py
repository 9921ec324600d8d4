"""A model as its label holder serves it: all trees side by side, and what the records stand for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.forest import Forest
from fedmq.boosting.model.record_chains import NONE, Chains
from fedmq.boosting.model.share import ActiveShare
from fedmq.boosting.model.tree import LABEL_HOLDER, LEAF
from fedmq.boosting.objectives.registry import objective_of
from fedmq.errors import DataError

__all__ = ["ServedForest"]


@dataclass(frozen=True, eq=False)
class ServedForest:
    """``node_of[owner]`` int32 (records,): the node of each record, NONE where no tree uses it.

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
    def asked(self) -> dict[int, str]:
        """The other parties whose records the trees use, by index of the owner."""
        owners = np.unique(self.forest.owner[self.forest.owner > LABEL_HOLDER]).tolist()
        return {owner: self.share.parties[owner] for owner in owners}

    @cached_property
    def rounds(self) -> int:
        """The largest number of times that a way from a root to a leaf enters another party."""
        entered = np.zeros(len(self.forest.owner), np.int32)
        entered[self.forest.roots] = self.forest.owner[self.forest.roots] > LABEL_HOLDER
        for node in np.flatnonzero(self.forest.owner != LEAF).tolist():  # parents come first
            for child in (self.forest.left[node], self.forest.right[node]):
                owner = self.forest.owner[child]
                enters = owner > LABEL_HOLDER and owner != self.forest.owner[node]
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
        """Which rows go left at every split, on their way or not: bool (rows, nodes).

        ``values`` (rows, features) are the label holder's own; ``bitmaps`` bool (rows, records) by
        index of each other owner that is asked.
        """
        left = np.zeros((len(values), len(self.forest.owner)), np.bool_)
        rows = np.arange(len(values))
        for owner in (LABEL_HOLDER, *self.asked):
            nodes = np.flatnonzero(self.forest.owner == owner)
            records = self.forest.record[nodes]
            if owner == LABEL_HOLDER:
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
        objective = objective_of(self.share.params)
        if base_margin is not None:
            margins = self.forest.added(leaves, base_margin)
        else:
            base = objective.first_margin(self.share.base_score)
            margins = self.forest.margins(leaves, base)
        return margins, objective.predictions(margins)
