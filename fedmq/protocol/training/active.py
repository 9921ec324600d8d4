"""What does the label holder do in a training (SecureBoost, Algorithm 2)?

Per tree: gradients are derived and broadcast; per level, its nodes are summed by every party and
scored; the winner of each node is split by its owner; the others learn who goes left.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.callbacks import Callbacks
from fedmq.boosting.gradients import Gradients
from fedmq.boosting.model.share import ActiveShare
from fedmq.boosting.model.tree import LABEL_HOLDER
from fedmq.boosting.params import TrainParams
from fedmq.boosting.splits import UNMARKED, ColumnMark
from fedmq.errors import Inconsistent, MessageError, ProtocolError
from fedmq.messages import training
from fedmq.messages.array import Array, Bitmap, pack_payload
from fedmq.privacy.engine import AskedNode, Best, BroadcastPiece, Engine, Question
from fedmq.privacy.plan import Exchange, Plan, Reply, Values, single
from fedmq.protocol.events import (
    ComputationFailed,
    Finish,
    Pause,
    Report,
    Resume,
    Save,
)
from fedmq.protocol.machine import RunningPlan, on, on_message
from fedmq.protocol.records import ActiveTree, Signing
from fedmq.protocol.training.active_contests import ActiveContests
from fedmq.protocol.training.answers import Answers
from fedmq.protocol.training.columns import (
    CandidateCategories,
    CandidateConstraints,
    CandidateSigns,
    columns_by_sets,
)
from fedmq.protocol.training.computations import went_left
from fedmq.protocol.training.consistency import NodeAnswer, RecordNumbers
from fedmq.protocol.training.level import Level
from fedmq.protocol.training.model_builder import ModelBuilder
from fedmq.protocol.training.own_candidates import OwnCandidates
from fedmq.protocol.training.split_choice import SplitChoice
from fedmq.protocol.training.states import (
    BROADCAST,
    DIRECTIONS,
    GRADIENTS,
    LEVEL_SCORED,
    MODEL_COMPLETE,
    NEXT_LEVEL,
    NEXT_TREE,
    OFFER,
    OWN_OFFERS,
    QUESTION,
    RESTS,
    TREE_BEGINS,
    TREE_COMPLETE,
    ActiveTrainingState,
)
from fedmq.protocol.training.tables import ActiveTable
from fedmq.protocol.training.tree_builder import TreeBuilder

__all__ = ["ActiveTraining"]

State = ActiveTrainingState


class ActiveTraining(ActiveContests):
    """Trains a model with ``peers``; finishes with an ``ActiveShare``.

    ``parallelism`` is the number of computations worth running at once. The order of ``peers``
    decides ties between parties: as if their columns stood side by side in this order. ``saved``
    are the trees of earlier attempts at the session; with ``paused`` none is added to them yet.
    With ``signing`` it keeps what peers sign, and signs too. ``callbacks`` may end it between
    rounds. Its trees continue those of ``earlier``, where there is one. ``category_sets``: whether
    ``max_cat_to_onehot`` holds for columns of peers as well, where these agree.

    Raises:
        ConfigError: parameters, engine and table do not fit together.
    """

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
        signing: Signing | None = None,
        callbacks: Callbacks | None = None,
        earlier: ActiveShare | None = None,
        category_sets: bool = True,
    ) -> None:
        super().__init__(
            model,
            party,
            peers,
            table,
            params,
            engine,
            parallelism,
            saved,
            signing,
            callbacks,
            earlier,
        )
        self._unsaved: set[str] = set()
        self._paused = paused
        self._category_sets = category_sets and params.max_cat_to_onehot is not None
        self._derived: tuple[Gradients, dict[str, float]] | None = None
        # Of the tree that grows:
        self._candidates: OwnCandidates
        self._builder: TreeBuilder
        self._choice: SplitChoice
        self._answers: Answers
        self._to_broadcast = 0
        self._records: RecordNumbers
        self._level = Level(0, (), 0)

    @property
    def margins(self) -> NDArray[np.float32] | None:
        """Those of all rows by the trees so far; None where several models grow."""
        return self._model.margins if isinstance(self._model, ModelBuilder) else None

    @property
    def tree(self) -> int:
        """The number of the tree that grows, from 0."""
        return self._model.next_tree

    @property
    def rests(self) -> bool:
        return super().rests or self.state is State.PAUSED

    def check(self) -> None:
        if self.state in (State.GROWING, State.SPLITTING):
            self._builder.check()

    def _opening(self, public: Values) -> training.TrainingOpen:
        opening = super()._opening(public)
        if self._category_sets:
            return opening
        return opening.model_copy(update={"max_cat_to_onehot": 0})

    # A tree begins

    def _begin(self) -> None:
        """Begin with the last tree that all parties have, or with none."""
        alone, saved = self._model.trees_alone, len(self._model.saved)
        self._model.rewind(self._handshake.common_trees(saved, alone))
        self._derive()

    def _derive(self) -> None:
        self._run(GRADIENTS, self._model.derive(), self._with_gradients)

    def _with_gradients(self, derived: tuple[Gradients, dict[str, float]]) -> None:
        self._derived = derived
        self._begin_when_saved()

    @on_message(training.TreeSaved)
    def _on_saved(self, peer: str, body: training.TreeSaved) -> None:
        if body.tree != self.tree - 1 or peer not in self._unsaved:
            raise ProtocolError(f"tree {body.tree} was not to be saved")
        self._unsaved.remove(peer)
        self._begin_when_saved()

    def _begin_when_saved(self) -> None:
        """A tree begins when the one before it is on every disk: no crash costs more than one."""
        if self._unsaved or self._derived is None:
            return
        metrics = self._derived[1]
        if self.tree:
            self._emit(Report(self.tree, self._model.total_trees, "tree", metrics))
        self._model.add_metrics(metrics)
        if self._model.is_complete:
            self._move(MODEL_COMPLETE)
            self._finish()
        elif self._paused:
            self._move(RESTS)
        else:
            self._begin_tree()

    @on(Pause)
    def _on_pause(self, _: Pause) -> None:
        self._paused = True

    @on(Resume)
    def _on_resume(self, _: Resume) -> None:
        self._paused = False
        if self.state is State.PAUSED:
            self._begin_tree()

    def _begin_tree(self) -> None:
        self._move(TREE_BEGINS)
        assert self._derived is not None
        gradients, self._derived = self._derived[0], None
        self._model.begin_tree()
        self._records = RecordNumbers(self._model.next_records(self._parties))
        signed = self._handshake.signed
        constrained = self._constraints.hold(signed)
        interactions = len(self._params.interaction_constraints)
        self._builder = TreeBuilder(
            gradients,
            self._params,
            self._model.residuals(),
            constrained=constrained,
            interacting=interactions > 0,
        )
        self._choice = SplitChoice(self._params)
        self._answers = Answers(
            self._builder,
            self._params,
            self._spec,
            {peer: owner for owner, peer in enumerate(self._parties)},
            CandidateSigns(signed),
            CandidateConstraints(interactions),
            CandidateCategories(self._handshake.by_sets if self._category_sets else ()),
        )
        self._candidates = OwnCandidates(
            self._bins,
            self._constraints.signs,
            self._constraints.interactions,
            self._params,
            self._builder,
            self._spec.first_order,
            self._table.turns,
        )
        plans = self._engine.broadcast(gradients) if self._askable else ()
        self._to_broadcast = len(plans)
        for peer in self._askable:
            self._send(peer, training.TreeStarted(tree=self.tree, pieces=len(plans)))
        for number, plan in enumerate(plans):
            self._run(BROADCAST, plan, partial(self._broadcast, number))
        if plans and self.tree + 1 < self._model.total_trees:
            for preparation in self._engine.prepare():
                self._run(NEXT_TREE, preparation, lambda _: None)
        self._ask_level()

    @property
    def _askable(self) -> tuple[str, ...]:
        return () if self.tree < self._model.trees_alone else self.peers

    def _broadcast(self, number: int, piece: BroadcastPiece) -> None:
        self._to_broadcast -= 1
        body = training.GradientBroadcast(
            tree=self.tree,
            piece=number,
            rows=Array.of(piece.rows),
            payload=pack_payload(piece.values),
        )
        for peer in self._askable:
            self._send(peer, body)

    # A level: every party's candidates are summed and scored

    def _ask_level(self) -> None:
        nodes = self._builder.level
        self._level = Level(self.tree, nodes, 1 + len(self._askable))
        self._await_contests(self._level, self._builder, self._askable)
        if self._askable:
            level = [AskedNode(self.tree, node, self._builder.carrying(node)) for node in nodes]
            for question in self._engine.ask_level(level):
                self._ask(question)
        # Behind the questions, whose answers take longer.
        computation = self._candidates.scored(nodes)
        self._run(OWN_OFFERS, single(computation), partial(self._with_offers, nodes, LABEL_HOLDER))

    def _ask(self, question: Question) -> None:
        nodes = [asked.node for asked in question.nodes]
        for owner, peer in enumerate(self._askable, start=1):
            most, about = self._handshake.candidates(peer), NodeAnswer(peer, self.tree, nodes[0])
            plan: Plan[object] = self._answers.scored(question, peer, most)
            then = partial(self._with_offers, nodes, owner)
            if self._spec.hides_sums:
                plan = self._answers.counted(question, peer, most)
                then = partial(self._with_counts, peer, nodes)
            self._run(OFFER, plan, then, partial(self._on_exchange, peer, nodes[0]), about)
        for node, parts in question.parts().items():
            for number, part in enumerate(parts):
                self._run(QUESTION, part, partial(self._with_part, node, number))

    def _with_part(self, node: int, number: int, pieces: Sequence[Values]) -> None:
        self._level.add_part(node, number, pieces)
        self._at_end(self._send_requests)

    def _on_computation_failed(self, event: ComputationFailed) -> None:
        """Everybody reads of sums that cannot be true, and whose they are."""
        error, running = event.error, self._plans.get(event.ticket)
        if isinstance(error, MessageError) and running is not None and running.about is not None:
            error = running.about.unreadable(str(error))
        if isinstance(error, Inconsistent):
            self._fail(error)
        else:
            super()._on_computation_failed(event)

    def _on_exchange(self, peer: str, node: int, step: Exchange | Reply, run: RunningPlan) -> None:
        assert isinstance(step, Exchange)
        most = self._handshake.candidates(peer)
        rows = {asked: len(self._builder.carrying(asked)) for asked in step.later or (node,)}
        largest = {asked: self._engine.largest_reply(most, held) for asked, held in rows.items()}
        self._level.ask(peer, largest, step, run)
        self._at_end(self._send_requests)

    def _send_requests(self) -> None:
        """The exchanges that came up together travel as one request per peer and round."""
        for peer, body in self._level.requests():
            self._send(peer, body)

    @on_message(training.HistogramReply)
    def _on_reply(self, peer: str, body: training.HistogramReply) -> None:
        self._check_broadcast(body.node)
        self._answers.take_marks(peer, body, self._handshake.candidates(peer))
        if (complete := self._level.reply(peer, body)) is not None:
            self._resume(*complete)

    @on_message(training.NodeDeclined)
    def _on_declined(self, peer: str, body: training.NodeDeclined) -> None:
        self._check_broadcast(body.node)
        self._level.decline(peer, self._parties.index(peer), body)
        self._answers.check_declined(peer, body.node, self._handshake.smallest_node(peer))
        self._split_when_scored()

    def _check_broadcast(self, node: int) -> None:
        if self._to_broadcast:
            raise ProtocolError(f"an answer about node {node} before all gradients were sent")

    def _with_offers(self, nodes: Sequence[int], owner: int, offers: Sequence[Best]) -> None:
        self._level.add_offers(nodes, owner, offers)
        if owner == LABEL_HOLDER and self._spec.hides_sums:
            self._contest()
        self._split_when_scored()

    # Splits

    def _split_when_scored(self) -> None:
        if self._level.is_scored:
            self._move(LEVEL_SCORED)
            self._choice.add(self._level)
            self._split_next()

    def _split_next(self) -> None:
        """Split what the driver has next, until somebody has to be asked."""
        while offers := self._choice.pop():
            for node, owner, best in offers:
                if owner == LABEL_HOLDER:
                    self._split_own(node, best)
                else:
                    self._ask_split(node, self._parties[owner], best)
            if not self._level.is_split or self._goes_down():
                return
        self._end_tree()

    def _ask_split(self, node: int, peer: str, best: Best) -> None:
        self._level.await_split(node, peer, best)
        reading = self._engine.read_directions(peer, self.tree, node, self._builder.rows(node))
        then, ask = partial(self._with_directions, node), partial(self._ask_directions, node)
        self._run(DIRECTIONS, reading, then, ask)

    def _ask_directions(self, node: int, step: Exchange | Reply, run: RunningPlan) -> None:
        assert isinstance(step, Exchange)
        self._level.ask_directions(node, step.pieces, run)
        for peer, body in self._level.decisions():
            if isinstance(body, training.SplitDecision):
                self._records.expect(peer, body.node)
            self._send(peer, body)

    def _split_own(self, node: int, best: Best) -> None:
        candidates, split = self._candidates.split(node, best)
        record = self._model.record(candidates, split)
        left = went_left(self._model.records, record, self._table.values, self._builder.rows(node))
        self._split(node, LABEL_HOLDER, record, left, best.mark_of(split), best.gain)

    @on_message(training.SplitOutcome)
    def _on_outcome(self, peer: str, body: training.SplitOutcome) -> None:
        self._level.check_split(peer, body)
        rows = self._table.label if self._spec.hides_rows else self._builder.rows(body.node)
        self._level.check_directions(body, len(rows))
        self._records.check(NodeAnswer(peer, self.tree, body.node), body.record)
        self._resume(self._level.take_outcome(body), body.left.numpy())

    def _with_directions(self, node: int, left: NDArray[np.bool_]) -> None:
        if self._spec.hides_rows:
            left = left[self._builder.rows(node)]
        best = self._choice.best(node)
        peer, record = self._level.end_split(node)
        column, gain = UNMARKED, best.gain
        if best.left is not None:
            sums, claim = self._builder.left_totals(node, left), NodeAnswer(peer, self.tree, node)
            column = claim.mark(sums, best)
        if self._spec.hides_sums:
            gain = self._contests.gain(peer, node, left)
        self._split(node, self._parties.index(peer), record, left, column, gain)
        self._go_on_when_split()

    def _go_on_when_split(self) -> None:
        if self._level.is_split and not self._goes_down():
            self._split_next()

    def _split(
        self,
        node: int,
        owner: int,
        record: int,
        left: NDArray[np.bool_],
        column: ColumnMark,
        gain: float,
    ) -> None:
        expands = self._choice.expands_below(node)
        self._builder.split(node, owner, record, gain, left, column, expands=expands)
        if not expands or self._spec.hides_rows:
            return  # at the last level nobody but the owner learns the partition
        assignment = training.NodeAssignment(tree=self.tree, node=node, left=Bitmap.of(left))
        self._assign(owner, assignment)

    def _assign(self, owner: int, assignment: training.NodeAssignment) -> None:
        for peer in self._askable:
            if peer != self._parties[owner]:
                self._send(peer, assignment)

    def _goes_down(self) -> bool:
        """Ask about the children of what was split; false where none may be split."""
        if not self._builder.next_level():
            return False
        self._move(NEXT_LEVEL)
        self._ask_level()
        return True

    def _end_tree(self) -> None:
        self._move(TREE_COMPLETE)
        # Sent before the checkpoint, so that all parties wait for their disks at the same time.
        for peer in self._askable:
            self._send(peer, training.TreeFinished(tree=self.tree))
        self._unsaved = set(self._askable)
        self._emit(Save(self._model.add(*self._builder.finish())))
        self._derive()

    def _finish(self) -> None:
        for peer in self.peers:
            self._send(peer, training.SessionFinished(trees=self.tree))
        withheld = self._handshake.withheld
        made = self._model.finished(self._model_id, self._parties, withheld)
        if isinstance(made, ActiveShare):
            columns = columns_by_sets(self._table, self._bins.cuts)
            table = made.lookup_table.model_copy(update={"category_columns": columns})
            made = made.model_copy(update={"lookup_table": table})
        self._emit(Finish(self._finished(made)))
