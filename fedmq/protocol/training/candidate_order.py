"""In which order does an owner show a node's candidates?

At random, so that a number says nothing of column and bin; but canonical among candidates that part
the node's rows into as many and as many. Candidates that part the rows alike are always among them,
so that the lowest number of those whose sums tie is XGBoost's choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix
from fedmq.boosting.splits import ROOT, CandidateTable, parent
from fedmq.privacy.histogram_subtraction import plan_level
from fedmq.privacy.plan import Plan, single
from fedmq.protocol.training.node_candidates import NodeCandidates

__all__ = ["CandidateOrders", "CountLeft", "RootCells", "count_cells", "shown_order"]

_FEW_CODES = 1 << 17  # a third of a millisecond, less than to read a piece of a broadcast


@dataclass(frozen=True, slots=True, eq=False)
class CountLeft:
    """`count_cells` of ``nodes``: what goes left of each candidate are sums of these."""

    label: ClassVar[str] = "CountLeft"
    bins: BinMatrix
    candidates: CandidateTable
    nodes: Sequence[NDArray[np.int32]]

    @property
    def codes(self) -> int:
        """How many bins of rows are looked at."""
        return sum(map(len, self.nodes)) * self.bins.cuts.n_features

    def run(self) -> NDArray[np.int64]:
        return count_cells(self.bins, self.candidates, self.nodes)


def count_cells(
    bins: BinMatrix, candidates: CandidateTable, nodes: Sequence[NDArray[np.int32]]
) -> NDArray[np.int64]:
    """Rows of each node by cell, of the columns of ``candidates``: int64 (nodes, cells)."""
    cuts = bins.cuts
    counts = np.zeros((len(nodes), cuts.n_cells), np.int64)
    features = np.unique(candidates.feature).tolist()
    for node, rows in enumerate(nodes):
        for feature in features:
            first, stop = cuts.first_cell[feature], cuts.first_cell[feature + 1]
            counts[node, first:stop] = np.bincount(
                bins.codes[:, feature].take(rows), minlength=int(stop - first)
            )
    return counts


class RootCells:
    """The cells of a root in which all ``rows`` rows stand that may: counted once in a session."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._features = b""
        self._cells: NDArray[np.int64] | None = None

    def get(self, rows: int, candidates: CandidateTable) -> NDArray[np.int64] | None:
        """What was kept, for a root of so many rows; None if it may be another one."""
        same = rows == self._rows and candidates.feature.tobytes() == self._features
        return self._cells if same else None

    def keep(self, rows: int, candidates: CandidateTable, cells: NDArray[np.int64]) -> None:
        """``cells`` (cells,) of a root of so many rows, if these are all."""
        if rows == self._rows:
            self._features, self._cells = candidates.feature.tobytes(), cells


class CandidateOrders:
    """The orders in which ``candidates`` of ``tree`` are shown, by node: int64 (shown,) each.

    ``secret`` seeds them; it must not be guessable.
    """

    def __init__(
        self,
        tree: int,
        bins: BinMatrix,
        candidates: NodeCandidates,
        secret: int,
        root: RootCells,
    ) -> None:
        self._tree = tree
        self._bins = bins
        self._candidates = candidates
        self._secret = secret
        self._root = root
        self._orders: dict[int, NDArray[np.int64]] = {}
        self._cells: dict[int, NDArray[np.int64]] = {}
        """Rows of a node by cell."""

    def __contains__(self, node: int) -> bool:
        return node in self._orders

    def __getitem__(self, node: int) -> NDArray[np.int64]:
        return self._orders[node]

    def get(self, node: int) -> NDArray[np.int64] | None:
        """The order of ``node``; None where its candidates were never shown."""
        return self._orders.get(node)

    @property
    def lengths(self) -> Sequence[int]:
        """How many candidates were shown of each node."""
        return [len(order) for order in self._orders.values()]

    def keep(self, node: int, shown: NDArray[np.int64]) -> None:
        """Show those of the candidates of ``node`` in their canonical order."""
        self._orders[node] = shown

    def draw(
        self, nodes: Mapping[int, NDArray[np.int32]], shown: Mapping[int, NDArray[np.int64]]
    ) -> Plan[None]:
        """Draw the orders of new ``nodes``, given by the rows that carry a gradient.

        ``shown``: which of a node's candidates are shown, ascending.
        """
        if not nodes:
            return
        yield from self._count(nodes)
        cells = np.stack([self._cells[node] for node in nodes])
        lefts = self._candidates.of_tree.left_sums(cells[..., np.newaxis])[..., 0]
        for (node, rows), left in zip(nodes.items(), lefts, strict=True):
            seed = np.random.SeedSequence(self._secret, spawn_key=(self._tree, node))
            random = np.random.Generator(np.random.Philox(seed))
            shown_left = left[self._candidates.places(node)][shown[node]]
            self._orders[node] = shown[node][shown_order(shown_left, len(rows), random)]

    def _count(self, nodes: Mapping[int, NDArray[np.int32]]) -> Plan[None]:
        candidates = self._candidates.of_tree
        level = plan_level({node: len(rows) for node, rows in nodes.items()}, self._cells)
        known = self._root.get(len(nodes[ROOT]), candidates) if ROOT in nodes else None
        if known is not None:
            self._cells[ROOT] = known
        counted = [node for node in level.summed if node not in self._cells]
        if counted:
            count = CountLeft(self._bins, candidates, [nodes[node] for node in counted])
            # The way to the pool takes longer than to count small nodes.
            counts = count.run() if count.codes <= _FEW_CODES else (yield from single(count))
            self._cells |= zip(counted, counts, strict=True)
        if ROOT in counted:
            self._root.keep(len(nodes[ROOT]), candidates, self._cells[ROOT])
        for node, other in level.subtracted:
            self._cells[node] = self._cells[parent(node)] - self._cells[other]


def shown_order(
    left: NDArray[np.int64], rows: int, random: np.random.Generator
) -> NDArray[np.int64]:
    """A permutation of the candidates of a node with ``rows`` rows, ``left`` (candidates,) of each.

    Random, but canonical among those with the same pair of rows left and right, either way round.
    """
    order = random.permutation(len(left))
    smaller = np.minimum(left, rows - left)
    # Places and candidates, both by class: the places of a class are filled canonically.
    places = np.argsort(smaller[order], kind="stable")
    order[places] = np.argsort(smaller, kind="stable")
    return order
