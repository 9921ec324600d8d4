"""What does a passive party know of the tree that grows?

Which rows stand in which node (`NodeRows`), which nodes it was asked about and may be asked about
(`AskedNodes`), which sums are due (`HistogramRequests`), what it shows of its candidates
(`ShownCandidates`); and `GrowingTree`, which checks each question against all of these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix
from fedmq.boosting.splits import ROOT, CategorySet, children, depth, first_named, parent, sibling
from fedmq.errors import ProtocolError
from fedmq.messages import training
from fedmq.messages.array import payload_bytes, unpack_payload
from fedmq.messages.training import TrainingOpen
from fedmq.privacy.engine import Extent, PassiveHalf
from fedmq.privacy.plan import Plan, Values, single
from fedmq.protocol.records import most_nodes
from fedmq.protocol.training.candidates import (
    CandidateOrders,
    MergeCells,
    NodeCandidates,
    RootCells,
    Siblings,
)
from fedmq.protocol.training.columns import ColumnMarks

__all__ = [
    "AskedNodes",
    "GrowingTree",
    "HistogramRequest",
    "HistogramRequests",
    "NodeRows",
    "Showing",
    "ShownCandidates",
]


class NodeRows:
    """The ``rows`` of a session by node; all of them in every node where the engine hides rows.

    Nodes that no other party asks about any more, at ``max_depth``, are not kept.
    """

    def __init__(self, rows: int, max_depth: int, *, hidden: bool) -> None:
        self.hidden = hidden
        self.carrying = np.zeros(rows, dtype=np.bool_)
        """The rows that carry a gradient, as far as this party knows."""
        self._max_depth = max_depth
        self._rows = {ROOT: np.arange(rows, dtype=np.int32)}

    def rows(self, node: int) -> NDArray[np.int32] | None:
        """The rows that may stand in ``node`` (int32, ascending); None for no such node."""
        return self._rows.get(ROOT if self.hidden else node)

    def divide(self, node: int, left: NDArray[np.bool_]) -> None:
        """Split ``node``; ``left`` is over its rows. Where rows are hidden, nothing changes."""
        if self.hidden:
            return
        rows = self._rows.pop(node)
        if depth(node) + 1 < self._max_depth:
            self._rows |= zip(children(node), (rows[left], rows[~left]), strict=True)

    def check(self) -> None:
        """Raise AssertionError where a row stands in two nodes."""
        standing = np.concatenate([np.empty(0), *self._rows.values()])
        assert len(np.unique(standing)) == len(standing)


# Which nodes may be asked about? Where rows are hidden, a party cannot see which rows stand in a
# node: then each question may be about other rows, and each split shows where all rows go. It knows
# how nodes are numbered, and the terms.


class AskedNodes:
    """The nodes of a tree under ``terms``; each is asked about in ``rounds`` rounds at most.

    A question tells of ``nodes_per_query`` nodes at most and of their siblings, of one depth: so
    many of a depth may be split by this party.
    A node that is asked about, or split, stands below splits, whoever made them.
    """

    def __init__(self, terms: TrainingOpen, rounds: int, nodes_per_query: int = 1) -> None:
        self._most_depth = terms.max_depth
        self._most_rounds = rounds
        self._most_nodes = most_nodes(terms.max_depth, terms.rows, terms.max_leaves)
        splits = most_nodes(terms.max_depth, terms.rows)
        self._most_splits = min(splits, terms.max_leaves - 1) if terms.max_leaves else splits
        self._rounds: dict[int, int] = {}
        """Rounds of questions by node."""
        self._splits: set[int] = set()
        self._decoys: set[int] = set()
        self._contested: set[int] = set()
        self._nodes_per_question = 2 * nodes_per_query
        self._may_split: Counter[int] = Counter()
        """So many nodes by depth, of those that were asked about."""

    def ask(self, node: int, number: int) -> None:
        """Round ``number`` of the questions about ``node``.

        Raises:
            ProtocolError: it is not the next one, or no tree of these terms has the node as well.
        """
        self._check_stands(node)
        first = node not in self._rounds
        if number != self._rounds.get(node, 0) or number >= self._most_rounds:
            raise ProtocolError(f"round {number} of questions about node {node} is not next")
        self._rounds[node] = number + 1
        if len(self._rounds) > self._most_nodes:
            raise ProtocolError(f"sums of more than {self._most_nodes:,} nodes of a tree")
        self._add_splits(parent(node))
        self._may_split[depth(node)] += self._nodes_per_question if first else 0

    def contest(self, nodes: Sequence[int]) -> None:
        """The winners of ``nodes`` are to be found, where sums are hidden.

        Raises:
            ProtocolError: there are none, or one of them was not asked about, or contested before.
        """
        for node in nodes:
            asked = node in self._rounds or (node > ROOT and sibling(node) in self._rounds)
            if not asked or node in self._contested:
                raise ProtocolError(f"a contest of node {node}, which is not next")
            self._contested.add(node)
        if not nodes:
            raise ProtocolError("a contest of no nodes")

    def split(self, node: int) -> None:
        """``node`` is split by this party.

        Raises:
            ProtocolError: it was split before, or no tree of these terms has the node as well.
        """
        self._check_stands(node)
        if node in self._decoys:
            raise ProtocolError(f"a split of node {node} after a decoy about it")
        if not self._may_split[depth(node)]:
            raise ProtocolError(f"a split of node {node}, but no question about its level")
        self._add_splits(node)
        self._may_split[depth(node)] -= 1

    def decoy(self, node: int) -> None:
        """A decision about ``node`` is a decoy: this party does not split it.

        Raises:
            ProtocolError: it was decided about before, or no tree of these terms has the node.
        """
        self._check_stands(node)
        if node in self._decoys:
            raise ProtocolError(f"a second decoy about node {node}")
        self._decoys.add(node)

    def _check_stands(self, node: int) -> None:
        if depth(node) >= self._most_depth:
            raise ProtocolError(f"node {node} lies below max_depth = {self._most_depth}")
        if node in self._splits:
            raise ProtocolError(f"node {node} has been split before")

    def _add_splits(self, node: int) -> None:
        """``node`` and all above it are splits."""
        while node and node not in self._splits:
            self._splits.add(node)
            node = parent(node)
        if len(self._splits) > self._most_splits:
            raise ProtocolError(f"more than {self._most_splits:,} splits of a tree")


@dataclass(slots=True)
class HistogramRequest:
    """A request of a round, whose query ``pieces`` come in: so many are ``missing`` by node.

    All of a node are not longer than the ``largest`` query about it.
    """

    round: int
    missing: dict[int, int]
    pieces: dict[int, list[Values]]
    largest: Mapping[int, Extent]
    bytes: Counter[int] = field(default_factory=Counter)
    taking: int = 0
    """So many plans of the engine have begun with pieces, and not ended."""

    @property
    def is_complete(self) -> bool:
        """Whether all query pieces are here, and the engine has taken those that it began with."""
        return not self.taking and not any(self.missing.values())


class HistogramRequests:
    """The requests about tree ``tree`` that have no answer yet."""

    def __init__(self, tree: int) -> None:
        self._tree = tree
        self._open: list[HistogramRequest] = []
        self._declined: dict[int, int] = {}
        """Query pieces that are under way for nodes that were declined."""

    def add(self, body: training.HistogramRequest, largest: Mapping[int, Extent]) -> None:
        """A request about nodes that exist; the ``largest`` query about each.

        Raises:
            ProtocolError: it announces more pieces.
        """
        for query in body.nodes:
            if query.pieces > (most := largest[query.node].pieces):
                raise ProtocolError(
                    f"a query of {query.pieces} pieces about node {query.node}, {most} hold all"
                )
        missing = {query.node: query.pieces for query in body.nodes}
        pieces: dict[int, list[Values]] = {node: [] for node in missing}
        self._open.append(HistogramRequest(body.round, missing, pieces, largest))

    def add_piece(self, body: training.QueryPiece) -> HistogramRequest | None:
        """A piece of a query, and its request; None where it was dropped with a declined node.

        Raises:
            ProtocolError: it was not announced, or the query is longer than it can be.
        """
        announced = (
            request
            for request in self._open
            if request.round == body.round and request.missing.get(body.node)
        )
        request = next(announced, None)
        if request is None and body.tree == self._tree and self._declined.get(body.node):
            self._declined[body.node] -= 1
            return None
        if request is None or body.tree != self._tree:
            raise ProtocolError(f"a query piece for node {body.node} that was not announced")
        request.bytes[body.node] += payload_bytes(body.payload)
        if request.bytes[body.node] > (most := request.largest[body.node].bytes):
            raise ProtocolError(
                f"a query of {request.bytes[body.node]:,} bytes or more about node {body.node}, "
                f"it takes {most:,}"
            )
        request.pieces[body.node].append(unpack_payload(body.payload))
        request.missing[body.node] -= 1
        return request

    def decline(self, is_too_small: Callable[[int], bool]) -> Sequence[int]:
        """Drop the nodes that are too small from all requests; those nodes."""
        declined = []
        for request in self._open:
            for node in [node for node in request.pieces if is_too_small(node)]:
                self._declined[node] = request.missing.pop(node)
                del request.pieces[node]
                declined.append(node)
        return declined

    def take_complete(self) -> Sequence[tuple[int, Mapping[int, Sequence[Values]]]]:
        """Round and query pieces by node of the requests that are complete; they are forgotten."""
        complete = [request for request in self._open if request.is_complete]
        self._open = [request for request in self._open if not request.is_complete]
        return [(request.round, request.pieces) for request in complete if request.pieces]


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
