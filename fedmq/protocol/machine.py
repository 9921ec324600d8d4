"""How does a table drive handlers? The ground of all machines.

Where an event may lead stands in the table alone: the machine looks up the next state and enters
it before the handler runs. An event that the table lacks raises and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any, ClassVar, TypeVar

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
from fedmq.protocol.handlers import Handler, handlers_of, on, on_message
from fedmq.protocol.table import Done, Table, When, Yields

__all__ = ["UNLOADED", "Machine", "RunningPlan", "event_type"]

UNLOADED = "its own data could not be loaded; its log says why"
"""What peers read then: the error itself may quote the party's data."""

_REMEMBERED = 5  # events that an error lists

T = TypeVar("T")


def event_type(event: Event) -> type:
    """What the tables know an event by: its class, or its body's class for a message."""
    return type(event.body) if isinstance(event, Received) else type(event)


class RunningPlan:
    """A plan as its machine knows it: what follows from its value, its exchanges and replies.

    ``about``: what it works on, for errors.
    """

    __slots__ = ("about", "done", "on_step", "plan", "then")

    def __init__(
        self,
        done: Done,
        plan: Plan[Any],
        then: Callable[[Any], None],
        on_step: Callable[[Exchange | Reply, RunningPlan], None] | None,
        about: Any = None,
    ) -> None:
        self.done = done
        self.plan = plan
        self.then = then
        self.on_step = on_step
        self.about = about


