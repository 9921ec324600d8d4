"""The label holder's machine of a training session (SecureBoost, Algorithm 2).

Per tree: gradients are derived and broadcast; per level, a *wave* of nodes is summed by every
party and scored; the winner of each node is split by its owner; the others are told who goes left.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix
from fedmq.boosting.candidates import CandidateTable
from fedmq.boosting.gradients import Gradients
from fedmq.boosting.model.tree import LABEL_HOLDER
from fedmq.boosting.params import TrainParams
from fedmq.boosting.split import is_worthwhile
from fedmq.errors import ProtocolError
from fedmq.messages import training
from fedmq.messages.array import Array, Bitmap, pack_payload, unpack_payload
from fedmq.privacy.engine import AskedNode, Best, BroadcastPiece, Engine
from fedmq.privacy.plan import Exchange, Plan, Reply, Values, single
from fedmq.protocol.checkpoint import ActiveTree
from fedmq.protocol.events import Finish, Pause, Received, Report, Resume, SaveCheckpoint, Start
from fedmq.protocol.machine import Machine
from fedmq.protocol.plan_runner import RunningPlan
from fedmq.protocol.training.computations import (
    BinTable,
    DeriveGradients,
    ScoreCandidates,
    ScoreOwnCandidates,
    tree_candidates,
    went_left,
)
from fedmq.protocol.training.handshake import Handshake
from fedmq.protocol.training.level import Conversation, Level
from fedmq.protocol.training.model_builder import ModelBuilder
from fedmq.protocol.training.states import ACTIVE_TRAINING, ActiveTrainingState
from fedmq.protocol.training.tables import ActiveTable
from fedmq.protocol.training.tree_builder import TreeBuilder

__all__ = ["ActiveTraining"]

State = ActiveTrainingState


class ActiveTraining(Machine):
    """Trains a model with ``peers``; finishes with an ``ActiveShare``.

    ``parallelism`` is the number of computations worth running at once. The order of ``peers``
    decides ties between parties: as if their columns stood side by side in this order. ``saved``
    are the trees of earlier attempts at the session; with ``paused`` none is added to them yet.

    Raises:
        ConfigError: parameters, engine and table do not fit together.
    """

    TABLE = ACTIVE_TRAINING
    failed_state = State.FAILED
    interrupted_state = State.INTERRUPTED
    ends_everywhere = True

    def __init__(
        self,
        model: str,
        party: str,
        peers: Sequence[str],
        table: ActiveTable,
        params: TrainParams,
        engine: Engine,
        parallelism: int = 1,
        saved: Sequence[ActiveTree] = (),
        paused: bool = False,
    ) -> None:
        engine.check(params)
        super().__init__(State.READY, peers)
        self._model = model
        self._parties = (party, *peers)
        self._table = table
        self._params = params
        self._spec = engine
        self._engine = engine.active(parallelism)
        self._bins: BinMatrix
        self._candidates: CandidateTable
        self._handshake = Handshake(peers)
        self._grown = ModelBuilder(table, params, saved)
        self._unsaved: set[str] = set()
        self._paused = paused
        self._derived: tuple[Gradients, dict[str, float]] | None = None
        self._growing: TreeBuilder
        self._level = Level({}, 0)
        self._asks: dict[tuple[str, int], list[tuple[int, Sequence[Values]]]] = defaultdict(list)

    @property
    def tree(self) -> int:
        """The number of the tree that grows, from 0."""
        return len(self._grown.trees)

    @property
    def rests(self) -> bool:
        return super().rests or self.state is State.PAUSED

    def check(self) -> None:
        if self.state in (State.GROWING, State.SPLITTING):
            self._growing.check()

    # Opening

    def _on_start(self, _: Start) -> None:
        self.state = State.KEYING
        learning = ~self._table.evaluation
        step = BinTable(self._table.values, learning, self._params.max_bin)
        self._run(single(step), self._with_bins)

    def _with_bins(self, bins: BinMatrix) -> None:
        self._bins = bins
        self._run(self._engine.open(), self._with_keys)

    def _with_keys(self, public: Values) -> None:
        self.state = State.OPENING
        opening = training.TrainingOpen(
            model=self._model,
            rows=len(self._table.label),
            alignment=self._table.alignment,
            alignment_name=self._table.alignment_name,
            evaluation=Bitmap.of(self._table.evaluation),
            engine=self._spec.name,
            public=pack_payload(public),
            trees=self._params.num_boost_round,
            active_only_trees=self._params.active_only_trees,
            max_depth=self._params.max_depth,
            max_bin=self._params.max_bin,
            colsample_bytree=self._params.colsample_bytree,
            seed=self._params.seed,
        )
        for peer in self.peers:
            self._send(peer, opening)
        if not self.peers:
            self._set_out()

    def _on_accept(self, event: Received) -> None:
        said = event.body
        assert isinstance(said, training.SessionAccept)
        self._handshake.accept(event.sender, said.setup_pieces, said.trees)
        self._set_up(event.sender)

    def _on_setup(self, event: Received) -> None:
        assert isinstance(event.body, training.EngineSetup)
        self._handshake.add(event.sender, unpack_payload(event.body.payload))
        self._set_up(event.sender)

    def _set_up(self, peer: str) -> None:
        setup = self._handshake.setup(peer)
        if setup is not None:
            self._run(self._engine.setup(peer, setup), lambda _: self._peer_ready(peer))

    def _peer_ready(self, peer: str) -> None:
        if self._handshake.is_last(peer):
            self._set_out()

    def _set_out(self) -> None:
        """Begin with the last tree that all parties have, or with none."""
        common = self._handshake.common_trees(
            len(self._grown.saved), self._params.active_only_trees
        )
        self._grown.take_up(common)
        self._derive()

    # A tree begins

    def _derive(self) -> None:
        self.state = State.DERIVING
        step = DeriveGradients(
            self._params, self._grown.margin, self._table.label, self._table.evaluation, self.tree
        )
        self._run(single(step), self._with_gradients)

    def _with_gradients(self, derived: Any) -> None:
        self._derived = derived
        self._begin_when_saved()

    def _on_saved(self, event: Received) -> None:
        said = event.body
        assert isinstance(said, training.TreeSaved)
        if said.tree != self.tree - 1 or event.sender not in self._unsaved:
            raise ProtocolError(f"tree {said.tree} was not to be saved")
        self._unsaved.remove(event.sender)
        self._begin_when_saved()

    def _begin_when_saved(self) -> None:
        """A tree begins when the one before it is on every disk: no crash costs more than one."""
        if self._unsaved or self._derived is None:
            return
        metrics = self._derived[1]
        if self.tree:
            self._emit(Report(self.tree, self._params.num_boost_round, "tree", metrics))
        if self._grown.measured(metrics):
            self._finish()
        elif self._paused:
            self.state = State.PAUSED
        else:
            self._begin_tree()

    def _on_pause(self, event: Pause | Resume) -> None:
        self._paused = isinstance(event, Pause)

    def _on_resume(self, _: Resume) -> None:
        self._paused = False
        self._begin_tree()

    def _begin_tree(self) -> None:
        assert self._derived is not None
        gradients, self._derived = self._derived[0], None
        self._grown.begin_tree()
        self.state = State.GROWING
        self._growing = TreeBuilder(gradients, self._params)
        self._candidates = tree_candidates(
            self._bins, self._params.colsample_bytree, self._params.seed, self.tree
        )
        plans = self._engine.broadcast(gradients) if self._askable else ()
        for peer in self._askable:
            self._send(peer, training.TreeStarted(tree=self.tree, pieces=len(plans)))
        for number, plan in enumerate(plans):
            self._run(plan, partial(self._broadcast, number))
        if plans and self.tree + 1 < self._params.num_boost_round:
            for preparing in self._engine.prepare():
                self._run(preparing, lambda _: None)
        self._ask_wave()

    @property
    def _askable(self) -> tuple[str, ...]:
        return () if self.tree < self._params.active_only_trees else self.peers

    def _broadcast(self, number: int, piece: BroadcastPiece) -> None:
        body = training.GradientBroadcast(
            tree=self.tree,
            piece=number,
            rows=Array.of(piece.rows),
            payload=pack_payload(piece.values),
        )
        for peer in self._askable:
            self._send(peer, body)

    # A wave: every party's candidates are summed and scored

    def _ask_wave(self) -> None:
        nodes = self._growing.level
        self._level = Level({node: {} for node in nodes}, len(nodes) * (1 + len(self._askable)))
        step = ScoreOwnCandidates(
            self._bins,
            self._candidates,
            self._growing.gradients,
            tuple(self._growing.carrying(node) for node in nodes),
            self._params,
            self._spec.first_order,
        )
        self._run(single(step), partial(self._with_own, nodes))
        for owner, peer in enumerate(self._askable, start=1):
            for node in nodes:
                self._run(
                    self._valued(peer, node),
                    partial(self._with_best, node, owner),
                    partial(self._on_exchange, peer, node),
                )

    def _valued(self, peer: str, node: int) -> Plan[Best]:
        answer = yield from self._engine.ask(
            peer, AskedNode(self.tree, node, self._growing.carrying(node))
        )
        if isinstance(answer, Best):
            return answer
        total, scale = self._growing.totals(node), self._growing.gradients.scale
        step = ScoreCandidates(answer.left, total, scale, self._params, self._spec.first_order)
        best: Best = yield from single(step)
        return best

    def _on_exchange(self, peer: str, node: int, step: Exchange | Reply, run: RunningPlan) -> None:
        assert isinstance(step, Exchange)
        before = self._level.conversations.get((peer, node))
        number = 0 if before is None else before.round + 1
        self._level.conversations[peer, node] = Conversation(run, number)
        self._asks[peer, number].append((node, step.pieces))

    def _settle(self) -> None:
        """The exchanges that came up together travel as one request per peer and round."""
        for (peer, number), queries in self._asks.items():
            nodes = tuple(training.NodeQuery(node=node, pieces=len(said)) for node, said in queries)
            self._send(peer, training.HistogramRequest(tree=self.tree, round=number, nodes=nodes))
            for node, said in queries:
                for index, piece in enumerate(said):
                    self._send(
                        peer,
                        training.QueryPiece(
                            tree=self.tree,
                            node=node,
                            round=number,
                            piece=index,
                            payload=pack_payload(piece),
                        ),
                    )
        self._asks.clear()

    def _on_reply(self, event: Received) -> None:
        reply = event.body
        assert isinstance(reply, training.HistogramReply)
        talk = self._level.conversations.get((event.sender, reply.node))
        if (
            talk is None
            or not talk.open
            or (reply.tree, reply.round) != (self.tree, talk.round)
            or reply.piece != len(talk.pieces)
        ):
            raise ProtocolError(f"a reply about node {reply.node} that was not asked for")
        talk.pieces.append(unpack_payload(reply.payload))
        if len(talk.pieces) == reply.pieces:
            talk.open = False
            self._resume(talk.running, talk.pieces)

    def _on_declined(self, event: Received) -> None:
        said = event.body
        assert isinstance(said, training.NodeDeclined)
        talk = self._level.conversations.get((event.sender, said.node))
        if talk is None or not talk.open or talk.pieces or said.tree != self.tree:
            raise ProtocolError(f"node {said.node} was declined, but not asked about")
        talk.open = False
        talk.running.then(Best(-np.inf, np.empty(0, dtype=np.uint32)))

    def _with_own(self, nodes: Sequence[int], scored: Sequence[Best]) -> None:
        for node, best in zip(nodes, scored, strict=True):
            self._with_best(node, LABEL_HOLDER, best)

    def _with_best(self, node: int, owner: int, best: Best) -> None:
        self._level.best[node][owner] = best
        self._level.missing -= 1
        if self._level.missing == 0:
            self._decide()

    # Splits

    def _decide(self) -> None:
        self.state = State.SPLITTING
        for node in self._growing.level:
            offers = self._level.best[node]
            winner = max(offers, key=lambda owner: (offers[owner].gain, -owner))
            best = offers[winner]
            if not is_worthwhile(best.gain, self._params):
                continue
            self._level.gains[node] = best.gain
            if winner == LABEL_HOLDER:
                self._split_own(node, int(best.candidates[0]))
            else:
                owner = self._parties[winner]
                self._level.outcomes[node] = owner
                self._send(
                    owner,
                    training.SplitDecision(
                        tree=self.tree,
                        node=node,
                        candidates=Array.of(best.candidates.astype(np.uint32)),
                    ),
                )
        if not self._level.outcomes:
            self._end_wave()

    def _split_own(self, node: int, candidate: int) -> None:
        record = self._grown.record(self._candidates, candidate)
        rows = self._growing.rows(node)
        left = went_left(self._grown.records, record, self._table.values, rows)
        self._split(node, LABEL_HOLDER, record, left)

    def _on_outcome(self, event: Received) -> None:
        outcome = event.body
        assert isinstance(outcome, training.SplitOutcome)
        if outcome.tree != self.tree or self._level.outcomes.get(outcome.node) != event.sender:
            raise ProtocolError(f"a split of node {outcome.node} that was not asked for")
        rows = self._growing.rows(outcome.node)
        expected = len(self._table.label) if self._spec.hides_rows else len(rows)
        if outcome.left.count != expected:
            raise ProtocolError(
                f"directions for {outcome.left.count} rows, node {outcome.node} has {expected}"
            )
        left = outcome.left.numpy()
        if self._spec.hides_rows:
            left = left[rows]
        del self._level.outcomes[outcome.node]
        self._split(outcome.node, self._parties.index(event.sender), outcome.record, left)
        if not self._level.outcomes:
            self._end_wave()

    def _split(self, node: int, owner: int, record: int, left: NDArray[np.bool_]) -> None:
        self._growing.split(node, owner, record, self._level.gains[node], left)
        if self._growing.ends_below(node) or self._spec.hides_rows:
            return  # at the last level nobody but the owner learns the partition
        assignment = training.NodeAssignment(tree=self.tree, node=node, left=Bitmap.of(left))
        for peer in self._askable:
            if peer != self._parties[owner]:
                self._send(peer, assignment)

    def _end_wave(self) -> None:
        if self._growing.next_wave():
            self.state = State.GROWING
            self._ask_wave()
            return
        # Told before the checkpoint, so that all parties wait for their disks at the same time.
        for peer in self._askable:
            self._send(peer, training.TreeFinished(tree=self.tree))
        self._unsaved = set(self._askable)
        self._emit(SaveCheckpoint(self._grown.add(*self._growing.finish())))
        self._derive()

    # Endings

    def _finish(self) -> None:
        self.state = State.FINISHED
        for peer in self.peers:
            self._send(peer, training.SessionFinished(trees=self.tree))
        self._emit(Finish(self._grown.share(self._model, self._parties)))

    def _on_refuse(self, event: Received) -> None:
        self._refused(event)
