"""How is a plan run without I/O?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fedmq.computation import Computation
from fedmq.errors import FedmqError
from fedmq.privacy.plan import Compute, Ended, Exchange, Reply, advance
from fedmq.protocol.events import ComputationFailed, PlanReturned, RunPlan

__all__ = ["PlanRun", "run_inline"]


class PlanRun:
    """A plan as its runner knows it, from :class:`RunPlan` to :class:`PlanReturned`.

    ``computations`` are those under way; they may come back in any order.
    """

    __slots__ = ("_missing", "_plan", "_results", "computations", "ticket")

    computations: Sequence[Computation]

    def __init__(self, effect: RunPlan) -> None:
        self.ticket = effect.ticket
        self._plan = effect.plan
        self._expect(effect.computations)

    def add(self, index: int, result: Any) -> Compute | PlanReturned | ComputationFailed | None:
        """Take the result of computation ``index``; what follows, None while others are missing.

        After a :class:`Compute` the plan's next ``computations`` are under way.
        """
        self._results[index] = result
        self._missing -= 1
        if self._missing:
            return None
        try:
            step = advance(self._plan, self._results)
        except FedmqError as error:
            return ComputationFailed(self.ticket, error)
        if isinstance(step, Compute):
            self._expect(step.computations)
            return step
        return PlanReturned(self.ticket, step)

    def _expect(self, computations: Sequence[Computation]) -> None:
        self.computations = computations
        self._results: list[Any] = [None] * len(computations)
        self._missing = len(computations)


def run_inline(effect: RunPlan) -> PlanReturned:
    """Run the plan of ``effect`` here and now, for arithmetic that is cheaper than its way."""
    step: Compute | Exchange | Reply | Ended = Compute(effect.computations)
    while isinstance(step, Compute):
        step = advance(effect.plan, [computation.run() for computation in step.computations])
    return PlanReturned(effect.ticket, step)
