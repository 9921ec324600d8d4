"""The arithmetic that inference machines order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.forest import Forest
from fedmq.boosting.model.lookup_table import LookupTable
from fedmq.boosting.model.tree import LABEL_HOLDER
from fedmq.boosting.objectives.registry import objective_of
from fedmq.boosting.params import TrainParams

__all__ = ["AnswerHop", "Hop", "Scores", "SumLeaves", "WalkOn", "Walked"]

_PAIRS_PER_HOP = 80_000  # below 1 MiB, even if each pair has a record of its own


@dataclass(frozen=True, slots=True, eq=False)
class Hop:
    """Open pairs of one owner, grouped by record: the content of an inference hop.

    ``pairs`` int64: which (row, tree) they are, as row * trees + tree, in the order of ``rows``.
    """

    owner: int
    records: NDArray[np.uint32]
    counts: NDArray[np.uint32]
    rows: NDArray[np.uint32]
    pairs: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Walked:
    """Where pairs came to stand: at leaves, or at nodes of other owners, in ``hops``."""

    pairs: NDArray[np.int64]
    nodes: NDArray[np.int32]
    hops: tuple[Hop, ...]


@dataclass(frozen=True, slots=True, eq=False)
class WalkOn:
    """Walk pairs down the active party's own nodes, until they must wait or have arrived."""

    label: ClassVar[str] = "WalkOn"
    forest: Forest
    table: LookupTable
    values: NDArray[np.float32]
    pairs: NDArray[np.int64]
    nodes: NDArray[np.int32]
    left: NDArray[np.bool_] | None
    """Directions at ``nodes``, which another owner gave; None at the start."""

    def run(self) -> Walked:
        trees = len(self.forest.roots)
        nodes = self.nodes if self.left is None else self.forest.below(self.nodes, self.left)
        nodes = nodes.copy()
        walking = np.flatnonzero(self.forest.owner[nodes] == LABEL_HOLDER)
        while len(walking):
            here = nodes[walking]
            rows = self.pairs[walking] // trees
            left = self.table.directions(self.values, rows, self.forest.record[here])
            nodes[walking] = self.forest.below(here, left)
            walking = walking[self.forest.owner[nodes[walking]] == LABEL_HOLDER]
        return Walked(self.pairs, nodes, tuple(self._hops(nodes)))

    def _hops(self, nodes: NDArray[np.int32]) -> list[Hop]:
        owners = self.forest.owner[nodes]
        hops = []
        for owner in np.unique(owners[owners > LABEL_HOLDER]).tolist():
            waiting = np.flatnonzero(owners == owner)
            records = self.forest.record[nodes[waiting]]
            waiting = waiting[np.argsort(records, kind="stable")]
            for start in range(0, len(waiting), _PAIRS_PER_HOP):
                part = waiting[start : start + _PAIRS_PER_HOP]
                records, counts = np.unique(self.forest.record[nodes[part]], return_counts=True)
                pairs = self.pairs[part]
                hops.append(
                    Hop(
                        owner,
                        records.astype(np.uint32),
                        counts.astype(np.uint32),
                        (pairs // len(self.forest.roots)).astype(np.uint32),
                        pairs,
                    )
                )
        return hops


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """What the rows of a batch came to: float32 (rows,) each, NaN for a row without a score.

    Of several classes, margins and probabilities are (rows, classes).

    ``unknown`` by party: which rows' ids it does not know, bool (rows,).
    """

    margins: NDArray[np.float32]
    predictions: NDArray[np.float32]
    unknown: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class SumLeaves:
    """Margins and predictions from the leaves (rows, trees) that all pairs arrived at.

    ``unknown`` is the one of :class:`Scores`; such rows get no score.
    """

    label: ClassVar[str] = "SumLeaves"
    forest: Forest
    leaves: NDArray[np.int32]
    params: TrainParams
    unknown: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)

    def run(self) -> Scores:
        objective = objective_of(self.params)
        assert self.params.base_score is not None  # of a finished model
        base = objective.first_margin(self.params.base_score)
        margins = self.forest.margins(self.leaves, base)
        predictions = objective.predictions(margins)
        for rows in self.unknown.values():
            margins[rows] = predictions[rows] = np.nan
        return Scores(margins, predictions, self.unknown)


@dataclass(frozen=True, slots=True, eq=False)
class AnswerHop:
    """A feature holder's directions for a hop: bool, in the order of its rows."""

    label: ClassVar[str] = "AnswerHop"
    table: LookupTable
    values: NDArray[np.float32]
    records: NDArray[np.uint32]
    counts: NDArray[np.uint32]
    rows: NDArray[np.int64]

    def run(self) -> NDArray[np.bool_]:
        records = np.repeat(self.records.astype(np.int64), self.counts)
        return self.table.directions(self.values, self.rows, records)
