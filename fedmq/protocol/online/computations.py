"""The arithmetic that a batch of online scores orders. It takes microseconds to milliseconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.served_forest import ServedForest
from fedmq.boosting.model.tree import LABEL_HOLDER, LEAF

__all__ = ["Descend", "Descended", "OnlineScores", "SumOnline"]


@dataclass(frozen=True, slots=True, eq=False)
class OnlineScores:
    """What the rows of a request came to: float32 (rows,) each, or (rows, classes).

    ``unknown`` bool (rows,) by party: rows that the party does not hold, whose values there counted
    as missing. ``degraded`` by party: the share of (row, tree) pairs whose direction at that party
    was guessed because it did not answer; absent where all is exact. ``bitmaps`` bool (rows,
    records) by index of each owner: all directions, where the request is to be explained and
    nothing was guessed. ``waited``: by party, the seconds from questions to their answers.
    """

    margins: NDArray[np.float32]
    predictions: NDArray[np.float32]
    unknown: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    degraded: Mapping[str, float] = field(default_factory=dict)
    bitmaps: Mapping[int, NDArray[np.bool_]] | None = None
    waited: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Descended:
    """Where ``pairs`` came to stand: at leaves, or at nodes of owners who must be asked.

    ``guessed``: by owner, the pairs that went the likely way there.
    """

    pairs: NDArray[np.int64]
    nodes: NDArray[np.int32]
    guessed: Mapping[int, NDArray[np.int64]]


@dataclass(frozen=True, slots=True, eq=False)
class Descend:
    """Walk pairs (row * trees + tree) down from ``nodes``, as far as directions are at hand.

    ``bitmaps`` bool (rows, records) by owner: directions that were given beforehand. Owners in
    ``guessed`` are away: there a pair goes where most of the training weight went.
    """

    label: ClassVar[str] = "Descend"
    served: ServedForest
    values: NDArray[np.float32]
    bitmaps: Mapping[int, NDArray[np.bool_]]
    guessed: frozenset[int]
    pairs: NDArray[np.int64]
    nodes: NDArray[np.int32]

    def run(self) -> Descended:
        forest = self.served.forest
        nodes = self.nodes.copy()
        guesses: dict[int, list[NDArray[np.int64]]] = {}
        walking = np.arange(len(nodes))
        while len(walking):
            here = nodes[walking]
            owners = forest.owner[here]
            moved = []
            for owner in (LABEL_HOLDER, *self.bitmaps, *self.guessed):
                places = walking[owners == owner]
                if not len(places):
                    continue
                moved.append(places)
                nodes[places] = forest.below(
                    nodes[places], self._left(owner, places, nodes[places])
                )
                if owner in self.guessed:
                    guesses.setdefault(owner, []).append(self.pairs[places])
            walking = np.concatenate(moved) if moved else walking[:0]
        return Descended(
            self.pairs, nodes, {owner: np.concatenate(pairs) for owner, pairs in guesses.items()}
        )

    def _left(
        self, owner: int, places: NDArray[np.int64], nodes: NDArray[np.int32]
    ) -> NDArray[np.bool_]:
        if owner in self.guessed:
            return self.served.likely_left[nodes]
        rows = self.pairs[places] // self.served.trees
        records = self.served.forest.record[nodes]
        if owner == LABEL_HOLDER:
            return self.served.share.lookup_table.directions(self.values, rows, records)
        return self.bitmaps[owner][rows, records]


@dataclass(frozen=True, slots=True, eq=False)
class SumOnline:
    """Margins and predictions of the rows whose ``leaves`` (rows, trees) these are.

    ``base_margin`` as in :class:`AskedRows`.
    """

    label: ClassVar[str] = "SumOnline"
    served: ServedForest
    leaves: NDArray[np.int32]
    base_margin: NDArray[np.float32] | None = None

    def run(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        assert (self.served.forest.owner[self.leaves] == LEAF).all()
        return self.served.scores(self.leaves, self.base_margin)
