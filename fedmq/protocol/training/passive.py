"""What does a passive party do in a training (SecureBoost, Algorithm 1)?

It answers sums over ciphertexts per opaque candidate, keeps its own thresholds, and discloses of
its winning candidates no more than a record id and who goes left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix
from fedmq.boosting.model.continued import continued_passive
from fedmq.boosting.model.lookup_table import LookupTable
from fedmq.boosting.model.share import PassiveShare, Withheld
from fedmq.boosting.splits import CandidateTable
from fedmq.computation import Computation
from fedmq.errors import FedmqError, ProtocolError, Refused, SourceAway
from fedmq.messages import training
from fedmq.messages.array import Bitmap, pack_payload, unpack_payload
from fedmq.messages.body import Abort, SessionRefuse, SessionUnknown
from fedmq.messages.inference import HopReply, InferenceHop
from fedmq.messages.training import TrainingOpen
from fedmq.privacy.engine import ALONE, BroadcastPiece, Engine, PassiveHalf, Place, Query
from fedmq.privacy.plan import Exchange, Handed, HandOn, Plan, Reply, Values, single
from fedmq.protocol.events import (
    ComputationFailed,
    Event,
    Finish,
    Interrupted,
    Received,
    Report,
    Save,
)
from fedmq.protocol.hops import AnswerHop
from fedmq.protocol.machine import (
    REFUSES,
    UNLOADED,
    Machine,
    OwnConsent,
    RunningPlan,
    on_message,
)
from fedmq.protocol.records import (
    AnsweredSums,
    Commitment,
    PassiveTree,
    Signing,
    SumBudget,
    all_places,
    all_records,
)
from fedmq.protocol.training.candidates import NodeCandidates, RootCells
from fedmq.protocol.training.circuits import Circuits, HandedOn
from fedmq.protocol.training.columns import (
    ColumnMarks,
    KeptConstraints,
    category_places,
    columns_by_sets,
    kept_constraints,
    shown_categories,
)
from fedmq.protocol.training.commitment import committed, noise_secret
from fedmq.protocol.training.computations import BinTable, recorded, went_left
from fedmq.protocol.training.continuation import check_earlier, kept_before
from fedmq.protocol.training.passive_growth import (
    AskedNodes,
    GrowingTree,
    HistogramRequest,
    NodeRows,
    Showing,
    ShownCandidates,
)
from fedmq.protocol.training.states import (
    EARLIER_DIRECTIONS,
    GRADIENTS_HERE,
    OUT_OF_REACH,
    PASSIVE_TRAINING,
    PIECE_TAKEN,
    PREPARED,
    RECEIVED,
    SHOWN,
    SUMS,
    WINNERS,
    PassiveTrainingState,
)
from fedmq.protocol.training.sums_counter import SumsCounter, check_sums_bytes
from fedmq.protocol.training.tables import PassiveTable
from fedmq.protocol.training.transcripts import Transcripts

__all__ = [
    "FindShare",
    "PassiveContinuing",
    "PassiveOpening",
    "PassiveTraining",
    "PreparedTraining",
]


@dataclass(frozen=True, slots=True, eq=False)
class PreparedTraining:
    """``constraints`` are those of its columns, ``agreed`` is to be recorded."""

    spec: Engine
    engine: PassiveHalf
    table: PassiveTable
    bins: BinMatrix
    candidates: int
    constraints: KeptConstraints
    setup: Sequence[Values]
    showing: Showing
    counter: SumsCounter
    agreed: Sequence[SumBudget]
    commitment: Commitment | None


FindShare = Callable[[str], Computation]
"""Finds this party's share of a model by its name; None where there is none."""


