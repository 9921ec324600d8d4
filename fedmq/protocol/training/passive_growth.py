"""What does a passive party do while a tree grows?

`PassiveGrowth` takes the gradients, answers sums and splits nodes; `PassiveComparisons` compares
candidates whose sums are hidden. Each checks a question against the party's state of the tree: the
rows by node (`PassiveNodeRows`), the permitted nodes (`AskedNodes`), the due sums
(`HistogramRequests`), and the disclosed candidates (`CandidateDisclosure`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.tree import LookupTable
from fedmq.boosting.node_rows import marked, parted, span
from fedmq.boosting.splits import (
    ROOT,
    UNMARKED,
    CandidateTable,
    CategorySet,
    ColumnMark,
    children,
    depth,
    first_named,
    parent,
    sibling,
)
from fedmq.errors import MessageError, ProtocolError, Refused
from fedmq.messages import training
from fedmq.messages.array import Bitmap, pack_payload, payload_bytes, unpack_payload
from fedmq.messages.training import TrainingOpen
from fedmq.privacy.engine import (
    ALONE,
    BroadcastPiece,
    ComparedColumns,
    Engine,
    PassiveHalf,
    PassiveHidesSums,
    Place,
    Query,
    SizeLimit,
    Winner,
)
from fedmq.privacy.plan import Exchange, Handed, HandOn, Plan, Reply, Values, single
from fedmq.protocol.events import Save
from fedmq.protocol.machine import Machine, Part, PlanState, on_message
from fedmq.protocol.session_records import (
    Commitment,
    NodesWon,
    RowPeople,
    SumBudget,
    SumLedger,
    SumsAnswered,
    message_hash,
    most_nodes,
)
from fedmq.protocol.training.candidates import (
    CandidateOrders,
    DisclosureRules,
    NodeCandidates,
    OwnColumns,
    Siblings,
    merge_cells,
    recorded,
    went_left,
)
from fedmq.protocol.training.claims import ColumnMarks, disclosed_categories
from fedmq.protocol.training.comparisons import Circuits, HandedOn
from fedmq.protocol.training.states import (
    GRADIENTS_HERE,
    PIECE_TAKEN,
    RECEIVED,
    SHOWN,
    SUMS,
    WINNERS,
)
from fedmq.protocol.training.terms import KeptConstraints, PassiveTable
from fedmq.protocol.training.transcripts import salt_of_shares

__all__ = [
    "AskedNodes",
    "CandidateDisclosure",
    "HistogramRequest",
    "HistogramRequests",
    "OwnSplits",
    "PassiveComparisons",
    "PassiveGrowth",
    "PassiveNodeRows",
    "PassiveTerms",
    "PreparedTraining",
]


@dataclass(frozen=True, slots=True)
class PassiveTerms:
    """The terms of a session: those that the ``active`` party has ``asked`` for, and the settings
    of this ``party``'s owner.

    The party declines nodes with fewer than ``smallest_node`` rows that carry a gradient.
    """

    party: str
    active: str
    asked: TrainingOpen
    smallest_node: int


@dataclass(frozen=True, slots=True, eq=False)
class PreparedTraining:
    """The setup of a training, unchanged until its end.

    ``constraints``: the constraints of the party's columns. ``agreed``: the records to save.
    ``people``: the people of the rows, None if they are not compared with those of other sessions.
    """

    spec: Engine
    engine: PassiveHalf
    table: PassiveTable
    columns: OwnColumns
    constraints: KeptConstraints
    setup: Sequence[Values]
    rules: DisclosureRules
    ledger: SumLedger
    people: RowPeople | None
    agreed: Sequence[SumBudget]
    commitment: Commitment | None


class OwnSplits:
    """The splits of this party: a ``table`` of records, and tree and node of each in ``places``."""

    def __init__(self, table: LookupTable, places: Sequence[tuple[int, int]] = ()) -> None:
        self.table = table
        self.places = list(places)

    def __len__(self) -> int:
        return len(self.table)

    def add(
        self, candidates: CandidateTable, split: int | CategorySet, tree: int, node: int
    ) -> int:
        """Record the ``split`` of a node by a candidate or a set; returns the record's id."""
        self.table, record = recorded(self.table, candidates, split)
        self.places.append((tree, node))
        return record

    def of_tree(self, tree: int) -> tuple[int, ...]:
        """The nodes of ``tree`` that this party has split."""
        return tuple(node for number, node in self.places if number == tree)


