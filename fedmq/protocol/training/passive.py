"""A feature holder's machine of a training session (SecureBoost, Algorithm 1).

It answers sums over ciphertexts per opaque candidate, keeps its own thresholds, and says of its
winning candidates no more than a record id and who goes left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix
from fedmq.boosting.candidates import CandidateTable
from fedmq.boosting.model.lookup_table import LookupTable
from fedmq.boosting.model.share import PassiveShare
from fedmq.boosting.node_numbers import ROOT, children, depth
from fedmq.computation import Computation
from fedmq.errors import FedmqError, ProtocolError, Refused, SourceAway
from fedmq.messages import training
from fedmq.messages.array import Bitmap, pack_payload, unpack_payload
from fedmq.messages.body import SessionRefuse
from fedmq.privacy.engine import BroadcastPiece, Engine, PassiveHalf, Query
from fedmq.privacy.plan import Exchange, Reply, Values, single
from fedmq.protocol.checkpoint import PassiveTree, all_records, last_records
from fedmq.protocol.events import (
    ComputationFailed,
    Finish,
    Interrupted,
    Received,
    Report,
    SaveCheckpoint,
)
from fedmq.protocol.machine import UNLOADED, Machine
from fedmq.protocol.plan_runner import RunningPlan
from fedmq.protocol.training.computations import BinTable, recorded, tree_candidates, went_left
from fedmq.protocol.training.states import PASSIVE_TRAINING, PassiveTrainingState
from fedmq.protocol.training.tables import PassiveTable

__all__ = ["PassiveTraining"]

State = PassiveTrainingState


@dataclass(slots=True)
class _Request:
    """A histogram request whose query pieces come in: so many are ``missing`` per node."""

    round: int
    missing: dict[int, int]
    pieces: dict[int, list[Values]]

    @property
    def complete(self) -> bool:
        return not any(self.missing.values())


class PassiveTraining(Machine):
    """Trains with the active party ``peer``; finishes with a :class:`PassiveShare`.

    ``load`` computes the :class:`PassiveTable`. ``engine`` finds an engine by its name, or raises
    Refused. ``secret`` seeds the order in which candidates are shown; it must not be guessable.
    Nodes in which fewer than ``smallest_node`` rows carry a gradient are declined: the sums of few
    rows would tell of each of them. ``saved`` is this party's part of the trees of earlier attempts
    at the session; ``returning``: there were some, so a table out of reach is waited for.
    """

    TABLE = PASSIVE_TRAINING
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
        returning: bool = False,
    ) -> None:
        super().__init__(State.READY, (peer,))
        self._party = party
        self._peer = peer
        self._load = load
        self._find_engine = engine
        self._secret = secret
        self._parallelism = parallelism
        self._smallest_node = smallest_node
        self._returning = returning
        self._declined: dict[int, int] = {}
        """Query pieces that are under way for nodes that were declined."""
        self._terms: training.TrainingOpen
        self._spec: Engine
        self._engine: PassiveHalf
        self._table: PassiveTable
        self._records: LookupTable
        self._records_before = 0
        self._saved: tuple[PassiveTree, ...] | None = tuple(saved)
        self._tree = saved[-1].number + 1 if saved else 0
        self._pieces = 0
        self._arriving = 0
        self._candidates: CandidateTable
        self._rows: dict[int, NDArray[np.int32]] = {}
        self._orders: dict[int, NDArray[np.int64]] = {}
        self._asked: list[_Request] = []

    def check(self) -> None:
        if self.state is State.GROWING and not self._spec.hides_rows:
            standing = np.concatenate([np.empty(0), *self._rows.values()])
            assert len(np.unique(standing)) == len(standing)

    # Opening

    def _on_open(self, event: Received) -> None:
        terms = event.body
        assert isinstance(terms, training.TrainingOpen)
        self._terms = terms
        try:
            self._spec = self._find_engine(terms.engine)
        except FedmqError as error:
            self._refuse(str(error))
            return
        self.state = State.PREPARING
        self._run(single(self._load), self._with_table)

    def _with_table(self, table: PassiveTable) -> None:
        self._table = table
        try:
            self._check_rows()
        except Refused as error:
            self._refuse(str(error))
            return
        learning = ~self._terms.evaluation.numpy()
        step = BinTable(table.values, learning, self._terms.max_bin)
        self._run(single(step), self._with_bins)

    def _check_rows(self) -> None:
        terms, rows = self._terms, len(self._table.values)
        if terms.alignment_name and terms.alignment != self._table.alignment:
            raise Refused(
                f"alignment {terms.alignment_name!r} of {self._party} is another one than that of "
                f"{self._peer}; make it anew with: fedmq align"
            )
        if terms.rows != rows or terms.evaluation.count != rows:
            raise Refused(
                f"the rows do not match: {self._party} holds {rows}, {self._peer} {terms.rows}"
            )
        if terms.alignment != self._table.alignment:
            raise Refused(
                f"the ids do not match: {self._party} and {self._peer} hold {rows} rows each, "
                "but not the same ids"
            )
        for step in self._saved or ():
            if step.records.feature_names != self._table.features:
                raise Refused(f"the columns of {self._party} have changed since the session began")
            if step.table and step.table != self._table.digest:
                raise Refused(
                    f"the table of {self._party} has other values than when the session began, so "
                    "the session has ended; train anew with: fedmq train"
                )

    def _with_bins(self, bins: BinMatrix) -> None:
        try:
            public = unpack_payload(self._terms.public)
            self._engine = self._spec.passive(public, bins, self._parallelism)
        except FedmqError as error:
            self._refuse(str(error))
            return
        self._bins = bins
        self._run(self._engine.setup(), self._accept)

    def _accept(self, setup: Any) -> None:
        self.state = State.BETWEEN_TREES
        self._send(self._peer, training.SessionAccept(setup_pieces=len(setup), trees=self._tree))
        for number, values in enumerate(setup):
            payload = pack_payload(values)
            self._send(self._peer, training.EngineSetup(piece=number, payload=payload))

    def _on_unprepared(self, event: ComputationFailed) -> None:
        # What went wrong may quote this party's data: that is for its own eyes, but for what was
        # meant for the other party.
        if self._returning and isinstance(event.error, SourceAway):
            self.state = State.INTERRUPTED
            self._emit(Interrupted(self._party, f"cannot reach its data: {event.error}"))
            return
        reason = str(event.error) if isinstance(event.error, Refused) else UNLOADED
        self._send(self._peer, SessionRefuse(reason=reason))
        self._fail(event.error, but=self._peer, told=reason)

    def _refuse(self, reason: str) -> None:
        self._send(self._peer, SessionRefuse(reason=reason[:2000]))
        self._fail(Refused(reason), but=self._peer)

    # A tree begins

    def _take_up(self, tree: int) -> None:
        """Of what earlier attempts have saved, keep what comes before ``tree``."""
        if self._saved is None:
            return
        kept = [step for step in self._saved if step.number < tree]
        self._records = all_records(self._table.features, kept)
        self._tree = kept[-1].number + 1 if kept else 0
        self._saved = None

    def _on_tree_started(self, event: Received) -> None:
        started = event.body
        assert isinstance(started, training.TreeStarted)
        self._take_up(started.tree)
        if started.tree < self._tree or started.tree >= self._terms.trees:
            raise ProtocolError(f"tree {started.tree} is not next")
        self._tree = started.tree
        self._records_before = len(self._records)
        self._pieces, self._arriving = started.pieces, started.pieces
        self._candidates = tree_candidates(
            self._bins, self._terms.colsample_bytree, self._terms.seed, self._tree
        )
        self._engine.start_tree(self._tree, self._candidates)
        self._rows = {ROOT: np.arange(self._terms.rows, dtype=np.int32)}
        self._carrying = np.full(self._terms.rows, not started.pieces)
        self.state = State.RECEIVING if started.pieces else State.GROWING

    def _on_broadcast(self, event: Received) -> None:
        said = event.body
        assert isinstance(said, training.GradientBroadcast)
        if said.tree != self._tree or self._pieces == 0:
            raise ProtocolError(f"a gradient piece of tree {said.tree} that was not announced")
        rows = said.rows.numpy()
        if len(rows) and int(rows.max()) >= self._terms.rows:
            raise ProtocolError(f"a gradient for row {int(rows.max())}, there is no such row")
        self._pieces -= 1
        self._carrying[rows] = True
        piece = BroadcastPiece(rows, unpack_payload(said.payload))
        self._run(self._engine.receive(self._tree, piece), self._received)

    def _received(self, _: None) -> None:
        self._arriving -= 1
        if self._arriving == 0:
            self.state = State.GROWING
            self._answer_complete()

    # Sums

    def _on_request(self, event: Received) -> None:
        said = event.body
        assert isinstance(said, training.HistogramRequest)
        for query in said.nodes:
            if said.tree != self._tree or self._standing(query.node) is None:
                raise ProtocolError(f"sums of node {query.node}, there is no such node")
        missing = {query.node: query.pieces for query in said.nodes}
        self._asked.append(_Request(said.round, missing, {node: [] for node in missing}))
        self._answer_complete()

    def _decline(self, request: _Request) -> None:
        for node in [node for node in request.pieces if self._is_too_small(node)]:
            self._declined[node] = request.missing.pop(node)
            del request.pieces[node]
            self._send(self._peer, training.NodeDeclined(tree=self._tree, node=node))

    def _is_too_small(self, node: int) -> bool:
        """Whether fewer rows carry a gradient there than this party tells sums of."""
        if not self._smallest_node or self._spec.hides_rows:
            return False
        rows = self._rows[node]
        carrying = self._carrying[rows] & ~self._terms.evaluation.numpy()[rows]
        return int(np.count_nonzero(carrying)) < self._smallest_node

    def _standing(self, node: int) -> NDArray[np.int32] | None:
        """The rows in ``node``, all rows when the engine hides them, None for no such node."""
        return self._rows.get(ROOT if self._spec.hides_rows else node)

    def _on_query_piece(self, event: Received) -> None:
        said = event.body
        assert isinstance(said, training.QueryPiece)
        waiting = (
            request
            for request in self._asked
            if request.round == said.round and request.missing.get(said.node)
        )
        request = next(waiting, None)
        if request is None and said.tree == self._tree and self._declined.get(said.node):
            self._declined[said.node] -= 1
            return
        if request is None or said.tree != self._tree:
            raise ProtocolError(f"a query piece for node {said.node} that was not announced")
        request.pieces[said.node].append(unpack_payload(said.payload))
        request.missing[said.node] -= 1
        self._answer_complete()

    def _answer_complete(self) -> None:
        if self.state is not State.GROWING:
            return
        for request in self._asked:
            self._decline(request)
        complete = [request for request in self._asked if request.complete]
        self._asked = [request for request in self._asked if not request.complete]
        for request in complete:
            if not request.pieces:
                continue
            queries = [
                Query(
                    self._tree,
                    node,
                    request.round,
                    rows,
                    self._candidates,
                    self._order(node),
                    pieces,
                )
                for node, pieces in request.pieces.items()
                if (rows := self._standing(node)) is not None
            ]
            if len(queries) < len(request.pieces):
                raise ProtocolError("sums of nodes that have been split meanwhile")
            self._run(
                self._engine.answer(queries), lambda _: None, partial(self._reply, request.round)
            )

    def _order(self, node: int) -> NDArray[np.int64]:
        if node not in self._orders:
            seed = np.random.SeedSequence(self._secret, spawn_key=(self._tree, node))
            random = np.random.Generator(np.random.Philox(seed))
            self._orders[node] = random.permutation(len(self._candidates))
        return self._orders[node]

    def _reply(self, number: int, step: Exchange | Reply, _: RunningPlan) -> None:
        assert isinstance(step, Reply)
        for index, values in enumerate(step.pieces):
            self._send(
                self._peer,
                training.HistogramReply(
                    tree=self._tree,
                    node=step.node,
                    round=number,
                    piece=index,
                    pieces=len(step.pieces),
                    payload=pack_payload(values),
                ),
            )

    # Splits

    def _on_decision(self, event: Received) -> None:
        said = event.body
        assert isinstance(said, training.SplitDecision)
        rows, order = self._standing(said.node), self._orders.get(said.node)
        chosen = said.candidates.numpy()
        if (
            said.tree != self._tree
            or rows is None
            or order is None
            or not len(chosen)
            or int(chosen.max()) >= len(order)
        ):
            raise ProtocolError(f"a split of node {said.node} by a candidate it does not have")
        # Candidates that tie are told together: the first in this party's own order is XGBoost's.
        winner = int(order[chosen].min())
        self._records, record = recorded(self._records, self._candidates, winner)
        left = went_left(self._records, record, self._table.values, rows)
        self._send(
            self._peer,
            training.SplitOutcome(
                tree=self._tree, node=said.node, record=record, left=Bitmap.of(left)
            ),
        )
        self._divide(said.node, left)

    def _on_assignment(self, event: Received) -> None:
        said = event.body
        assert isinstance(said, training.NodeAssignment)
        rows = self._rows.get(said.node)
        if said.tree != self._tree or rows is None or said.left.count != len(rows):
            raise ProtocolError(f"an assignment of node {said.node} that does not fit")
        self._divide(said.node, said.left.numpy())

    def _divide(self, node: int, left: NDArray[np.bool_]) -> None:
        if self._spec.hides_rows:
            return
        rows = self._rows.pop(node)
        if depth(node) + 1 < self._terms.max_depth:
            self._rows |= zip(children(node), (rows[left], rows[~left]), strict=True)

    def _on_tree_finished(self, event: Received) -> None:
        said = event.body
        assert isinstance(said, training.TreeFinished)
        if said.tree != self._tree or self._plans:
            raise ProtocolError(f"tree {said.tree} is not complete")
        self.state = State.BETWEEN_TREES
        self._engine.forget_tree()
        self._rows, self._orders, self._asked, self._declined = {}, {}, [], {}
        records = last_records(self._records, self._records_before)
        self._emit(SaveCheckpoint(PassiveTree(self._tree, records, self._table.digest)))
        self._send(self._peer, training.TreeSaved(tree=self._tree))
        self._tree += 1
        self._emit(Report(self._tree, self._terms.trees, "tree", {}))

    # Endings

    def _on_finished(self, event: Received) -> None:
        said = event.body
        assert isinstance(said, training.SessionFinished)
        self._take_up(said.trees)
        if said.trees < self._tree:
            raise ProtocolError(f"a model of {said.trees} trees, {self._tree} have grown")
        self.state = State.FINISHED
        self._emit(
            Finish(
                PassiveShare(
                    model_id=self._terms.model, party=self._party, lookup_table=self._records
                )
            )
        )
