"""Plans one computation at a time, so that a schedule decides in which order they come back.

A daemon hears of a plan when all of its computations are done. Here each of them has a number,
which is how recorded histories know them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fedmq.computation import Computation
from fedmq.errors import FedmqError
from fedmq.privacy.plan import Compute, Ended
from fedmq.protocol.events import ComputationFailed, Effect, PlanReturned, RunPlan
from fedmq.protocol.machine import PlanRunner
from fedmq.protocol.session import Session


@dataclass(frozen=True, slots=True)
class RunComputation:
    """Computation ``number`` was handed out."""

    number: int
    computation: Computation

    def outcome(self) -> Computed | Failed:
        """What the computation comes to."""
        try:
            return Computed(self.number, self.computation.run())
        except FedmqError as error:
            return Failed(self.number, error)


@dataclass(frozen=True, slots=True)
class Computed:
    """Computation ``number`` came to ``result``."""

    number: int
    result: Any


@dataclass(frozen=True, slots=True)
class Failed:
    """Computation ``number`` could not be done."""

    number: int
    error: FedmqError


class Stepper:
    """``handle`` with computations in place of plans; ``is_over``: nothing is computed any more."""

    def __init__(
        self,
        handle: Callable[[Any], list[Effect]],
        is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        self._handle = handle
        self._is_over = is_over
        self._runs: dict[int, tuple[PlanRunner, int]] = {}
        self._last = 0

    def handle(self, event: Any) -> list[Any]:
        """What follows from ``event``, which may be the outcome of a computation."""
        match event:
            case Computed(number, result):
                return self._computed(*self._runs.pop(number), result)
            case Failed(number, error):
                run, _ = self._runs.pop(number)
                return self._stepped(self._handle(ComputationFailed(run.ticket, error)))
        return self._stepped(self._handle(event))

    def _computed(self, run: PlanRunner, index: int, result: Any) -> list[Any]:
        if self._is_over():
            return self._handle(PlanReturned(run.ticket, Ended(None)))
        following = run.add(index, result)
        if following is None:
            return []
        if isinstance(following, Compute):
            return self._handed_out(run)
        return self._stepped(self._handle(following))

    def _stepped(self, effects: list[Effect]) -> list[Any]:
        stepped: list[Any] = []
        for effect in effects:
            match effect:
                case RunPlan(ticket, plan, computations):
                    stepped += self._handed_out(PlanRunner(ticket, plan, computations))
                case _:
                    stepped.append(effect)
        return stepped

    def _handed_out(self, run: PlanRunner) -> list[RunComputation]:
        handed_out = []
        for index, computation in enumerate(run.computations):
            self._last += 1
            self._runs[self._last] = (run, index)
            handed_out.append(RunComputation(self._last, computation))
        return handed_out


class SteppedSession(Session):
    """A session with computations in place of plans."""

    def __init__(self, session: Session) -> None:
        super().__init__(session.machine, session.mailbox)
        self._stepper = Stepper(super().handle, lambda: self.over)

    def handle(self, event: Any) -> list[Any]:
        return self._stepper.handle(event)