class PassiveGrowth(Part):
    """The growth of tree number ``tree``, whose gradients arrive in ``pieces`` pieces.

    If the engine hides sums, decisions name no candidate: ``comparisons`` knows the winners.
    """

    def __init__(
        self,
        machine: Machine,
        terms: PassiveTerms,
        prepared: PreparedTraining,
        splits: OwnSplits,
        tree: int,
        pieces: int,
    ) -> None:
        super().__init__(machine)
        self.terms = terms
        self._prepared = prepared
        self.engine = prepared.engine
        self._hides_sums = isinstance(self.engine, PassiveHidesSums)
        self.splits = splits
        self.records_before = len(splits)
        self.tree = tree
        asked = terms.asked
        self.candidates = prepared.columns.of_tree(tree // asked.folds)
        self._marks = ColumnMarks(prepared.constraints)
        self._sums_per_candidate = self.engine.nodes_per_query * asked.outputs
        """The sums that an answered query counts per candidate."""
        self._most_sums = len(self.candidates.of_tree) * self._sums_per_candidate
        """The most sums that a query counts."""
        self.engine.start_tree(tree, self.candidates.of_tree)
        spec = prepared.spec
        self.rows = PassiveNodeRows(asked.rows, asked.max_depth, hidden=spec.traits.hides_rows)
        self.disclosed = CandidateDisclosure(
            prepared.rules, tree, self.candidates, self.rows, canonical=spec.hides_sums
        )
        self.asked = AskedNodes(asked, self.engine.queries_per_node, self.engine.nodes_per_query)
        self._requests = HistogramRequests(tree)
        self._one_order = spec.traits.keeps_numbers and not self.candidates.narrows
        """Whether a candidate has one number in all nodes."""
        self.comparisons = PassiveComparisons(machine, self)
        self._to_arrive = pieces
        self._to_take = pieces
        """Pieces of the broadcast that the engine has not processed."""
        self._directions_of = 0
        self._directions: list[Values] = []
        """The pieces that came before the decision about a node, and the node; 0 without any."""
        self._directions_bytes = 0
        if not pieces:
            self.rows.carrying[:] = True
            self._move(GRADIENTS_HERE)

    # Gradients

    @on_message(training.GradientBroadcast)
    def _on_broadcast(self, _: str, body: training.GradientBroadcast) -> None:
        if body.tree != self.tree or self._to_arrive == 0:
            raise ProtocolError(f"an unannounced gradient piece of tree {body.tree}")
        named = body.rows.numpy()
        if len(named) and int(named.max()) >= self.terms.asked.rows:
            raise ProtocolError(f"a gradient for row {int(named.max())}, which does not exist")
        rows = body.numbers()
        self._to_arrive -= 1
        self.rows.carrying[span(rows)] = True
        piece = BroadcastPiece(rows, unpack_payload(body.payload))
        self._run(RECEIVED, self.engine.receive(self.tree, piece), self._received)

    def _received(self, _: None) -> None:
        self._to_take -= 1
        if self._to_take == 0:
            self._move(GRADIENTS_HERE)
            if (people := self._prepared.people) is not None:
                for record in people.of_tree(self.tree, self.rows.carrying):
                    self._emit(Save(record))
            self._answer_complete()

    # Sums

    @on_message(training.HistogramRequest)
    def _on_request(self, _: str, body: training.HistogramRequest) -> None:
        limits: dict[int, SizeLimit] = {}
        for query in body.nodes:
            rows = self.rows.rows(query.node)
            if body.tree != self.tree or rows is None:
                raise ProtocolError(f"sums of node {query.node}, which does not exist")
            self.asked.ask(query.node, body.round)
            limits[query.node] = self.engine.largest_query(len(rows))
        self._requests.add(body, limits)
        self._answer_complete()

    @on_message(training.QueryPiece)
    def _on_query_piece(self, _: str, body: training.QueryPiece) -> None:
        request = self._requests.add_piece(body)
        if request is not None and not self._to_take:
            self._begin_with(request, body)
        self._answer_complete()

    def _begin_with(self, request: HistogramRequest, body: training.QueryPiece) -> None:
        """Let the engine begin with a piece before the others arrive, if it can."""
        piece = request.pieces[body.node][-1]
        take = self.engine.take_piece(
            body.tree, body.node, body.round, piece, alone=len(request.pieces) == 1
        )
        if take is not None:
            request.taking += 1
            self._run(PIECE_TAKEN, take, partial(self._with_piece, request))

    def _with_piece(self, request: HistogramRequest, _: None) -> None:
        request.taking -= 1
        self._answer_complete()

    def _answer_complete(self) -> None:
        """Answer the complete requests, once all gradients have arrived."""
        if self._to_take:
            return
        for node in self._requests.decline(self._is_too_small):
            self._send(self.terms.active, training.NodeDeclined(tree=self.tree, node=node))
        for number, pieces_of in self._requests.take_complete():
            rows_of = {
                node: rows for node in pieces_of if (rows := self.rows.rows(node)) is not None
            }
            if len(rows_of) < len(pieces_of):
                raise ProtocolError("sums of nodes that were split meanwhile")
            try:
                counted = self._prepared.ledger.answer(self.tree, rows_of, self._most_sums)
            except Refused as error:
                self._fail(error)
                return
            for record in counted:
                self._emit(Save(record))
            answering = self._answering(number, rows_of, pieces_of)
            self._run(SUMS, answering, lambda _: None, partial(self._reply, number))

    def _is_too_small(self, node: int) -> bool:
        """Whether fewer rows of ``node`` carry a gradient than this party's minimum."""
        smallest = self.terms.smallest_node
        if not smallest or self.rows.hidden or self.rows.rows(node) is None:
            return False
        return len(self.disclosed.carrying(node)) < smallest

    def _answering(
        self,
        number: int,
        rows_of: Mapping[int, NDArray[np.int32]],
        pieces_of: Mapping[int, Sequence[Values]],
    ) -> Plan[None]:
        """Answer round ``number`` about nodes, from their query pieces and numbers of rows."""
        orders = yield from self.disclosed.orders(rows_of)
        queries = [
            Query(
                self.tree, node, number, rows, self.candidates.of_node(node), orders[node], pieces
            )
            for (node, rows), pieces in zip(rows_of.items(), pieces_of.values(), strict=True)
        ]
        yield from self.engine.answer(queries)

    def _reply(self, number: int, step: Exchange | Reply, _: PlanState) -> None:
        assert isinstance(step, Reply)
        order = self.disclosed.order(step.node)
        disclosed = {}
        if order is not None:
            candidates = self.candidates.of_node(step.node)
            if not self._hides_sums:
                disclosed = self._marks.shown(step.node, candidates.columns[order])
            if candidates.categories:
                disclosed["categories"] = disclosed_categories(candidates, order)
        for index, values in enumerate(step.pieces):
            self._send(
                self.terms.active,
                training.HistogramReply(
                    tree=self.tree,
                    node=step.node,
                    round=number,
                    piece=index,
                    pieces=len(step.pieces),
                    payload=pack_payload(values),
                    **(disclosed if index == 0 else {}),
                ),
            )

    # Splits

    @on_message(training.DirectionsQuery)
    def _on_directions_query(self, _: str, body: training.DirectionsQuery) -> None:
        """Take a piece of a question about a node's directions; the node's decision follows."""
        if (
            body.tree != self.tree
            or self.rows.rows(body.node) is None
            or body.piece != len(self._directions)
            or self._directions_of not in (0, body.node)
        ):
            raise ProtocolError(f"a query about directions of node {body.node}, out of place")
        self._directions_of = body.node
        self._directions_bytes += payload_bytes(body.payload)
        limit = self.engine.largest_directions_query()
        if body.piece >= limit.pieces or self._directions_bytes > limit.bytes:
            raise ProtocolError(f"a query about directions of node {body.node} that is too long")
        self._directions.append(unpack_payload(body.payload))

    @on_message(training.SplitDecision)
    def _on_decision(self, _: str, body: training.SplitDecision) -> None:
        rows = self.rows.rows(body.node)
        if body.tree != self.tree or rows is None:
            raise ProtocolError(f"a split of node {body.node}, which does not exist")
        if self.terms.asked.decoys and body.is_decoy:
            self.asked.decoy(body.node)
            self._show(body.node, len(self.splits), np.zeros(len(rows), np.bool_))
            return
        candidates = self.candidates.of_node(body.node)
        winner, pieces = self._winner(body, candidates), self._split(body.node)
        first = winner if isinstance(winner, int) else int(winner.right[0])
        column = int(candidates.columns[first])
        # A set and a column of numbers may part the rows alike: no sum says which one splits.
        told = self._hides_sums or (body.sets and self._marks.differ)
        mark = self._marks.of(body.node, column) if told else UNMARKED
        self._marks.split(body.node, column)
        record = self.splits.add(candidates, winner, self.tree, body.node)
        table, bins = self.splits.table, self._prepared.columns.bins
        left = went_left(table, record, self._prepared.table.values, bins, rows)
        showing = self.engine.show_directions(self.tree, body.node, left, pieces)
        self._run(SHOWN, showing, partial(self._show, body.node, record, mark=mark))
        self.rows.divide(body.node, left)

    def _winner(self, body: training.SplitDecision, table: CandidateTable) -> int | CategorySet:
        """The candidate in ``table``, or the set of categories, that splits the node.

        Tied candidates come together: the first in this party's own order is XGBoost's.

        Raises:
            ProtocolError: the node was not shown, or shows no such candidate.
        """
        order = self.order(body.node)
        if isinstance(self.engine, PassiveHidesSums):
            return self.comparisons.winner(body, table, order)
        named = [body.candidates.numpy(), *(split.right.numpy() for split in body.sets)]
        together = np.concatenate(named)
        if order is None or not len(together) or int(together.max()) >= len(order):
            raise ProtocolError(f"a split of node {body.node} by a candidate that it lacks")
        chosen, *rights = (order[positions] for positions in named)
        sets = [
            CategorySet(np.sort(right).astype(np.uint32), split.default_left)
            for right, split in zip(rights, body.sets, strict=True)
        ]
        if not all(map(table.has_set, rights)) or table.is_category[chosen].any():
            raise ProtocolError(f"a split of node {body.node} by an invalid set of categories")
        return first_named(table, chosen, sets)

    def order(self, node: int) -> NDArray[np.int64] | None:
        """The order in which a node's candidates were shown; None if they were not."""
        return self.disclosed.order(ROOT if self._one_order else node)

    def _split(self, node: int) -> list[Values]:
        """Split ``node`` by this party; returns the query about its directions.

        Raises:
            ProtocolError: the node cannot be split, or the query is about another node.
        """
        if self._directions_of not in (0, node):
            raise ProtocolError(f"a split of node {node}, where node {self._directions_of} is due")
        self.asked.split(node)
        pieces, self._directions = self._directions, []
        self._directions_of = self._directions_bytes = 0
        return pieces

    def salt(self, node: int) -> bytes:
        """The salt of what this party hands on about ``node``."""
        return salt_of_shares(self._prepared.rules.secret, self.tree, node)

    def compared(self, nodes: Sequence[int]) -> ComparedColumns:
        """What is known of the columns of candidates in ``nodes``, the same in all."""
        order = self.order(nodes[0])
        assert order is not None, "a comparison of nodes that were not answered"
        return self._marks.compared(nodes, self.candidates.of_node(nodes[0]), order)

    def _show(
        self, node: int, record: int, shown: NDArray[np.bool_], mark: ColumnMark = UNMARKED
    ) -> None:
        outcome = training.SplitOutcome(
            tree=self.tree,
            node=node,
            record=record,
            left=Bitmap.of(shown),
            sign=mark.sign,
            held_by=int(mark.constraints),
        )
        self._send(self.terms.active, outcome)

    @on_message(training.NodeAssignment)
    def _on_assignment(self, _: str, body: training.NodeAssignment) -> None:
        own = self.splits.places[self.records_before :]
        if self.terms.asked.decoys and (body.tree, body.node) in own:
            return  # its own split, assigned to hide the owner
        rows = None if self.rows.hidden else self.rows.rows(body.node)
        if body.tree != self.tree or rows is None or body.left.count != len(rows):
            raise ProtocolError(f"an assignment of node {body.node} that does not fit")
        self.rows.divide(body.node, body.left.numpy())

    def end(self) -> Sequence[SumsAnswered]:
        """Complete the tree; returns its answered sums, to be recorded."""
        self.engine.forget_tree()
        shown = [self._sums_per_candidate * length for length in self.disclosed.lengths]
        return self._prepared.ledger.end_tree(self.tree, shown)


class PassiveComparisons(Part):
    """Finds, with the active party, the winners among hidden sums for the nodes of ``growth``."""

    def __init__(self, machine: Machine, growth: PassiveGrowth) -> None:
        super().__init__(machine)
        self._growth = growth
        self._circuits = Circuits(self._send, self._resume, opens=False)
        self._handed = HandedOn(self._resume)
        self._won: dict[int, Winner] = {}
        """The winning shown candidates, by node."""
        self.given: list[tuple[int, bytes]] = []
        """The hashes of what was handed on, by node, if circuits are signed."""
        self.taken: list[tuple[int, bytes]] = []
        """The hashes of what was handed to this party."""

    @on_message(training.CircuitPiece)
    def _on_circuit_piece(self, peer: str, body: training.CircuitPiece) -> None:
        if body.parcel:
            self._circuits.hear(peer, body)
            return
        if body.tree != self._growth.tree or body.piece or body.level[:1] != (body.node,):
            raise ProtocolError(f"circuits of node {body.node}, out of place")
        nodes, engine = body.level, self._growth.engine
        self._check_order(nodes)
        if not isinstance(engine, PassiveHidesSums):
            raise ProtocolError("a comparison of nodes whose sums are shown")
        place, opening = self._place(body.chain), unpack_payload(body.payload)
        columns = self._growth.compared(nodes)
        try:
            limit = engine.comparison_bytes(len(nodes), place, opening, columns)
        except MessageError as error:
            raise ProtocolError(f"circuits of node {body.node}: {error}") from error
        self._circuits.begin(peer, body.tree, nodes, limit)
        follow = partial(self._follow, body.chain, body.node)
        then = partial(self._with_winners, nodes)
        plan = engine.compare(nodes, place, opening, columns)
        self._run(WINNERS, plan, then, follow)

    def _check_order(self, nodes: Sequence[int]) -> None:
        """Check that ``nodes`` may be compared together.

        Raises:
            ProtocolError: it is not their turn, or they have no such candidates.
        """
        self._growth.asked.compare(nodes)
        orders = [order for order in map(self._growth.order, nodes) if order is not None]
        if len(orders) < len(nodes):
            raise ProtocolError("a comparison of nodes that were not answered")
        if len(set(map(len, orders))) > 1:
            raise ProtocolError("a comparison of nodes that have other candidates")
        if len({self._growth.compared([node]).categories for node in nodes}) > 1:
            raise ProtocolError("a comparison of nodes that have other categories")

    def _place(self, chain: tuple[str, ...]) -> Place:
        """This party's place in ``chain``."""
        if not chain:
            return ALONE
        terms = self._growth.terms
        known = [party for party in terms.asked.chain if party in chain]
        if known != list(chain) or terms.party not in chain:
            raise ProtocolError("a chain of parties that differs from the session's")
        return Place(chain.index(terms.party) + 1, len(chain))

    def _follow(
        self, chain: tuple[str, ...], node: int, step: Exchange | Reply, run: PlanState
    ) -> None:
        terms = self._growth.terms
        if isinstance(step, HandOn):
            [piece] = step.pieces
            salt = self._growth.salt(node) if terms.asked.signed_circuits else b""
            share = training.BestSoFar(
                tree=self._growth.tree, node=node, payload=pack_payload(piece), salt=salt
            )
            self._note(self.given, share)
            self._send(chain[chain.index(terms.party) + 1], share)
        elif isinstance(step, Handed):
            self._handed.wait(chain[chain.index(terms.party) - 1], node, run)
        else:
            self._circuits.follow(terms.active, node, step, run)

    @on_message(training.BestSoFar)
    def _on_best_so_far(self, peer: str, body: training.BestSoFar) -> None:
        """Take the best so far of a comparison, which may not have begun here."""
        if body.tree != self._growth.tree or peer == self._growth.terms.active:
            raise ProtocolError(f"shares of node {body.node}, out of place")
        self._note(self.taken, body)
        self._handed.take(peer, body.node, [unpack_payload(body.payload)])

    def _note(self, hashes: list[tuple[int, bytes]], share: training.BestSoFar) -> None:
        if self._growth.terms.asked.signed_circuits:
            hashes.append((share.node, message_hash(share)))

    def _with_winners(self, nodes: Sequence[int], winners: Sequence[Winner | None]) -> None:
        """Note the ``nodes`` that this party has won, and by which shown candidates."""
        self._circuits.end(self._growth.terms.active, nodes[0])
        found = zip(nodes, winners, strict=True)
        own = {node: winner for node, winner in found if winner is not None}
        self._won |= own
        if own and self._growth.terms.asked.signed_circuits:
            self._emit(Save(NodesWon(self._growth.tree, own)))

    def winner(
        self, body: training.SplitDecision, table: CandidateTable, order: NDArray[np.int64] | None
    ) -> Winner:
        """The winner in ``table``, unnamed in ``body``: the circuits tell this party alone."""
        if order is None or body.node not in self._won or len(body.candidates.numpy()) or body.sets:
            raise ProtocolError(f"a split of node {body.node}, which this party has not won")
        winner = self._won.pop(body.node)
        if isinstance(winner, CategorySet):
            right = np.sort(order[winner.right]).astype(np.uint32)
            if not table.has_set(right):
                raise ProtocolError(f"a split of node {body.node} by an invalid set of categories")
            return CategorySet(right, winner.default_left)
        if winner >= len(order):  # circuits have rooms for more; an honest one leaves them empty
            raise ProtocolError(f"a split of node {body.node} by a candidate that it lacks")
        return int(order[winner])


class PassiveNodeRows:
    """The ``rows`` of a session by node; every node has all rows if the engine hides rows.

    Nodes at ``max_depth`` are not kept: no party asks about them.
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
        """Split ``node``; ``left`` is over its rows. Hidden rows stay undivided."""
        if self.hidden:
            return
        rows = self._rows.pop(node)
        if depth(node) + 1 < self._max_depth:
            self._rows |= zip(children(node), parted(rows, left), strict=True)

    def check(self) -> None:
        """Raise AssertionError if a row stands in two nodes."""
        standing = np.concatenate([np.empty(0), *self._rows.values()])
        assert len(np.unique(standing)) == len(standing)


# Which nodes may be asked about? If rows are hidden, a party cannot see the rows of a node: each
# question may be about other rows, and each split shows where all rows go. The party checks the
# numbering of nodes, and the terms.


class AskedNodes:
    """The nodes of a tree under ``terms``; at most ``rounds`` rounds ask about each node.

    A question covers at most ``nodes_per_query`` nodes of one depth and their siblings: this party
    may split that many nodes of a depth. A node that is asked about or split stands below splits of
    any party.
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
        self._compared: set[int] = set()
        self._nodes_per_question = 2 * nodes_per_query
        self._may_split: Counter[int] = Counter()
        """The number of asked nodes, by depth."""

    def ask(self, node: int, number: int) -> None:
        """Note round ``number`` of the questions about ``node``.

        Raises:
            ProtocolError: it is not the next round, or no tree of these terms can have the node.
        """
        here, first = self._check_stands(node), node not in self._rounds
        if number != self._rounds.get(node, 0) or number >= self._most_rounds:
            raise ProtocolError(f"round {number} of questions about node {node} is not due")
        self._rounds[node] = number + 1
        if len(self._rounds) > self._most_nodes:
            raise ProtocolError(f"sums of more than {self._most_nodes:,} nodes of a tree")
        self._add_splits(parent(node))
        self._may_split[here] += self._nodes_per_question if first else 0

    def compare(self, nodes: Sequence[int]) -> None:
        """Note a comparison for ``nodes``, whose sums are hidden.

        Raises:
            ProtocolError: there are no nodes, or one was not asked about or was compared before.
        """
        for node in nodes:
            asked = node in self._rounds or (node > ROOT and sibling(node) in self._rounds)
            if not asked or node in self._compared:
                raise ProtocolError(f"a comparison of node {node}, which is not due")
            self._compared.add(node)
        if not nodes:
            raise ProtocolError("a comparison of no nodes")

    def split(self, node: int) -> None:
        """Note that this party splits ``node``.

        Raises:
            ProtocolError: it was split before, or no tree of these terms can have the node.
        """
        here = self._check_stands(node)
        if node in self._decoys:
            raise ProtocolError(f"a split of node {node} after a decoy about it")
        if not self._may_split[here]:
            raise ProtocolError(f"a split of node {node}, but no question about its level")
        self._add_splits(node)
        self._may_split[here] -= 1

    def decoy(self, node: int) -> None:
        """Note a decoy decision about ``node``: this party does not split it.

        Raises:
            ProtocolError: it was decided about before, or no tree of these terms has the node.
        """
        self._check_stands(node)
        if node in self._decoys:
            raise ProtocolError(f"a second decoy about node {node}")
        self._decoys.add(node)

    def _check_stands(self, node: int) -> int:
        """The depth of ``node``, which is not split yet."""
        if (here := depth(node)) >= self._most_depth:
            raise ProtocolError(f"node {node} lies below max_depth = {self._most_depth}")
        if node in self._splits:
            raise ProtocolError(f"node {node} has been split before")
        return here

    def _add_splits(self, node: int) -> None:
        """Note ``node`` and all its ancestors as splits."""
        while node and node not in self._splits:
            self._splits.add(node)
            node = parent(node)
        if len(self._splits) > self._most_splits:
            raise ProtocolError(f"more than {self._most_splits:,} splits of a tree")


@dataclass(slots=True)
class HistogramRequest:
    """A request of a round with its query ``pieces``; ``missing``: outstanding pieces by node.

    ``limits``: on all pieces of a node together.
    """

    round: int
    missing: dict[int, int]
    pieces: dict[int, list[Values]]
    limits: Mapping[int, SizeLimit]
    bytes: Counter[int] = field(default_factory=Counter)
    taking: int = 0
    """The number of running engine plans that began with pieces."""

    @property
    def is_complete(self) -> bool:
        """Whether all query pieces have arrived, and no plan still runs on a piece."""
        return not self.taking and not any(self.missing.values())


class HistogramRequests:
    """The unanswered requests about tree ``tree``."""

    def __init__(self, tree: int) -> None:
        self._tree = tree
        self._open: list[HistogramRequest] = []
        self._declined: dict[int, int] = {}
        """Query pieces under way for declined nodes."""

    def add(self, body: training.HistogramRequest, limits: Mapping[int, SizeLimit]) -> None:
        """Add a request about existing nodes; ``limits``: of the query, by node.

        Raises:
            ProtocolError: the request announces more pieces.
        """
        for query in body.nodes:
            if query.pieces > (limit := limits[query.node].pieces):
                raise ProtocolError(
                    f"a query of {query.pieces} pieces about node {query.node}; it takes {limit}"
                )
        missing = {query.node: query.pieces for query in body.nodes}
        pieces: dict[int, list[Values]] = {node: [] for node in missing}
        self._open.append(HistogramRequest(body.round, missing, pieces, limits))

    def add_piece(self, body: training.QueryPiece) -> HistogramRequest | None:
        """Add a piece of a query; returns its request, or None if its node was declined.

        Raises:
            ProtocolError: the piece was not announced, or the query is too long.
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
            raise ProtocolError(f"an unannounced query piece for node {body.node}")
        request.bytes[body.node] += payload_bytes(body.payload)
        if request.bytes[body.node] > (limit := request.limits[body.node].bytes):
            raise ProtocolError(
                f"a query of {request.bytes[body.node]:,} bytes or more about node "
                f"{body.node}; it takes {limit:,}"
            )
        request.pieces[body.node].append(unpack_payload(body.payload))
        request.missing[body.node] -= 1
        return request

    def decline(self, is_too_small: Callable[[int], bool]) -> Sequence[int]:
        """Drop nodes that are too small from all requests; returns these nodes."""
        declined = []
        for request in self._open:
            for node in [node for node in request.pieces if is_too_small(node)]:
                self._declined[node] = request.missing.pop(node)
                del request.pieces[node]
                declined.append(node)
        return declined

    def take_complete(self) -> Sequence[tuple[int, Mapping[int, Sequence[Values]]]]:
        """Remove the complete requests; returns their rounds and query pieces by node."""
        complete = [request for request in self._open if request.is_complete]
        self._open = [request for request in self._open if not request.is_complete]
        return [(request.round, request.pieces) for request in complete if request.pieces]


class CandidateDisclosure:
    """Decides which ``candidates`` of tree ``tree`` are shown; its nodes hold ``rows``.

    Their order is ``canonical`` where nobody sees an order: circuits let the first of a tie win.
    """

    def __init__(
        self,
        rules: DisclosureRules,
        tree: int,
        candidates: NodeCandidates,
        rows: PassiveNodeRows,
        *,
        canonical: bool,
    ) -> None:
        self._canonical = canonical or rows.hidden
        self._rules = rules
        self._candidates = candidates
        self._rows = rows
        self._orders = CandidateOrders(tree, rules.bins, candidates, rules.secret, rules.root)
        self._kept: dict[int, NDArray[np.bool_]] = {}
        """The tree's candidates with large enough cells, by node."""

    def order(self, node: int) -> NDArray[np.int64] | None:
        """The candidates of ``node`` in their shown order; None before they are shown."""
        return self._orders.by_node.get(node)

    @property
    def lengths(self) -> Sequence[int]:
        """The number of shown candidates of each node."""
        return [len(order) for order in self._orders.by_node.values()]

    def carrying(self, node: int) -> NDArray[np.int32]:
        """The rows of ``node`` that carry a gradient, as far as this party knows."""
        rows = self._rows.rows(node)
        if rows is None:
            raise ProtocolError(f"sums of node {node ^ 1}, whose sibling was split meanwhile")
        learning = marked(rows, self._rules.learning)
        return learning if self._rows.hidden else marked(learning, self._rows.carrying)

    def orders(self, nodes: Collection[int]) -> Plan[Mapping[int, NDArray[np.int64]]]:
        """The shown candidates of each of ``nodes``, chosen at the first question.

        If rows are hidden, cells are those of the root, and the order is canonical.

        Raises:
            ProtocolError: the large enough cells of a node can no longer be determined.
        """
        orders = self._orders.by_node
        new = [node for node in nodes if node not in orders]
        if new:
            yield from self._choose(new)
        return {node: orders[node] for node in nodes}

    def _choose(self, new: Sequence[int]) -> Plan[None]:
        if self._canonical:
            yield from self._merge([ROOT] if self._rows.hidden else new)
            for node in new:
                self._orders.by_node[node] = self._shown(node)
            return
        carrying = {node: self.carrying(node) for node in new}
        yield from self._merge(new)
        yield from self._orders.draw(carrying, {node: self._shown(node) for node in new})

    def _shown(self, node: int) -> NDArray[np.int64]:
        """The candidates of ``node`` with large enough cells."""
        kept = self._kept.get(ROOT if self._rows.hidden else node)
        places = self._candidates.places(node)
        return np.arange(len(places)) if kept is None else np.flatnonzero(kept[places])

    def _merge(self, nodes: Collection[int]) -> Plan[None]:
        """Choose the unmerged cells of ``nodes`` and their siblings."""
        if not self._rules.smallest_cell:
            return
        missing = [node for node in nodes if node not in self._kept]
        families = {_family(node): self._siblings(_family(node)) for node in missing}
        if not families:
            return
        merge = merge_cells.bind(
            self._rules.bins,
            self._candidates.of_tree,
            tuple(families.values()),
            self._rules.smallest_cell,
        )
        for family, kept in zip(families, (yield from single(merge)), strict=True):
            self._kept |= dict.fromkeys(family, kept)

    def _siblings(self, family: tuple[int, ...]) -> Siblings:
        above = self._kept.get(parent(family[0]))
        if above is None and family == (ROOT,):
            above = np.ones(len(self._candidates.of_tree), dtype=np.bool_)
        if above is None:
            raise ProtocolError(f"sums of node {family[0]}, but not of its parent")
        return Siblings(tuple(map(self.carrying, family)), above)


def _family(node: int) -> tuple[int, ...]:
    """The root alone, or ``node`` and its sibling."""
    return (ROOT,) if node == ROOT else children(parent(node))
