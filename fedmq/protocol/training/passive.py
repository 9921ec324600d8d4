"""What does a feature holder do in a training (SecureBoost, Algorithm 1)?

It answers sums over ciphertexts per opaque candidate, keeps its own thresholds, and discloses of
its winning candidates no more than a record id and who goes left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.share import PassiveShare
from fedmq.errors import ProtocolError, Refused
from fedmq.messages import training
from fedmq.messages.array import Bitmap, pack_payload, unpack_payload
from fedmq.messages.body import Abort, SessionUnknown
from fedmq.privacy.contest import ALONE, Place
from fedmq.privacy.engine import BroadcastPiece, Query
from fedmq.privacy.plan import Exchange, Handed, HandOn, Plan, Reply, Values
from fedmq.protocol.events import (
    Event,
    Finish,
    Received,
    Report,
    SaveCheckpoint,
)
from fedmq.protocol.machine import RunningPlan, on_message
from fedmq.protocol.records import PassiveTree, all_places, all_records
from fedmq.protocol.training.asked_nodes import AskedNodes
from fedmq.protocol.training.candidate_categories import shown_categories
from fedmq.protocol.training.category_columns import columns_by_sets
from fedmq.protocol.training.circuits import Circuits
from fedmq.protocol.training.column_marks import ColumnMarks
from fedmq.protocol.training.computations import recorded, went_left
from fedmq.protocol.training.earlier_attempts import kept_before
from fedmq.protocol.training.growing_tree import GrowingTree
from fedmq.protocol.training.handed_on import HandedOn
from fedmq.protocol.training.histogram_requests import HistogramRequest
from fedmq.protocol.training.node_candidates import NodeCandidates
from fedmq.protocol.training.node_rows import NodeRows
from fedmq.protocol.training.passive_opening import PassiveOpening
from fedmq.protocol.training.shown_candidates import ShownCandidates
from fedmq.protocol.training.states import (
    GRADIENTS_HERE,
    PIECE_TAKEN,
    RECEIVED,
    SHOWN,
    SUMS,
    WINNERS,
    PassiveTrainingState,
)

__all__ = ["PassiveTraining"]

State = PassiveTrainingState


class PassiveTraining(PassiveOpening):
    """Trains with the active party ``peer``; finishes with a :class:`PassiveShare`.

    Of a cross-validation it keeps none, and finishes with None.
    """

    _growing: GrowingTree
    _circuits: Circuits
    _handed: HandedOn
    """Set when a tree begins."""

    def _take(self, event: Event) -> str:
        if isinstance(event, Received) and event.sender != self._peer:
            if isinstance(event.body, Abort):
                return ""  # the active party hears of it, and says so
            if not isinstance(event.body, training.BestSoFar | SessionUnknown):
                raise ProtocolError(f"{event.body.kind} from {event.sender}, which asks nothing")
        return super()._take(event)

    def check(self) -> None:
        if self.state is State.GROWING:
            self._growing.rows.check()

    # A tree begins

    def _rewind(self, tree: int) -> None:
        """Of what earlier attempts have saved, keep what comes before ``tree``."""
        if self._saved is None:
            return
        kept = kept_before(tree, self._saved, finished=self._finished)
        self._records = all_records(self._prepared.table.features, kept)
        self._places = all_places(kept)
        self._next_tree = kept[-1].number + 1 if kept else 0
        self._saved = None

    @on_message(training.TreeStarted)
    def _on_tree_started(self, _: str, body: training.TreeStarted) -> None:
        self._rewind(body.tree)
        if not max(self._next_tree, self._terms.active_only_trees) <= body.tree < self._terms.trees:
            raise ProtocolError(f"tree {body.tree} is not next")
        prepared, terms = self._prepared, self._terms
        candidates = NodeCandidates(prepared.bins, terms, body.tree // terms.folds)
        prepared.engine.start_tree(body.tree, candidates.of_tree)
        rows = NodeRows(terms.rows, terms.max_depth, hidden=prepared.spec.hides_rows)
        shown = ShownCandidates(prepared.showing, body.tree, candidates, rows)
        self._growing = GrowingTree(
            body.tree,
            body.pieces,
            candidates,
            shown,
            rows,
            AskedNodes(terms, prepared.engine.queries_per_node, prepared.engine.nodes_per_query),
            ColumnMarks(prepared.constraints),
            prepared.engine,
            len(self._records),
            keeps_numbers=prepared.spec.keeps_numbers,
            hides_sums=prepared.spec.hides_sums,
        )
        self._circuits = Circuits(self._send, self._resume, opens=False)
        self._handed = HandedOn(self._resume)
        if not body.pieces:
            rows.carrying[:] = True
            self._move(GRADIENTS_HERE)

    @on_message(training.GradientBroadcast)
    def _on_broadcast(self, _: str, body: training.GradientBroadcast) -> None:
        tree = self._growing
        if body.tree != tree.number or tree.to_arrive == 0:
            raise ProtocolError(f"a gradient piece of tree {body.tree} that was not announced")
        rows = body.rows.numpy()
        if len(rows) and int(rows.max()) >= self._terms.rows:
            raise ProtocolError(f"a gradient for row {int(rows.max())}, there is no such row")
        tree.to_arrive -= 1
        tree.rows.carrying[rows] = True
        piece = BroadcastPiece(rows, unpack_payload(body.payload))
        self._run(RECEIVED, self._prepared.engine.receive(tree.number, piece), self._received)

    def _received(self, _: None) -> None:
        self._growing.to_take -= 1
        if self._growing.to_take == 0:
            self._move(GRADIENTS_HERE)
            self._answer_complete()

    # Sums

    @on_message(training.HistogramRequest)
    def _on_request(self, _: str, body: training.HistogramRequest) -> None:
        self._growing.request(body)
        self._answer_complete()

    @on_message(training.QueryPiece)
    def _on_query_piece(self, _: str, body: training.QueryPiece) -> None:
        request = self._growing.requests.add_piece(body)
        if request is not None and self.state is State.GROWING:
            self._begin_with(request, body)
        self._answer_complete()

    def _begin_with(self, request: HistogramRequest, body: training.QueryPiece) -> None:
        """Let the engine begin with a piece before the others are here, if it does."""
        piece = request.pieces[body.node][-1]
        take = self._prepared.engine.take_piece(
            body.tree, body.node, body.round, piece, alone=len(request.pieces) == 1
        )
        if take is not None:
            request.taking += 1
            self._run(PIECE_TAKEN, take, partial(self._with_piece, request))

    def _with_piece(self, request: HistogramRequest, _: None) -> None:
        request.taking -= 1
        self._answer_complete()

    def _answer_complete(self) -> None:
        if self.state is not State.GROWING:
            return
        tree = self._growing
        for node in tree.requests.decline(self._is_too_small):
            self._send(self._peer, training.NodeDeclined(tree=tree.number, node=node))
        for number, pieces_of in tree.requests.take_complete():
            rows_of = {
                node: rows for node in pieces_of if (rows := tree.rows.rows(node)) is not None
            }
            if len(rows_of) < len(pieces_of):
                raise ProtocolError("sums of nodes that have been split meanwhile")
            try:
                counter, most = self._prepared.counter, len(tree.candidates.of_tree)
                most *= self._sums_per_candidate
                self._effects += counter.answer(tree.number, rows_of, most)
            except Refused as error:
                self._fail(error)
                return
            answering = self._answering(tree, number, rows_of, pieces_of)
            self._run(SUMS, answering, lambda _: None, partial(self._reply, number))

    def _answering(
        self,
        tree: GrowingTree,
        number: int,
        rows_of: Mapping[int, NDArray[np.int32]],
        pieces_of: Mapping[int, Sequence[Values]],
    ) -> Plan[None]:
        """Answer round ``number`` about nodes that have so many rows, by query pieces."""
        orders = yield from tree.shown.orders(rows_of)
        queries = [
            Query(
                tree.number,
                node,
                number,
                rows,
                tree.candidates.of_node(node),
                orders[node],
                pieces,
            )
            for (node, rows), pieces in zip(rows_of.items(), pieces_of.values(), strict=True)
        ]
        yield from self._prepared.engine.answer(queries)

    @property
    def _sums_per_candidate(self) -> int:
        """What an answered query counts for each candidate."""
        return self._prepared.engine.nodes_per_query * self._terms.outputs

    def _is_too_small(self, node: int) -> bool:
        """Whether fewer rows carry a gradient there than this party discloses sums of."""
        rows = self._growing.rows.rows(node)
        if not self._smallest_node or self._growing.rows.hidden or rows is None:
            return False
        return len(self._growing.shown.carrying(node)) < self._smallest_node

    def _reply(self, number: int, step: Exchange | Reply, _: RunningPlan) -> None:
        assert isinstance(step, Reply)
        tree = self._growing
        order = tree.shown.order(step.node)
        shown = {}
        if order is not None:
            candidates = tree.candidates.of_node(step.node)
            shown = tree.marks.shown(step.node, candidates.columns[order])
            if candidates.categories:
                shown["categories"] = shown_categories(candidates, order)
        for index, values in enumerate(step.pieces):
            self._send(
                self._peer,
                training.HistogramReply(
                    tree=tree.number,
                    node=step.node,
                    round=number,
                    piece=index,
                    pieces=len(step.pieces),
                    payload=pack_payload(values),
                    **(shown if index == 0 else {}),
                ),
            )

    # Winners, where sums are hidden

    @on_message(training.CircuitPiece)
    def _on_circuit_piece(self, peer: str, body: training.CircuitPiece) -> None:
        if body.parcel:
            self._circuits.hear(peer, body)
            return
        if body.tree != self._growing.number or body.piece or body.level[:1] != (body.node,):
            raise ProtocolError(f"circuits of node {body.node} that begin out of place")
        nodes, engine = body.level, self._prepared.engine
        candidates, place = self._growing.contest(nodes), self._place(body.chain)
        most = engine.contest_bytes(len(nodes), candidates, place)
        self._circuits.begin(peer, body.tree, nodes, most)
        follow = partial(self._follow_circuits, body.chain, body.tree, body.node)
        then = partial(self._with_winners, nodes)
        self._run(WINNERS, engine.find_winners(nodes, place), then, follow)

    def _place(self, chain: tuple[str, ...]) -> Place:
        """This party's among those of ``chain``."""
        if not chain:
            return ALONE
        known = [party for party in self._terms.chain if party in chain]
        if known != list(chain) or self._party not in chain:
            raise ProtocolError("a chain of parties that is not as the session's")
        return Place(chain.index(self._party) + 1, len(chain))

    def _follow_circuits(
        self,
        chain: tuple[str, ...],
        tree: int,
        node: int,
        step: Exchange | Reply,
        run: RunningPlan,
    ) -> None:
        if isinstance(step, HandOn):
            [piece] = step.pieces
            share = training.BestSoFar(tree=tree, node=node, payload=pack_payload(piece))
            self._send(chain[chain.index(self._party) + 1], share)
        elif isinstance(step, Handed):
            self._handed.wait(chain[chain.index(self._party) - 1], node, run)
        else:
            self._circuits.follow(self._peer, node, step, run)

    @on_message(training.BestSoFar)
    def _on_best_so_far(self, peer: str, body: training.BestSoFar) -> None:
        """Of a contest that may not have begun here."""
        if body.tree != self._growing.number or peer == self._peer:
            raise ProtocolError(f"shares of node {body.node}, out of place")
        self._handed.take(peer, body.node, [unpack_payload(body.payload)])

    def _with_winners(
        self, nodes: Sequence[int], winners: tuple[NDArray[np.bool_], NDArray[np.int64]]
    ) -> None:
        self._circuits.end(self._peer, nodes[0])
        self._growing.take_winners(nodes, *winners)

    # Splits

    @on_message(training.DirectionsQuery)
    def _on_directions_query(self, _: str, body: training.DirectionsQuery) -> None:
        self._growing.ask_directions(body)

    @on_message(training.SplitDecision)
    def _on_decision(self, _: str, body: training.SplitDecision) -> None:
        tree = self._growing
        rows = tree.rows.rows(body.node)
        if body.tree != tree.number or rows is None:
            raise ProtocolError(f"a split of node {body.node}, there is no such node")
        if self._terms.decoys and body.is_decoy:
            self._show(body.node, len(self._records), np.zeros(tree.decoy(body.node), np.bool_))
            return
        winner, pieces = tree.winner(body), tree.split(body.node)
        candidates = tree.candidates.of_node(body.node)
        first = winner if isinstance(winner, int) else int(winner.right[0])
        tree.marks.split(body.node, int(candidates.columns[first]))
        self._records, record = recorded(self._records, candidates, winner)
        self._places.append((tree.number, body.node))
        left = went_left(self._records, record, self._prepared.table.values, rows)
        showing = self._prepared.engine.show_directions(tree.number, body.node, left, pieces)
        self._run(SHOWN, showing, partial(self._show, body.node, record))
        tree.rows.divide(body.node, left)

    def _show(self, node: int, record: int, shown: NDArray[np.bool_]) -> None:
        outcome = training.SplitOutcome(
            tree=self._growing.number, node=node, record=record, left=Bitmap.of(shown)
        )
        self._send(self._peer, outcome)

    @on_message(training.NodeAssignment)
    def _on_assignment(self, _: str, body: training.NodeAssignment) -> None:
        tree = self._growing
        if self._terms.decoys and (body.tree, body.node) in self._places[tree.records_before :]:
            return  # its own split, assigned so that nobody can tell whose it is
        rows = None if tree.rows.hidden else tree.rows.rows(body.node)
        if body.tree != tree.number or rows is None or body.left.count != len(rows):
            raise ProtocolError(f"an assignment of node {body.node} that does not fit")
        tree.rows.divide(body.node, body.left.numpy())

    @on_message(training.TreeFinished)
    def _on_tree_finished(self, _: str, body: training.TreeFinished) -> None:
        tree = self._growing
        if body.tree != tree.number or self._plans:
            raise ProtocolError(f"tree {body.tree} is not complete")
        self._prepared.engine.forget_tree()
        shown = [self._sums_per_candidate * length for length in tree.shown.lengths]
        self._effects += self._prepared.counter.end_tree(tree.number, shown)
        del self._growing
        records = self._records.since(tree.records_before)
        nodes = tuple(node for number, node in self._places if number == tree.number)
        digest = self._prepared.table.digest
        self._emit(SaveCheckpoint(PassiveTree(tree.number, records, digest, nodes, self._withheld)))
        self._send(self._peer, training.TreeSaved(tree=tree.number))
        self._next_tree = tree.number + 1
        self._emit(Report(self._next_tree, self._terms.trees, "tree", {}))

    # Endings

    @on_message(training.SessionFinished)
    def _on_finished(self, _: str, body: training.SessionFinished) -> None:
        self._rewind(body.trees)
        if body.trees < self._next_tree:
            raise ProtocolError(f"a model of {body.trees} trees, {self._next_tree} have grown")
        if self._terms.folds > 1:
            self._emit(Finish(None))
            return
        complete = len(self._places) == len(self._records)  # an old checkpoint may lack some
        columns = columns_by_sets(self._prepared.table, self._prepared.bins.cuts)
        share = PassiveShare(
            model_id=self._terms.model,
            party=self._party,
            lookup_table=self._records.model_copy(update={"category_columns": columns}),
            places=tuple(self._places) if complete else (),
            withheld=self._withheld,
        )
        self._emit(Finish(self._with_earlier(share)))