class PassiveContinuing(Machine):
    """Says where rows go in the earlier trees; no tree has begun in this attempt."""

    _find_share: FindShare | None
    _earlier: tuple[PassiveShare, PassiveTable] | None = None
    _terms: TrainingOpen
    _saved: tuple[PassiveTree, ...] | None
    """The trees of earlier attempts, until the first tree of this one has begun."""

    def _finding(self, party: str, table: PassiveTable) -> Plan[None]:
        """Find this party's share of the model that the terms name; Refused without it."""
        model = self._terms.earlier_model
        if not model:
            return
        if self._find_share is None:
            raise Refused(f"{party} continues no models")
        share: PassiveShare | None = yield from single(self._find_share(model))
        if share is None:
            raise Refused(f"{party} has no share of model {model!r}")
        check_earlier(party, share, table, self._terms)
        self._earlier = share, table

    @on_message(InferenceHop)
    def _on_hop(self, peer: str, hop: InferenceHop) -> None:
        if self._earlier is None or self._saved is None:
            raise ProtocolError("directions in trees of an earlier model, out of place")
        share, table = self._earlier
        rows, records = hop.rows.numpy(), hop.records.numpy()
        if (len(rows) and int(rows.max()) >= len(table.values)) or (
            len(records) and int(records.max()) >= len(share.lookup_table)
        ):
            raise ProtocolError(f"hop {hop.hop} asks for rows or records that do not exist")
        here = rows.astype(np.int64)
        counts = hop.counts.numpy()
        computation = AnswerHop(share.lookup_table, table.values, records, counts, here)
        answer = partial(self._answer_hop, peer, hop.hop)
        self._run(EARLIER_DIRECTIONS, single(computation), answer)

    def _answer_hop(self, peer: str, hop: int, left: NDArray[np.bool_]) -> None:
        self._send(peer, HopReply(hop=hop, left=Bitmap.of(left)))

    def _with_earlier(self, share: PassiveShare) -> PassiveShare:
        """``share`` of the new trees, with the records of those that they continue."""
        trees = self._terms.earlier_trees
        if self._earlier is not None:
            return continued_passive(self._earlier[0], share, trees)
        later = tuple((tree + trees, node) for tree, node in share.places)
        return share.model_copy(update={"places": later})


State = PassiveTrainingState


