"""How do rows walk down trees whose nodes belong to several owners?

A pair (row, tree) walks on until it meets a record of another owner, and asks that owner for its
direction. All pairs that wait for one owner make a hop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model import machine_walk
from fedmq.boosting.model.served_forest import RecordPlaces, is_below
from fedmq.boosting.model.tree import ACTIVE_PARTY, Forest, LookupTable
from fedmq.boosting.splits import ROOT
from fedmq.computation import computation
from fedmq.errors import ProtocolError
from fedmq.messages.array import Array
from fedmq.messages.inference import InferenceHop

__all__ = ["IF_NO_OLD_SHARE", "Hop", "OneWay", "Walked", "answer_hop", "answer_rows", "walk_on"]

_PAIRS_PER_HOP = 80_000  # below 1 MiB, even if each pair has a record of its own

IF_NO_OLD_SHARE = (
    "; or the share of the model here is of another training, as if put back from a backup"
)
"""Ends what a party says of questions that do not fit its share: the culprit may be itself."""


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


@computation("WalkOn")
def walk_on(
    forest: Forest,
    table: LookupTable,
    values: NDArray[np.float32],
    pairs: NDArray[np.int64],
    nodes: NDArray[np.int32],
    left: NDArray[np.bool_] | None,
) -> Walked:
    """Walk pairs down the active party's own nodes, until they must wait or have arrived.

    ``left``: another owner's directions at ``nodes``; None at the start.
    """
    trees = len(forest.roots)
    if len(pairs) >= machine_walk.FEWEST_PAIRS and machine_walk.can_walk(forest, table, values):
        nodes = machine_walk.walk(forest, table, values, pairs, nodes, left)
        return Walked(pairs, nodes, tuple(_hops(nodes, forest, pairs)))
    nodes = nodes.copy() if left is None else forest.below(nodes, left).copy()
    walking = np.flatnonzero(forest.owner[nodes] == ACTIVE_PARTY)
    while len(walking):
        here = nodes[walking]
        rows = pairs[walking] // trees
        nodes[walking] = forest.below(here, table.directions(values, rows, forest.record[here]))
        walking = walking[forest.owner[nodes[walking]] == ACTIVE_PARTY]
    return Walked(pairs, nodes, tuple(_hops(nodes, forest, pairs)))


def _hops(nodes: NDArray[np.int32], forest: Forest, pairs: NDArray[np.int64]) -> list[Hop]:
    owners = forest.owner.take(nodes)
    hops = []
    for owner in range(ACTIVE_PARTY + 1, int(forest.owner.max(initial=ACTIVE_PARTY)) + 1):
        waiting = np.flatnonzero(owners == owner)
        records = forest.record.take(nodes.take(waiting))
        # Numbers of two bytes are sorted at once, longer ones by comparisons.
        narrow = records.astype(np.min_scalar_type(int(records.max(initial=0))))
        order = np.argsort(narrow, kind="stable")
        waiting, records = waiting.take(order), records.take(order)
        for start in range(0, len(waiting), _PAIRS_PER_HOP):
            asked = pairs.take(waiting[start : start + _PAIRS_PER_HOP])
            of_pairs = records[start : start + _PAIRS_PER_HOP]
            first = np.flatnonzero(np.append(True, of_pairs[1:] != of_pairs[:-1]))
            hops.append(
                Hop(
                    owner,
                    of_pairs[first].astype(np.uint32),
                    np.diff(first, append=len(of_pairs)).astype(np.uint32),
                    (asked // len(forest.roots)).astype(np.uint32),
                    asked,
                )
            )
    return hops


class OneWay:
    """Lets each of ``rows`` rows be asked about on one way through each tree.

    ``places``: tree and node of each record. A score takes no more: the directions at all records
    would tell on which side of every threshold a row stands.
    """

    def __init__(self, places: Sequence[tuple[int, int]], rows: int) -> None:
        self._places = RecordPlaces.of(places)
        deepest = 2 * int(self._places.node.max(initial=ROOT)) + 1
        shape = rows, self._places.trees
        self._standing = np.zeros(shape, np.min_scalar_type(deepest))  # 0: asked about nowhere

    def ask(self, rows: NDArray[np.int64], records: NDArray[np.int64]) -> None:
        """Note that ``rows`` are asked about at ``records``, each a pair, before the answer.

        Raises:
            ProtocolError: a row is asked about beside its way.
        """
        trees, nodes = self._places.tree.take(records), self._places.node.take(records)
        if len(rows) >= machine_walk.FEWEST_PAIRS and machine_walk.can_note(self._standing):
            beside_it = machine_walk.ask(self._standing, rows, trees, nodes)
            if beside_it >= 0:
                raise self._beside(int(rows[beside_it]))
            return
        ahead = np.flatnonzero(is_below(nodes, self._stand(rows, trees)))
        ahead = ahead[np.argsort(nodes[ahead])]  # of several nodes the deepest one stays
        self._standing[rows[ahead], trees[ahead]] = nodes[ahead]
        # A node above may be asked about again: ids may be listed twice.
        beside = ~is_below(self._stand(rows, trees), nodes)
        if beside.any():
            raise self._beside(int(rows[beside.argmax()]))

    @staticmethod
    def _beside(row: int) -> ProtocolError:
        return ProtocolError(
            f"row {row} is asked about beside its one way through a tree{IF_NO_OLD_SHARE}"
        )

    def answer(
        self, rows: NDArray[np.int64], records: NDArray[np.int64], left: NDArray[np.bool_]
    ) -> None:
        """Note the answer: where the rows go on."""
        trees = self._places.tree.take(records)
        below = 2 * self._places.node.take(records) + ~left
        if len(rows) >= machine_walk.FEWEST_PAIRS and machine_walk.can_note(self._standing):
            machine_walk.answer(self._standing, rows, trees, below)
            return
        further = is_below(below, self._stand(rows, trees))
        self._standing[rows[further], trees[further]] = below[further]

    def _stand(self, rows: NDArray[np.int64], trees: NDArray[np.int32]) -> NDArray[np.int64]:
        return np.maximum(self._standing[rows, trees].astype(np.int64), ROOT)


@computation("AnswerHop")
def answer_hop(
    table: LookupTable,
    values: NDArray[np.float32],
    records: NDArray[np.uint32],
    counts: NDArray[np.uint32],
    rows: NDArray[np.int64],
) -> NDArray[np.bool_]:
    """A passive party's directions for a hop: bool, in the order of its rows."""
    return table.directions(values, rows, np.repeat(records.astype(np.int64), counts))


@computation("AnswerRows")
def answer_rows(
    table: LookupTable, values: NDArray[np.float32], records: int, rows: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """A passive party's directions of ``rows`` at its first ``records``: bool, row by row."""
    left = np.empty((len(rows), records), np.bool_)
    for record in range(records):
        at = np.full(len(rows), record)
        left[:, record] = table.directions(values, rows, at)
    return left.ravel()
