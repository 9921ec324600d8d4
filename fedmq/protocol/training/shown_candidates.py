"""Which candidates does an owner show of each node of a tree, and in which order?"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix
from fedmq.boosting.splits import ROOT, children, parent
from fedmq.errors import ProtocolError
from fedmq.privacy.plan import Plan, single
from fedmq.protocol.training.candidate_order import CandidateOrders, RootCells
from fedmq.protocol.training.merged_cells import MergeCells, Siblings
from fedmq.protocol.training.node_candidates import NodeCandidates
from fedmq.protocol.training.node_rows import NodeRows

__all__ = ["Showing", "ShownCandidates"]


@dataclass(frozen=True, slots=True, eq=False)
class Showing:
    """How an owner shows candidates in a session.

    ``secret`` seeds their order. Cells of fewer than ``smallest_cell`` rows are merged; 0: none.
    ``learning`` bool (rows,): the rows that may carry gradients; ``root`` has their cells.
    """

    bins: BinMatrix
    secret: int
    smallest_cell: int
    learning: NDArray[np.bool_]
    root: RootCells


class ShownCandidates:
    """What is shown of the ``candidates`` of tree ``tree``, whose nodes hold ``rows``."""

    def __init__(
        self, showing: Showing, tree: int, candidates: NodeCandidates, rows: NodeRows
    ) -> None:
        self._showing = showing
        self._candidates = candidates
        self._rows = rows
        self._orders = CandidateOrders(tree, showing.bins, candidates, showing.secret, showing.root)
        self._kept: dict[int, NDArray[np.bool_]] = {}
        """The candidates of the tree whose cells are large enough in a node."""

    def order(self, node: int) -> NDArray[np.int64] | None:
        """The candidates of ``node`` in the order in which it shows them; None before it does."""
        return self._orders.get(node)

    @property
    def lengths(self) -> Sequence[int]:
        """How many candidates were shown of each node."""
        return self._orders.lengths

    def carrying(self, node: int) -> NDArray[np.int32]:
        """The rows of ``node`` that carry a gradient, as far as this party knows."""
        rows = self._rows.rows(node)
        if rows is None:
            raise ProtocolError(f"sums of node {node ^ 1}, whose sibling has been split meanwhile")
        learning = self._showing.learning[rows]
        if not self._rows.hidden:
            learning &= self._rows.carrying[rows]
        return rows[learning]

    def orders(self, nodes: Collection[int]) -> Plan[Mapping[int, NDArray[np.int64]]]:
        """What each of ``nodes`` shows, chosen where it is asked about for the first time.

        Where rows are hidden, cells are those of the root, and the order is canonical.

        Raises:
            ProtocolError: which cells of a node are large enough can no longer be known.
        """
        new = [node for node in nodes if node not in self._orders]
        if new:
            yield from self._choose(new)
        return {node: self._orders[node] for node in nodes}

    def _choose(self, new: Sequence[int]) -> Plan[None]:
        if self._rows.hidden:
            yield from self._merge([ROOT])
            for node in new:
                self._orders.keep(node, self._shown(node))
            return
        carrying = {node: self.carrying(node) for node in new}
        yield from self._merge(new)
        yield from self._orders.draw(carrying, {node: self._shown(node) for node in new})

    def _shown(self, node: int) -> NDArray[np.int64]:
        """Which of the candidates of ``node`` have cells that are large enough."""
        kept = self._kept.get(ROOT if self._rows.hidden else node)
        places = self._candidates.places(node)
        return np.arange(len(places)) if kept is None else np.flatnonzero(kept[places])

    def _merge(self, nodes: Collection[int]) -> Plan[None]:
        """Choose the cells that ``nodes`` and their siblings keep apart."""
        if not self._showing.smallest_cell:
            return
        missing = [node for node in nodes if node not in self._kept]
        families = {_family(node): self._siblings(_family(node)) for node in missing}
        if not families:
            return
        merge = MergeCells(
            self._showing.bins,
            self._candidates.of_tree,
            tuple(families.values()),
            self._showing.smallest_cell,
        )
        for family, kept in zip(families, (yield from single(merge)), strict=True):
            self._kept |= dict.fromkeys(family, kept)

    def _siblings(self, family: tuple[int, ...]) -> Siblings:
        above = self._kept.get(parent(family[0]))
        if above is None and family == (ROOT,):
            above = np.ones(len(self._candidates.of_tree), dtype=np.bool_)
        if above is None:
            raise ProtocolError(f"sums of node {family[0]}, but none of the node above")
        return Siblings(tuple(map(self.carrying, family)), above)


def _family(node: int) -> tuple[int, ...]:
    """The root alone, or ``node`` and its sibling."""
    return (ROOT,) if node == ROOT else children(parent(node))
