"""What does a passive party know of the tree that grows?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.splits import ROOT, CategorySet, first_named
from fedmq.errors import ProtocolError
from fedmq.messages import training
from fedmq.messages.array import payload_bytes, unpack_payload
from fedmq.privacy.engine import Extent, PassiveHalf
from fedmq.privacy.plan import Values
from fedmq.protocol.training.asked_nodes import AskedNodes
from fedmq.protocol.training.column_marks import ColumnMarks
from fedmq.protocol.training.histogram_requests import HistogramRequests
from fedmq.protocol.training.node_candidates import NodeCandidates
from fedmq.protocol.training.node_rows import NodeRows
from fedmq.protocol.training.shown_candidates import ShownCandidates

__all__ = ["GrowingTree"]


class GrowingTree:
    """What stands while tree ``number`` grows; ``pieces`` of its broadcast are to come.

    ``asked`` knows which nodes it may have, ``marks`` the constraints of columns, ``engine`` how
    long questions about nodes may be.
    ``keeps_numbers``: a candidate has one number in all nodes, unless nodes draw their columns.
    ``hides_sums``: no decision names a candidate, as this party knows which have won.
    """

    def __init__(
        self,
        number: int,
        pieces: int,
        candidates: NodeCandidates,
        shown: ShownCandidates,
        rows: NodeRows,
        asked: AskedNodes,
        marks: ColumnMarks,
        engine: PassiveHalf,
        records_before: int,
        *,
        keeps_numbers: bool,
        hides_sums: bool,
    ) -> None:
        self.number = number
        self.candidates = candidates
        self.rows = rows
        self.records_before = records_before
        self.requests = HistogramRequests(number)
        self.shown = shown
        self.marks = marks
        self._asked = asked
        self._engine = engine
        self._directions_of = 0
        self._directions: list[Values] = []
        """What came before the decision about a node, and the node; 0 where nothing did."""
        self._directions_bytes = 0
        self.to_arrive = pieces
        self.to_take = pieces
        """Pieces that the engine has not taken in yet."""
        self._hides_sums = hides_sums
        self._won: dict[int, int] = {}
        """The candidates that won, by node, where sums are hidden."""
        self._one_order = keeps_numbers and not candidates.narrows

    def order(self, node: int) -> NDArray[np.int64] | None:
        """The order in which the candidates of a node were shown; None if they never were."""
        return self.shown.order(ROOT if self._one_order else node)

    def winner(self, body: training.SplitDecision) -> int | CategorySet:
        """The candidate, or the set of categories, by which its node is split.

        Candidates that tie come together: the first in this party's own order is XGBoost's.

        Raises:
            ProtocolError: the node was not shown, or shows no such candidate.
        """
        order, table = self.order(body.node), self.candidates.of_node(body.node)
        if self._hides_sums:
            return self._hidden_winner(body, order)
        named = [body.candidates.numpy(), *(split.right.numpy() for split in body.sets)]
        together = np.concatenate(named)
        if order is None or not len(together) or int(together.max()) >= len(order):
            raise ProtocolError(f"a split of node {body.node} by a candidate it does not have")
        chosen, *rights = (order[positions] for positions in named)
        sets = [
            CategorySet(np.sort(right).astype(np.uint32), split.default_left)
            for right, split in zip(rights, body.sets, strict=True)
        ]
        if not all(map(table.has_set, rights)) or table.is_category[chosen].any():
            raise ProtocolError(f"a split of node {body.node} by no set of categories of a column")
        return first_named(table, chosen, sets)

    def _hidden_winner(self, body: training.SplitDecision, order: NDArray[np.int64] | None) -> int:
        """The candidate that won, which is not named: the circuits have told this party alone."""
        if order is None or body.node not in self._won or len(body.candidates.numpy()) or body.sets:
            raise ProtocolError(f"a split of node {body.node}, which this party has not won")
        return int(order[self._won.pop(body.node)])

    def contest(self, nodes: Sequence[int]) -> int:
        """The winners of ``nodes`` are to be found; how many candidates each of them has.

        Raises:
            ProtocolError: it is not their turn, or they have no such candidates.
        """
        self._asked.contest(nodes)
        counts = {0 if order is None else len(order) for order in map(self.order, nodes)}
        if len(counts) > 1 or not self._hides_sums:
            raise ProtocolError("a contest of nodes that have other candidates")
        return counts.pop()

    def take_winners(
        self, nodes: Sequence[int], won: NDArray[np.bool_], candidates: NDArray[np.int64]
    ) -> None:
        """Which of ``nodes`` this party has won, and by which of the candidates it has shown."""
        found = zip(nodes, won.tolist(), candidates.tolist(), strict=True)
        self._won |= {node: candidate for node, was_won, candidate in found if was_won}

    def request(self, body: training.HistogramRequest) -> None:
        """Nodes are asked about.

        Raises:
            ProtocolError: this tree has no such nodes, or the queries are longer than they can be.
        """
        largest: dict[int, Extent] = {}
        for query in body.nodes:
            rows = self.rows.rows(query.node)
            if body.tree != self.number or rows is None:
                raise ProtocolError(f"sums of node {query.node}, there is no such node")
            self._asked.ask(query.node, body.round)
            largest[query.node] = self._engine.largest_query(len(rows))
        self.requests.add(body, largest)

    def ask_directions(self, body: training.DirectionsQuery) -> None:
        """A piece of a question about the directions of a node, whose decision comes next.

        Raises:
            ProtocolError: it is out of place, or longer than such a question can be.
        """
        if (
            body.tree != self.number
            or self.rows.rows(body.node) is None
            or body.piece != len(self._directions)
            or self._directions_of not in (0, body.node)
        ):
            raise ProtocolError(f"a query about directions of node {body.node}, out of place")
        self._directions_of = body.node
        self._directions_bytes += payload_bytes(body.payload)
        largest = self._engine.largest_directions_query()
        if body.piece >= largest.pieces or self._directions_bytes > largest.bytes:
            raise ProtocolError(f"a query about directions of node {body.node} that is too long")
        self._directions.append(unpack_payload(body.payload))

    def decoy(self, node: int) -> int:
        """A decoy comes about ``node``: how many rows the answer is about.

        Raises:
            ProtocolError: there is no such node, or it was decided about before.
        """
        rows = self.rows.rows(node)
        if rows is None:
            raise ProtocolError(f"a split of node {node}, there is no such node")
        self._asked.decoy(node)
        return len(rows)

    def split(self, node: int) -> list[Values]:
        """``node`` is split by this party; what was asked about its directions.

        Raises:
            ProtocolError: it cannot be split, or directions of another node were asked for.
        """
        if self._directions_of not in (0, node):
            raise ProtocolError(f"a split of node {node}, not of node {self._directions_of}")
        self._asked.split(node)
        pieces, self._directions = self._directions, []
        self._directions_of = self._directions_bytes = 0
        return pieces