class PassiveOpening(PassiveContinuing):
    """Reads the terms, prepares for them, and accepts or refuses them.

    ``load`` computes the :class:`PassiveTable`. ``engine`` finds an engine by its name, or raises
    Refused. ``secret`` seeds the order in which candidates are shown; it must not be guessable.
    Nodes in which fewer than ``smallest_node`` rows carry a gradient are declined: the sums of few
    rows would disclose their gradients. In the others, cells of fewer than ``smallest_cell`` rows
    are merged; 0: none. ``saved`` is this party's part of the trees of earlier
    attempts at the session; ``returning``: there were some, so a table out of reach is waited for;
    ``finished``: one of them has finished here.
    ``answered``: what was answered before, and may be; not counted without it. ``most_sums_bytes``
    may be taken by the sums of a tree. With ``signing`` it commits to its table, and signs.
    ``find_share``: of a model that is continued. ``consent_within``: seconds within which this
    party's owner answers whether it takes part, and nothing is read before; 0: nobody is asked.
    ``others``: the passive parties with which it finds winners, where sums are hidden.
    """

    TABLE = PASSIVE_TRAINING
    PARTS = (OwnConsent,)
    failed_state = State.FAILED
    interrupted_state = State.INTERRUPTED

    def __init__(
        self,
        party: str,
        peer: str,
        load: Computation,
        engine: Callable[[str], Engine],
        secret: int,
        parallelism: int = 1,
        saved: Sequence[PassiveTree] = (),
        smallest_node: int = 0,
        smallest_cell: int = 0,
        returning: bool = False,
        finished: bool = False,
        answered: AnsweredSums | None = None,
        most_sums_bytes: int | None = None,
        signing: Signing | None = None,
        find_share: FindShare | None = None,
        consent_within: int = 0,
        others: Sequence[str] = (),
    ) -> None:
        super().__init__(State.READY, (peer, *others))
        if signing is not None:
            self.witness = Transcripts(self, party, (peer,), signing, active=peer)
        self._party = party
        self._peer = peer
        self._load = load
        self._find_engine = engine
        self._secret = secret
        self._parallelism = parallelism
        self._smallest_node = smallest_node
        self._smallest_cell = smallest_cell
        self._returning = returning
        self._finished = finished
        self._answered = answered
        self._withheld = Withheld(smallest_node=smallest_node, smallest_cell=smallest_cell)
        """Of all trees: an earlier attempt may have had another policy."""
        for tree in saved:
            self._withheld = self._withheld.and_of(tree.withheld)
        self._most_sums_bytes = most_sums_bytes
        self._find_share = find_share
        self._consent = OwnConsent(self, consent_within, self._prepare, self._refuse)
        self._attach(self._consent)
        self._saved: tuple[PassiveTree, ...] | None = tuple(saved)
        """The trees of earlier attempts, until the active party has chosen which of them stay."""
        self._next_tree = saved[-1].number + 1 if saved else 0
        # Set when the session opens, when all is prepared, and when the first tree begins:
        self._terms: training.TrainingOpen
        self._spec: Engine
        self._prepared: PreparedTraining
        self._records: LookupTable
        self._places: list[tuple[int, int]] = []
        """Tree and node of each record."""

    @property
    def awaits_consent(self) -> bool:
        return self.state is State.ASKING

    @property
    def table(self) -> PassiveTable:
        """What it trains on, once all is prepared."""
        return self._prepared.table

    @on_message(training.TrainingOpen)
    def _on_open(self, _: str, body: training.TrainingOpen) -> None:
        self._terms = body
        try:
            self._spec = self._find_engine(body.engine).on_terms(body.sums)
        except FedmqError as error:
            self._refuse(Refused(str(error)))
            return
        self._consent.begin(self._peer)

    def _prepare(self) -> None:
        self._run(PREPARED, self._preparing(self._spec), self._accept)

    def _preparing(self, spec: Engine) -> Plan[PreparedTraining]:
        table: PassiveTable = yield from single(self._load)
        table.check(self._party, self._peer, self._terms, self._saved or ())
        if self._terms.outputs > 1 and not spec.takes_vectors:
            raise Refused(f"engine {spec.name} sums one g and h a row, not {self._terms.outputs}")
        if set(self._terms.chain) - {self._party} != set(self.peers) - {self._peer}:
            raise Refused(f"{self._party} was not told who takes part")
        if self._terms.decoys and spec.hides_rows:
            raise Refused(f"engine {spec.name!r} has no decoys")
        yield from self._finding(self._party, table)
        learning = ~self._terms.evaluation.numpy()
        constraints = kept_constraints(self._party, table, self._terms, spec)
        columns = tuple(category_places(table).values())
        by_sets = self._terms.max_cat_to_onehot or None
        if by_sets is not None and not spec.finds_sets:
            raise Refused(f"engine {spec.name!r} finds no sets of categories")
        bins = yield from single(
            BinTable(table.values, learning, self._terms.max_bin, columns, by_sets)
        )
        candidates = len(CandidateTable.of(bins.cuts))
        answered = None if spec.hides_sums else self._answered
        counter = SumsCounter(self._party, answered, table.row_set, int(learning.sum()))
        try:
            engine = spec.passive(unpack_payload(self._terms.public), bins, self._parallelism)
            secret = noise_secret(self._secret)
            engine.start_session(learning, self._terms.value_bits, secret, self._terms.outputs)
            check_sums_bytes(self._party, engine, self._terms, self._most_sums_bytes)
        except FedmqError as error:
            raise Refused(str(error)) from error
        agreed = counter.agree(self._terms, self._next_tree, candidates, engine.nodes_per_query)
        setup = yield from engine.setup()
        root = RootCells(int(np.count_nonzero(learning)))
        showing = Showing(bins, self._secret, self._smallest_cell, learning, root)
        commitment = None
        if self.witness is not None:
            limits = (self._smallest_node, self._smallest_cell)
            commitment = yield from committed(spec, table, bins, self._secret, *limits)
        return PreparedTraining(
            spec,
            engine,
            table,
            bins,
            candidates,
            constraints,
            setup,
            showing,
            counter,
            agreed,
            commitment,
        )

    def _accept(self, prepared: PreparedTraining) -> None:
        self._prepared, setup, commitment = prepared, prepared.setup, prepared.commitment
        self._effects += map(Save, prepared.agreed)
        if commitment is not None:
            self._emit(Save(commitment))
        accept = training.SessionAccept(
            setup_pieces=len(setup),
            trees=self._next_tree,
            candidates=prepared.candidates,
            signed=bool(prepared.constraints.signs.any()),
            by_sets=bool(prepared.bins.cuts.category_columns),
            smallest_node=self._withheld.smallest_node,
            smallest_cell=self._withheld.smallest_cell,
            commitment=b"" if commitment is None else commitment.root,
        )
        self._send(self._peer, accept)
        for number, values in enumerate(setup):
            payload = pack_payload(values)
            self._send(self._peer, training.EngineSetup(piece=number, payload=payload))

    def _on_computation_failed(self, event: ComputationFailed) -> None:
        if self.state is not State.PREPARING:
            super()._on_computation_failed(event)
        elif self._returning and isinstance(event.error, SourceAway):
            self._move(OUT_OF_REACH)
            self._emit(Interrupted(self._party, f"cannot reach its data: {event.error}"))
        else:
            self._refuse(event.error)

    def _refuse(self, error: FedmqError) -> None:
        # What went wrong may quote this party's data. The peer reads what was meant for it alone.
        reason = str(error)[:2000] if isinstance(error, Refused) else UNLOADED
        self._move(REFUSES)
        self._send(self._peer, SessionRefuse(reason=reason))
        self._fail(error, but=self._peer, disclosed=reason)


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
                self._effects += map(Save, counter.answer(tree.number, rows_of, most))
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
        self._effects += map(Save, self._prepared.counter.end_tree(tree.number, shown))
        del self._growing
        records = self._records.since(tree.records_before)
        nodes = tuple(node for number, node in self._places if number == tree.number)
        digest = self._prepared.table.digest
        self._emit(Save(PassiveTree(tree.number, records, digest, nodes, self._withheld)))
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