class Machine:
    """A synchronous, deterministic state machine: ``handle(event)`` returns the effects."""

    TABLE: ClassVar[Table]
    HANDLERS: ClassVar[Mapping[type, Handler]]

    state: Enum
    failed_state: ClassVar[Enum]
    interrupted_state: ClassVar[Enum | None] = None
    """Where it waits for another attempt; None where a restart of a party ends the session."""
    ends_everywhere: ClassVar[bool] = False
    """Whether its end counts only once every peer has taken it."""

    def __init_subclass__(cls) -> None:
        cls.HANDLERS = handlers_of(cls)

    def __init__(self, state: Enum, peers: Sequence[str]) -> None:
        self.state = state
        self.peers = tuple(peers)
        self._effects: list[Effect] = []
        self._plans: dict[int, RunningPlan] = {}
        """The plans that are computed elsewhere, by ticket."""
        self._last_ticket = 0
        self._last_events: tuple[str, ...] = ()

    def handle(self, event: Event) -> list[Effect]:
        """What follows from ``event``.

        Raises:
            ProtocolError: the event is illegal in this state, which is left as it was. Its notes
                list which events came before; they are for this party alone.
        """
        before, self._effects = self.state, []
        try:
            taken = self._take(event)
            if self.state not in (self.failed_state, self.interrupted_state):
                self._settle()
        except BaseException:
            self.state = before
            raise
        if taken:
            self._last_events = (*self._last_events[1 - _REMEMBERED :], taken)
        effects, self._effects = self._effects, []
        return effects

    @property
    def rests(self) -> bool:
        """Whether it waits for its own party: for a computation, or for its owner."""
        return bool(self._plans) or self.awaits_consent

    @property
    def awaits_consent(self) -> bool:
        """Whether it waits for the consent of an owner: this party's, or a peer's."""
        return False

    def is_done_with(self, peer: str) -> bool:
        """Whether nothing more is expected of ``peer``, which may have forgotten the session."""
        return False

    def check(self) -> None:
        """Raise AssertionError where an invariant of this machine does not hold."""

    def _take(self, event: Event) -> str:
        """Handle ``event``; what it was, or nothing where it was ignored."""
        key = event_type(event)
        transition = self.TABLE.get((self.state, key))
        if transition is None:
            if not isinstance(event, PlanReturned) or event.ticket not in self._plans:
                raise self._illegal(_described(event))
            running = self._plans.pop(event.ticket)
            self._follow(running, event.step)
            return f"plan {running.done.plan!r}"
        if transition.ignored:
            return ""
        self.state = transition.to
        handler = self.HANDLERS[key]
        if isinstance(event, Received):
            handler(self, event.sender, event.body)
        else:
            handler(self, event)
        return _described(event)

    def _move(self, key: Done | Yields | When) -> None:
        """Enter the state to which ``key`` leads from here.

        Raises:
            ProtocolError: the table does not have it in this state.
        """
        transition = self.TABLE.get((self.state, key))
        if transition is None:
            raise self._illegal(str(key))
        self.state = transition.to

    def _illegal(self, described: str) -> ProtocolError:
        error = ProtocolError(
            f"{type(self).__name__} in state {self.state.name} cannot take {described}"
        )
        error.add_note(f"before it came: {', '.join(self._last_events) or 'nothing'}")
        return error

    def _settle(self) -> None:
        """Send what was collected while an event was handled."""

    def _emit(self, effect: Effect) -> None:
        self._effects.append(effect)

    def _send(self, recipient: str, body: Body) -> None:
        self._emit(Send(recipient, body))

    # Endings: a party that fails sends the others the reason.

    def _fail(self, error: FedmqError, but: str = "", disclosed: str = "") -> None:
        """End with ``error``; all peers but one read what is ``disclosed``, or the error."""
        for peer in self.peers:
            if peer != but:
                self._send(peer, Abort(reason=(disclosed or str(error))[:2000]))
        self._plans.clear()
        self.state = self.failed_state
        self._emit(Fail(error, disclosed))

    @staticmethod
    def _strike(peer: str, waiting: set[str]) -> None:
        """Wait no more for ``peer``; ProtocolError if it is not among the ``waiting``."""
        if peer not in waiting:
            raise ProtocolError("the same was said before")
        waiting.discard(peer)

    def _refused(self, peer: str, body: SessionRefuse, did: str = "refused the session") -> None:
        """End because ``peer`` refused; its reason is for this party alone.

        It may quote what the one holds or lacks, which the other peers do not know. ``peer`` hears
        of the end as well: it would else wait for ever, if it goes on all the same.
        """
        disclosed = f"{peer} {did}"
        self._fail(Refused(f"{disclosed}: {body.reason}"), disclosed=disclosed)

    @on_message(Abort)
    def _on_abort(self, peer: str, body: Abort) -> None:
        self._fail(Aborted(f"{peer} gave up: {body.reason}"), but=peer)

    @on(PeerLost)
    def _on_peer_lost(self, event: PeerLost) -> None:
        self._fail(PeerSilent(event.reason), but=event.peer)

    @on_message(SessionUnknown)
    def _on_unknown(self, peer: str, _: SessionUnknown) -> None:
        """A peer was restarted: what this attempt still has under way leads nowhere."""
        if self.interrupted_state is None:
            self._fail(Aborted(f"{peer} was restarted in the middle"), but=peer)
            return
        self._plans.clear()
        self._emit(Interrupted(peer))

    @on(Cancelled)
    def _on_cancelled(self, event: Cancelled) -> None:
        self._fail(Aborted(event.reason), disclosed=event.disclosed)

    @on(ComputationFailed)
    def _on_computation_failed(self, event: ComputationFailed) -> None:
        # What went wrong may quote this party's data, so the peers do not read it.
        self._fail(event.error, disclosed="its own arithmetic failed; its log says why")

    # Plans: the arithmetic of a machine, run elsewhere.

    def _run(
        self,
        done: Done,
        plan: Plan[T],
        then: Callable[[T], None],
        on_step: Callable[[Exchange | Reply, RunningPlan], None] | None = None,
        about: Any = None,
    ) -> None:
        """Run ``plan``; its value goes to ``then``, its exchanges and replies to ``on_step``."""
        self._resume(RunningPlan(done, plan, then, on_step, about), None)

    def _resume(self, running: RunningPlan, value: Any) -> None:
        self._follow(running, advance(running.plan, value))

    def _follow(self, running: RunningPlan, step: Compute | Exchange | Reply | Ended) -> None:
        while isinstance(step, Reply):
            self._hand_over(running, step)
            step = advance(running.plan, None)
        if isinstance(step, Compute):
            self._last_ticket += 1
            self._plans[self._last_ticket] = running
            self._emit(RunPlan(self._last_ticket, running.plan, step.computations))
        elif isinstance(step, Ended):
            self._move(running.done)
            running.then(step.value)
        else:
            self._hand_over(running, step)

    def _hand_over(self, running: RunningPlan, step: Exchange | Reply) -> None:
        assert running.on_step is not None
        self._move(Yields(running.done.plan))
        running.on_step(step, running)


def _described(event: Event) -> str:
    name = event_type(event).__name__
    return f"{name} from {event.sender}" if isinstance(event, Received) else name
