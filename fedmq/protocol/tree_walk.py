"""How do rows walk down trees whose nodes belong to several owners?

A pair (row, tree) walks on until it meets a record of another owner, and asks that owner for its
direction. All pairs that wait for one owner make a hop.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.tree import LABEL_HOLDER, Forest, LookupTable
from fedmq.messages.array import Array
from fedmq.messages.inference import InferenceHop

__all__ = ["AnswerHop", "AnswerRows", "Hop", "WalkOn", "Walked"]

_PAIRS_PER_HOP = 80_000  # below 1 MiB, even if each pair has a record of its own


@dataclass(frozen=True, slots=True, eq=False)
class Hop:
    """Open pairs of one owner, grouped by record: the content of an inference hop.

    ``pairs`` int64: row * trees + tree of each pair, in the order of ``rows``.
    """

    owner: int
    records: NDArray[np.uint32]
    counts: NDArray[np.uint32]
    rows: NDArray[np.uint32]
    pairs: NDArray[np.int64]

    def body(self, number: int) -> InferenceHop:
        """The question, under its number in the session."""
        return InferenceHop(
            hop=number,
            records=Array.of(self.records),
            counts=Array.of(self.counts),
            rows=Array.of(self.rows),
        )


@dataclass(frozen=True, slots=True, eq=False)
class Walked:
    """The end of a walk: each pair stands at a leaf, or at another owner's node, in ``hops``."""

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
    """Another owner's directions at ``nodes``; None at the start."""

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
class AnswerHop:
    """A passive party's directions for a hop: bool, in the order of its rows."""

    label: ClassVar[str] = "AnswerHop"
    table: LookupTable
    values: NDArray[np.float32]
    records: NDArray[np.uint32]
    counts: NDArray[np.uint32]
    rows: NDArray[np.int64]

    def run(self) -> NDArray[np.bool_]:
        records = np.repeat(self.records.astype(np.int64), self.counts)
        return self.table.directions(self.values, self.rows, records)


@dataclass(frozen=True, slots=True, eq=False)
class AnswerRows:
    """A passive party's directions of ``rows`` at its first ``records``: bool, row by row."""

    label: ClassVar[str] = "AnswerRows"
    table: LookupTable
    values: NDArray[np.float32]
    records: int
    rows: NDArray[np.int64]

    def run(self) -> NDArray[np.bool_]:
        left = np.empty((len(self.rows), self.records), np.bool_)
        for record in range(self.records):
            at = np.full(len(self.rows), record)
            left[:, record] = self.table.directions(self.values, self.rows, at)
        return left.ravel()
