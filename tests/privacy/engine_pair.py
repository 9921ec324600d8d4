"""Both halves of an engine in one place, without messages: a plan is simply run to its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedmq.boosting.binning import BinMatrix
from fedmq.boosting.gradients import RESOLUTION_BITS, Gradients
from fedmq.boosting.splits import CandidateTable
from fedmq.privacy.engine import AskedNode, Engine, Query, Question, SplitOffer, Sums
from fedmq.privacy.plan import Compute, Exchange, Reply, Values


class EnginePair:
    """One active and one passive half over the same rows."""

    def __init__(
        self,
        engine: Engine,
        bins: BinMatrix,
        parallelism: int = 2,
        training: np.ndarray | None = None,
        value_bits: int = RESOLUTION_BITS,
    ) -> None:
        self.engine = engine
        self.bins = bins
        self.active = engine.active(parallelism)
        learning = np.ones(bins.n_rows, np.bool_) if training is None else training
        self.active.start_session(learning, value_bits)
        public = self._run(self.active.open())
        self.passive = engine.passive(public, bins, parallelism)
        self.passive.start_session(learning, value_bits)
        self._run(self.active.setup("telco", self._run(self.passive.setup())))

    def start_tree(self, gradients: Gradients, candidates: CandidateTable | None = None) -> None:
        self.passive.forget_tree()
        if candidates is not None:
            self.passive.start_tree(gradients.tree, candidates)
        self.gradients = gradients
        for plan in self.active.broadcast(gradients):
            self._run(self.passive.receive(gradients.tree, self._run(plan)))

    def ask_level(
        self,
        nodes: dict[int, np.ndarray],
        candidates: CandidateTable,
        orders: dict[int, np.ndarray],
    ) -> dict[int, Sums | SplitOffer]:
        """What the active half learns of each node, given all the rows that stand in it."""
        level = [
            AskedNode(self.gradients.tree, node, rows[self.gradients.carried[rows]])
            for node, rows in nodes.items()
        ]
        questions = {question.nodes[0].node: question for question in self.active.ask_level(level)}
        later = {
            node: pieces
            for question in questions.values()
            for node, pieces in self.made(question).items()
        }
        plans = {node: question.ask("telco") for node, question in questions.items()}
        waiting = {node: self._advance(plan, None) for node, plan in plans.items()}
        answers: dict[int, Sums | SplitOffer] = {}
        number = 0
        while waiting:
            queries = [
                Query(
                    self.gradients.tree,
                    node,
                    number,
                    np.arange(self.bins.n_rows, dtype=np.int32)
                    if self.engine.traits.hides_rows
                    else nodes[node],
                    candidates,
                    orders[node],
                    [*step.pieces, *(later[node] if step.later else ())],
                )
                for first, step in waiting.items()
                for node in step.later or (first,)
            ]
            for query in queries:
                for piece in query.pieces:
                    taking = self.passive.take_piece(
                        query.tree, query.node, number, piece, alone=len(queries) == 1
                    )
                    if taking is not None:
                        self._run(taking)
            replies: dict[int, Sequence[Any]] = {}
            self._run(self.passive.answer(queries), replies)
            number += 1
            following = {}
            for node, asking in waiting.items():
                step = self._advance(plans[node], replies if asking.later else replies[node])
                if isinstance(step, Exchange):
                    following[node] = step
                    continue
                for asked, answer in zip(questions[node].nodes, step, strict=True):
                    answers[asked.node] = answer
            waiting = following
        return answers

    def made(self, question: Question) -> dict[int, list[Values]]:
        """The pieces that follow later on a question, by node."""
        return {
            node: [piece for part in parts for piece in self._run(part)]
            for node, parts in question.parts().items()
        }

    def directions(self, node: int, rows: np.ndarray, left: np.ndarray) -> np.ndarray:
        """What the active half learns of ``rows`` where ``left`` says who goes left, of all."""
        plan = self.active.read_directions("telco", self.gradients.tree, node, rows)
        step = self._advance(plan, None)
        shown = self.passive.show_directions(self.gradients.tree, node, left, step.pieces)
        return self._advance(plan, self._run(shown))

    def _advance(self, plan: Any, value: Any) -> Any:
        """Run ``plan`` up to its next exchange, or to its value."""
        while True:
            try:
                step = plan.send(value)
            except StopIteration as stop:
                return stop.value
            if isinstance(step, Exchange):
                return step
            value = [computation.run() for computation in step.computations]

    @staticmethod
    def _run(plan: Any, replies: dict[int, Sequence[Any]] | None = None) -> Any:
        value: Any = None
        while True:
            try:
                step = plan.send(value)
            except StopIteration as stop:
                return stop.value
            if isinstance(step, Compute):
                value = [computation.run() for computation in step.computations]
            else:
                assert isinstance(step, Reply)
                assert replies is not None
                replies[step.node] = step.pieces
                value = None
