"""The ground of all machines: one table of what is legal, and plans that run without I/O.

The tables stand in :mod:`fedmq.protocol.states`; a handler only says what follows from an event.
An event that the table lacks raises and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, ClassVar

from fedmq.errors import Aborted, FedmqError, PeerSilent, ProtocolError, Refused
from fedmq.messages.body import Abort, Body, SessionRefuse, SessionUnknown
from fedmq.privacy.plan import Compute, Ended, Exchange, Plan, Reply, advance
from fedmq.protocol.events import (
    Cancelled,
    ComputationFailed,
    Effect,
    Event,
    Fail,
    Interrupted,
    PeerLost,
    PlanReturned,
    Received,
    RunPlan,
    Send,
)
from fedmq.protocol.plan_runner import RunningPlan
from fedmq.protocol.table import Table

__all__ = ["UNLOADED", "Machine", "event_type"]

UNLOADED = "its own data could not be loaded; its log says why"
"""What peers are told then: the error itself may quote the party's data."""


def event_type(event: Event) -> type:
    """What the tables know an event by: its class, or its body's class for a message."""
    return type(event.body) if isinstance(event, Received) else type(event)


class Machine:
    """A synchronous, deterministic state machine: ``handle(event)`` returns the effects."""

    TABLE: ClassVar[Table]

    state: Enum
    failed_state: ClassVar[Enum]
    interrupted_state: ClassVar[Enum | None] = None
    """Where it waits for another attempt; None where a restart of a party ends the session."""
    ends_everywhere: ClassVar[bool] = False
    """Whether its end counts only once every peer has taken it."""

    def __init__(self, state: Enum, peers: Sequence[str]) -> None:
        self.state = state
        self.peers = tuple(peers)
        self._effects: list[Effect] = []
        self._plans: dict[int, RunningPlan] = {}
        self._last_ticket = 0

    def handle(self, event: Event) -> list[Effect]:
        """What follows from ``event``.

        Raises:
            ProtocolError: the event is illegal in this state, which is left as it was.
        """
        transition = self.TABLE.get((self.state, event_type(event)))
        if transition is None:
            raise ProtocolError(
                f"{type(self).__name__} in state {self.state.name} cannot take "
                f"{event_type(event).__name__}"
                + (f" from {event.sender}" if isinstance(event, Received) else "")
            )
        self._effects = []
        getattr(self, transition.handler)(event)
        if self.state not in (self.failed_state, self.interrupted_state):
            self._settle()
        assert self.state in transition.to or self.state is self.failed_state
        effects, self._effects = self._effects, []
        return effects

    @property
    def rests(self) -> bool:
        """Whether it waits for its own party: for a computation, or for its owner."""
        return bool(self._plans)

    def is_done_with(self, peer: str) -> bool:
        """Whether nothing more is expected of ``peer``, which may have forgotten the session."""
        return False

    def check(self) -> None:
        """Raise AssertionError where an invariant of this machine does not hold."""

    def _settle(self) -> None:
        """Say what was collected while an event was handled."""

    def _emit(self, effect: Effect) -> None:
        self._effects.append(effect)

    def _send(self, recipient: str, body: Body) -> None:
        self._emit(Send(recipient, body))

    # Endings: whoever fails tells the others why.

    def _fail(self, error: FedmqError, but: str = "", told: str = "") -> None:
        """End with ``error``; the peers are ``told``, or what the error says."""
        for peer in self.peers:
            if peer != but:
                self._send(peer, Abort(reason=(told or str(error))[:2000]))
        self._plans.clear()
        self.state = self.failed_state
        self._emit(Fail(error, told))

    @staticmethod
    def _said_by(peer: str, waiting: set[str]) -> None:
        """Wait no more for ``peer``; ProtocolError if it is not among the ``waiting``."""
        if peer not in waiting:
            raise ProtocolError("the same was said before")
        waiting.discard(peer)

    def _refused(self, event: Received, did: str = "refused the session") -> None:
        """End because a peer refused; why is for this party alone.

        It may quote what the one holds or lacks, which the other peers do not know.
        """
        assert isinstance(event.body, SessionRefuse)
        told = f"{event.sender} {did}"
        self._fail(Refused(f"{told}: {event.body.reason}"), but=event.sender, told=told)

    def _on_abort(self, event: Received) -> None:
        assert isinstance(event.body, Abort)
        self._fail(Aborted(f"{event.sender} gave up: {event.body.reason}"), but=event.sender)

    def _on_peer_lost(self, event: PeerLost) -> None:
        self._fail(PeerSilent(event.reason), but=event.peer)

    def _on_unknown(self, event: Received) -> None:
        """A peer was restarted: what this attempt still has under way leads nowhere."""
        assert isinstance(event.body, SessionUnknown)
        if self.interrupted_state is None:
            self._fail(Aborted(f"{event.sender} was restarted in the middle"), but=event.sender)
            return
        self._plans.clear()
        self.state = self.interrupted_state
        self._emit(Interrupted(event.sender))

    def _on_cancelled(self, event: Cancelled) -> None:
        self._fail(Aborted(event.reason))

    def _on_computation_failed(self, event: ComputationFailed) -> None:
        # What went wrong may quote this party's data: that is for its own eyes.
        self._fail(event.error, told="its own arithmetic failed; its log says why")

    def _ignore(self, _: Event) -> None:
        """The session is over: what still comes in changes nothing."""

    # Plans: the arithmetic of a machine, run elsewhere.

    def _run(
        self,
        plan: Plan[Any],
        then: Callable[[Any], None],
        on_step: Callable[[Exchange | Reply, RunningPlan], None] | None = None,
    ) -> None:
        """Run ``plan``; its value goes to ``then``, its exchanges and replies to ``on_step``."""
        self._resume(RunningPlan(plan, then, on_step), None)

    def _resume(self, running: RunningPlan, value: Any) -> None:
        self._follow(running, advance(running.plan, value))

    def _follow(self, running: RunningPlan, step: Compute | Exchange | Reply | Ended) -> None:
        while isinstance(step, Reply):
            assert running.on_step is not None
            running.on_step(step, running)
            step = advance(running.plan, None)
        if isinstance(step, Compute):
            self._last_ticket += 1
            self._plans[self._last_ticket] = running
            self._emit(RunPlan(self._last_ticket, running.plan, step.computations))
        elif isinstance(step, Ended):
            running.then(step.value)
        else:
            assert running.on_step is not None
            running.on_step(step, running)

    def _on_returned(self, event: PlanReturned) -> None:
        running = self._plans.pop(event.ticket, None)
        if running is None:
            raise ProtocolError(f"nobody waits for plan {event.ticket}")
        self._follow(running, event.step)
