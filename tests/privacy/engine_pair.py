"""Both halves of an engine in one place, without messages: a plan is simply run to its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from fedmq.boosting.binning import BinMatrix
from fedmq.boosting.candidates import CandidateTable
from fedmq.boosting.gradients import Gradients
from fedmq.privacy.engine import AskedNode, Best, Engine, Query, Sums
from fedmq.privacy.plan import Compute, Exchange, Reply


class EnginePair:
    """One active and one passive half over the same rows."""

    def __init__(self, engine: Engine, bins: BinMatrix, parallelism: int = 2) -> None:
        self.engine = engine
        self.bins = bins
        self.active = engine.active(parallelism)
        public = self._run(self.active.open())
        self.passive = engine.passive(public, bins, parallelism)
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
    ) -> dict[int, Sums | Best]:
        """What the active half learns of each node, given all the rows that stand in it."""
        plans = {}
        for node, rows in nodes.items():
            held = rows[self.gradients.carried[rows]]
            plans[node] = self.active.ask("telco", AskedNode(self.gradients.tree, node, held))
        waiting = {node: self._advance(plan, None) for node, plan in plans.items()}
        answers: dict[int, Sums | Best] = {}
        number = 0
        while waiting:
            queries = [
                Query(
                    self.gradients.tree,
                    node,
                    number,
                    np.arange(self.bins.n_rows, dtype=np.int32)
                    if self.engine.hides_rows
                    else nodes[node],
                    candidates,
                    orders[node],
                    step.pieces,
                )
                for node, step in waiting.items()
            ]
            replies: dict[int, Sequence[Any]] = {}
            self._run(self.passive.answer(queries), replies)
            number += 1
            following = {}
            for node in waiting:
                step = self._advance(plans[node], replies[node])
                if isinstance(step, Exchange):
                    following[node] = step
                else:
                    answers[node] = step
            waiting = following
        return answers

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

    def _run(self, plan: Any, replies: dict[int, Sequence[Any]] | None = None) -> Any:
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
