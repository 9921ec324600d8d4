"""The ground of all machines: one table of what is legal, and plans that run without I/O.

Everything that decides what may happen when is a machine's ``TABLE``; a handler only says what
then follows. An event that the table lacks raises and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, ClassVar

from fedmq.errors import FedmqError, ProtocolError
from fedmq.messages.body import Body
from fedmq.privacy.engine import Compute, Exchange, Plan, Reply
from fedmq.protocol.events import (
    ComputationFailed,
    Computed,
    Effect,
    Event,
    Fail,
    Received,
    RunComputation,
    Send,
)

__all__ = ["Machine", "RunningPlan", "Table", "event_type"]

Table = Mapping[tuple[Enum, type], str]
"""``(state, event or body class) -> name of the handler``."""


def event_type(event: Event) -> type:
    """What the tables know an event by: its class, or its body's class for a message."""
    return type(event.body) if isinstance(event, Received) else type(event)


class RunningPlan:
    """A plan between two of its steps."""

    __slots__ = ("missing", "on_step", "plan", "results", "then")

    def __init__(
        self,
        plan: Plan[Any],
        then: Callable[[Any], None],
        on_step: Callable[[Exchange | Reply, RunningPlan], None] | None,
    ) -> None:
        self.plan = plan
        self.then = then
        self.on_step = on_step
        self.results: list[Any] = []
        self.missing = 0


class Machine:
    """A synchronous, deterministic state machine: ``handle(event)`` returns the effects."""

    TABLE: ClassVar[Table]

    state: Enum
    failed_state: ClassVar[Enum]

    def __init__(self, state: Enum) -> None:
        self.state = state
        self._effects: list[Effect] = []
        self._tickets: dict[int, tuple[RunningPlan, int]] = {}
        self._last_ticket = 0

    def handle(self, event: Event) -> list[Effect]:
        """What follows from ``event``.

        Raises:
            ProtocolError: the event is illegal in this state, which is left as it was.
        """
        handler = self.TABLE.get((self.state, event_type(event)))
        if handler is None:
            raise ProtocolError(
                f"{type(self).__name__} in state {self.state.name} cannot take "
                f"{event_type(event).__name__}"
                + (f" from {event.sender}" if isinstance(event, Received) else "")
            )
        self._effects = []
        getattr(self, handler)(event)
        self._settle()
        effects, self._effects = self._effects, []
        return effects

    def check(self) -> None:
        """Raise AssertionError where an invariant of this machine does not hold."""

    def _settle(self) -> None:
        """Say what was collected while an event was handled."""

    def _emit(self, effect: Effect) -> None:
        self._effects.append(effect)

    def _send(self, recipient: str, body: Body) -> None:
        self._emit(Send(recipient, body))

    def _fail(self, error: FedmqError) -> None:
        self._drop_plans()
        self.state = self.failed_state
        self._emit(Fail(error))

    # Plans: the arithmetic of a machine, one step at a time.

    def _run(
        self,
        plan: Plan[Any],
        then: Callable[[Any], None],
        on_step: Callable[[Exchange | Reply, RunningPlan], None] | None = None,
    ) -> None:
        """Run ``plan``; its value goes to ``then``, its exchanges and replies to ``on_step``."""
        self._resume(RunningPlan(plan, then, on_step), None)

    def _resume(self, running: RunningPlan, value: Any) -> None:
        while True:
            try:
                step = running.plan.send(value)
            except StopIteration as stop:
                running.then(stop.value)
                return
            if isinstance(step, Compute):
                if step.computations:
                    self._order(running, step)
                    return
                value = []
            elif isinstance(step, Reply):
                assert running.on_step is not None
                running.on_step(step, running)
                value = None
            else:
                assert running.on_step is not None
                running.on_step(step, running)
                return

    def _order(self, running: RunningPlan, step: Compute) -> None:
        running.results = [None] * len(step.computations)
        running.missing = len(step.computations)
        for index, computation in enumerate(step.computations):
            self._last_ticket += 1
            self._tickets[self._last_ticket] = (running, index)
            self._emit(RunComputation(self._last_ticket, computation))

    def _on_computed(self, event: Computed) -> None:
        if event.ticket not in self._tickets:
            raise ProtocolError(f"nobody waits for computation {event.ticket}")
        running, index = self._tickets.pop(event.ticket)
        running.results[index] = event.result
        running.missing -= 1
        if running.missing == 0:
            self._resume(running, running.results)

    def _on_computation_failed(self, event: ComputationFailed) -> None:
        self._fail(event.error)

    def _drop_plans(self) -> None:
        self._tickets.clear()

    def _ignore(self, _: Event) -> None:
        """The session is over: what still comes in changes nothing."""
