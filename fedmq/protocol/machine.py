"""How is the machine of a session kind written, and how does its table drive its handlers?

A session kind has a table in its ``states.py``: the next state by state and event. The table alone
decides what is legal. A machine is pure: events come in, effects go out. It enters the next state
before the event's handler runs. An event that the table lacks raises and changes nothing.
Arithmetic is a plan, which runs elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from types import MethodType
from typing import Any, ClassVar, Protocol, TypeVar

from fedmq.computation import Computation
from fedmq.errors import Aborted, FedmqError, PeerSilent, ProtocolError, Refused
from fedmq.messages.body import Abort, Body, ConsentPendingMessage, SessionRefuse, SessionUnknown
from fedmq.privacy.plan import Compute, Ended, Exchange, Plan, Reply
from fedmq.protocol.events import (
    Cancelled,
    ComputationFailed,
    ConsentDecided,
    ConsentPending,
    Effect,
    Event,
    Fail,
    Interrupted,
    PeerLost,
    PlanReturned,
    Received,
    RequestConsent,
    RunPlan,
    Send,
    Start,
)

__all__ = [
    "ASKS_OWNER",
    "OTHER_TRAINING",
    "REFUSES",
    "UNLOADED",
    "Done",
    "Handler",
    "Key",
    "Machine",
    "OwnConsent",
    "Part",
    "PeerConsents",
    "PlanRunner",
    "PlanState",
    "Rows",
    "Speaker",
    "Table",
    "Transition",
    "When",
    "Witness",
    "Yields",
    "advance",
    "event_type",
    "handlers_of",
    "on",
    "on_message",
    "run_inline",
    "session_table",
    "turn_down",
]


@dataclass(frozen=True, slots=True)
class Done:
    """The plan of this name has ended."""

    plan: str

    def __str__(self) -> str:
        return f"Done({self.plan})"


@dataclass(frozen=True, slots=True)
class Yields:
    """The plan of this name wants to exchange messages with its other half, or to reply."""

    plan: str

    def __str__(self) -> str:
        return f"Yields({self.plan})"


@dataclass(frozen=True, slots=True)
class When:
    """A condition that the machine finds to hold while it handles an event."""

    condition: str

    def __str__(self) -> str:
        return f"when {self.condition}"


ASKS_OWNER = When("its owner has to agree first")
REFUSES = When("it refuses")

Key = type | Done | Yields | When
"""The key of a row: an event's class (for a message its body's class), a plan, or a condition."""


@dataclass(frozen=True, slots=True)
class Transition:
    """The next state; an ``ignored`` event has no effect."""

    to: Enum
    ignored: bool = False


Table = Mapping[tuple[Enum, Key], Transition]

Rows = Mapping[Enum, Mapping[Key, Enum]]
"""The next state by state and key."""


def session_table(live: Rows, over: tuple[Enum, ...], states: type[Enum]) -> Table:
    """The table with rows ``live`` and the rows that all sessions share.

    ``over``: the states finished, failed and, for some kinds, waiting for another attempt.
    """
    _, failed, *more = over
    interrupted = more[0] if more else None
    running = {state for state in states if state not in over}
    # A session, or this attempt at it, may end in any live state.
    endings: dict[Key, Enum] = dict.fromkeys(
        (Abort, PeerLost, Cancelled, ComputationFailed), failed
    )
    endings[SessionUnknown] = interrupted or failed
    table = {(state, key): Transition(to) for state in running for key, to in endings.items()}
    for state, rows in live.items():
        table |= {(state, key): Transition(to) for key, to in rows.items()}
    # When a session is over, late events change nothing.
    events = {key for _, key in table if isinstance(key, type)} - {Start} | {PlanReturned}
    table |= {(state, key): Transition(state, ignored=True) for state in over for key in events}
    if interrupted is not None:
        table |= {(interrupted, key): Transition(failed) for key in (Abort, Cancelled)}
    return table


# Which method of a machine handles an event?

M = TypeVar("M")
E = TypeVar("E")
B = TypeVar("B", bound=Body)

Handler = Callable[..., None]

_EVENTS: dict[Handler, tuple[type, ...]] = {}


def on(event: type[E]) -> Callable[[Callable[[M, E], None]], Callable[[M, E], None]]:
    """Mark the method that handles events of this class, wherever the table allows them."""

    def mark(handler: Callable[[M, E], None]) -> Callable[[M, E], None]:
        _EVENTS[handler] = (event,)
        return handler

    return mark


def on_message(
    *bodies: type[B],
) -> Callable[[Callable[[M, str, B], None]], Callable[[M, str, B], None]]:
    """Mark the method that takes the sender and the body of messages of these classes."""

    def mark(handler: Callable[[M, str, B], None]) -> Callable[[M, str, B], None]:
        _EVENTS[handler] = bodies
        return handler

    return mark


def handlers_of(machine: type[Any]) -> Mapping[type, Handler]:
    """The handlers of ``machine`` by event; an override handles the events of its base method."""
    names = {
        event: name
        for base in reversed(machine.__mro__)
        for name, method in vars(base).items()
        if callable(method) and method in _EVENTS
        for event in _EVENTS[method]
    }
    return {event: getattr(machine, name) for event, name in names.items()}


# How the table drives the handlers: the ground of all machines.

UNLOADED = "its own data could not be loaded; its log says why"
"""The reason that peers read: the error itself may quote the party's data."""

OTHER_TRAINING = (
    "its share is of another training than the active party's share of this model: the state of "
    "one of them is old, as if put back from a backup; put back the newer one, or train anew"
)
"""The reason not to score with shares that do not belong together: their scores would be wrong."""

_REMEMBERED = 5  # events that an error lists

T = TypeVar("T")


def event_type(event: Event) -> type:
    """The table key of an event: its class, or its body's class for a message."""
    return type(event.body) if isinstance(event, Received) else type(event)


@dataclass(slots=True, eq=False)
class PlanState:
    """A plan in its machine: ``then`` takes its value, ``on_step`` its exchanges and replies.

    ``about``: the plan's subject, for errors.
    """

    done: Done
    plan: Plan[Any]
    then: Callable[[Any], None]
    on_step: Callable[[Exchange | Reply, PlanState], None] | None
    about: Any = None


class Speaker(Enum):
    """Which peers may send a body."""

    ACTIVE = "the active party alone"
    ACTIVE_OR_IGNORED = "the active party; from others it changes nothing"


class Witness(Protocol):
    """Sees every message of a machine before its table does, and before it leaves."""

    def received(self, sender: str, body: Body) -> None:
        """See a body that arrived. Raises the error that ends the session if it is not allowed."""

    def sending(self, recipient: str, body: Body) -> Body:
        """See a body before it leaves; returns the body to send."""


class Part:
    """Handlers of some states of a machine, with their private state.

    A part acts through its machine's verbs: send, emit, run, resume, move, fail. A machine names
    its part classes in ``PARTS`` and attaches each part; a part lives for a session, or for a tree.
    """

    def __init__(self, machine: Machine) -> None:
        self._send = machine._send
        self._emit = machine._emit
        self._run = machine._run
        self._resume = machine._resume
        self._move = machine._move
        self._fail = machine._fail
        self._at_end = machine._at_end


class Machine:
    """A synchronous, deterministic state machine: ``handle(event)`` returns the effects."""

    TABLE: ClassVar[Table]
    PARTS: ClassVar[tuple[type[Part], ...]] = ()
    HANDLERS: ClassVar[Mapping[type, Handler]]
    """The handlers of the machine and its parts, by event."""
    SPEAKERS: ClassVar[Mapping[type[Body], Speaker]] = {}
    """The bodies that only some peers may send."""
    _OWN_HANDLERS: ClassVar[Mapping[type, Handler]]

    state: Enum
    failed_state: ClassVar[Enum]
    interrupted_state: ClassVar[Enum | None] = None
    """The state that waits for another attempt; None if a party's restart ends the session."""
    ends_everywhere: ClassVar[bool] = False
    """Whether the end counts only once every peer has acknowledged it."""

    def __init_subclass__(cls) -> None:
        cls._OWN_HANDLERS = handlers_of(cls)
        cls.HANDLERS = dict(cls._OWN_HANDLERS)
        for part in cls.PARTS:
            cls.HANDLERS |= handlers_of(part)

    def __init__(self, state: Enum, peers: Sequence[str], active: str = "") -> None:
        self.state = state
        self.peers = tuple(peers)
        self.active = active
        """The active party, if ``SPEAKERS`` needs it."""
        self.witness: Witness | None = None
        self._attached: dict[type, Handler] = {}
        """The handlers of parts, by event."""
        self._ending: list[Callable[[], None]] = []
        """Work to do once after the current event."""
        self._effects: list[Effect] = []
        self._plans: dict[int, PlanState] = {}
        """The plans that run elsewhere, by ticket."""
        self._last_ticket = 0
        self._last_events: tuple[str, ...] = ()

    def handle(self, event: Event) -> list[Effect]:
        """The effects of ``event``.

        Raises:
            ProtocolError: the event is illegal in this state, which stays unchanged. The notes list
                the events before it; they are for this party alone.
        """
        before = self.state
        try:
            taken = self._take(event)
            if self._ending and self.state not in (self.failed_state, self.interrupted_state):
                for work in self._ending:
                    work()
        except BaseException:
            self.state, self._effects = before, []
            raise
        finally:
            self._ending = []
        if taken:
            self._last_events = (*self._last_events[1 - _REMEMBERED :], taken)
        effects, self._effects = self._effects, []
        return effects

    @property
    def rests(self) -> bool:
        """Whether the machine waits for its own party: for a computation, or for the owner."""
        return bool(self._plans) or self.awaits_consent

    @property
    def awaits_consent(self) -> bool:
        """Whether the machine waits for the consent of an owner: this party's, or a peer's."""
        return False

    def _attach(self, part: Part) -> None:
        """Route events to ``part`` from now on, in place of an earlier part of its class."""
        for event, handler in handlers_of(type(part)).items():
            self._attached[event] = MethodType(handler, part)

    def is_done_with(self, peer: str) -> bool:
        """Whether the machine expects nothing more of ``peer``, which may forget the session."""
        return False

    def check(self) -> None:
        """Raise AssertionError if an invariant of this machine does not hold."""

    def _take(self, event: Event) -> str:
        """Handle ``event``; returns its description, empty if it was ignored."""
        if isinstance(event, Received):
            key: type = type(event.body)
            what = f"{key.__name__} from {event.sender}"
            if key in self.SPEAKERS and event.sender != self.active:
                if self.SPEAKERS[key] is Speaker.ACTIVE_OR_IGNORED:
                    return ""
                raise ProtocolError(f"{event.body.kind} from {event.sender}, which may not send it")
            if self.witness is not None:
                self.witness.received(event.sender, event.body)
        else:
            key = type(event)
            what = key.__name__
        transition = self.TABLE.get((self.state, key))
        if transition is None:
            if not isinstance(event, PlanReturned) or event.ticket not in self._plans:
                raise self._illegal(what)
            running = self._plans.pop(event.ticket)
            self._follow(running, event.step)
            return f"plan {running.done.plan!r}"
        if transition.ignored:
            return ""
        handler = self._attached.get(key)
        if handler is None:
            if key not in self._OWN_HANDLERS:
                raise self._illegal(what)  # its part is absent in this session
            handler = MethodType(self._OWN_HANDLERS[key], self)
        self.state = transition.to
        if isinstance(event, Received):
            handler(event.sender, event.body)
        else:
            handler(event)
        return what

    def _move(self, key: Done | Yields | When) -> None:
        """Enter the next state of ``key``.

        Raises:
            ProtocolError: the table lacks ``key`` in this state.
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

    def _at_end(self, work: Callable[[], None]) -> None:
        """Do ``work`` once after the current event, unless the session ends."""
        if work not in self._ending:
            self._ending.append(work)

    def _emit(self, effect: Effect) -> None:
        self._effects.append(effect)

    def _send(self, recipient: str, body: Body) -> None:
        if self.witness is not None:
            body = self.witness.sending(recipient, body)
        self._effects.append(Send(recipient, body))

    # Endings: a party that fails sends the others the reason.

    def _fail(self, error: FedmqError, except_for: str = "", disclosed: str = "") -> None:
        """End with ``error``; peers except ``except_for`` read ``disclosed``, or the error."""
        for peer in self.peers:
            if peer != except_for:
                self._send(peer, Abort(reason=(disclosed or str(error))[:2000]))
        self._plans.clear()
        self.state = self.failed_state
        self._emit(Fail(error, disclosed))

    @staticmethod
    def _discard(peer: str, waiting: set[str]) -> None:
        """Stop waiting for ``peer``; ProtocolError if it is not among ``waiting``."""
        if peer not in waiting:
            raise ProtocolError("the peer repeats itself")
        waiting.discard(peer)

    def _refused(self, peer: str, body: SessionRefuse, did: str = "refused the session") -> None:
        """End because ``peer`` refused; its reason is for this party alone.

        The reason may quote data of ``peer`` that other peers do not know. ``peer`` hears of the
        end as well: otherwise a peer that continues would wait forever.
        """
        disclosed = f"{peer} {did}"
        self._fail(Refused(f"{disclosed}: {body.reason}"), disclosed=disclosed)

    @on_message(Abort)
    def _on_abort(self, peer: str, body: Abort) -> None:
        self._fail(Aborted(f"{peer} gave up: {body.reason}"), except_for=peer)

    @on(PeerLost)
    def _on_peer_lost(self, event: PeerLost) -> None:
        self._fail(PeerSilent(event.reason, (event.peer,)), except_for=event.peer)

    @on_message(SessionUnknown)
    def _on_unknown(self, peer: str, _: SessionUnknown) -> None:
        """A peer was restarted: drop the plans of this attempt."""
        if self.interrupted_state is None:
            self._fail(Aborted(f"{peer} restarted in the middle of the session"), except_for=peer)
            return
        self._plans.clear()
        self._emit(Interrupted(peer))

    @on(Cancelled)
    def _on_cancelled(self, event: Cancelled) -> None:
        self._fail(Aborted(event.reason), disclosed=event.disclosed)

    @on(ComputationFailed)
    def _on_computation_failed(self, event: ComputationFailed) -> None:
        # The error may quote this party's data, so peers do not read it.
        self._fail(event.error, disclosed="its own arithmetic failed; its log says why")

    # Plans: the arithmetic of a machine, run elsewhere.

    def _run(
        self,
        done: Done,
        plan: Plan[T],
        then: Callable[[T], None],
        on_step: Callable[[Exchange | Reply, PlanState], None] | None = None,
        about: Any = None,
    ) -> None:
        """Run ``plan``; its value goes to ``then``, its exchanges and replies to ``on_step``."""
        self._follow(PlanState(done, plan, then, on_step, about), advance(plan, None))

    def _resume(self, running: PlanState, value: Any) -> None:
        self._follow(running, advance(running.plan, value))

    def _follow(self, running: PlanState, step: Compute | Exchange | Reply | Ended) -> None:
        while isinstance(step, Exchange | Reply):
            assert running.on_step is not None
            self._move(Yields(running.done.plan))
            running.on_step(step, running)
            if isinstance(step, Exchange):
                return  # the plan is resumed with the answer
            step = advance(running.plan, None)
        if isinstance(step, Compute):
            self._last_ticket += 1
            self._plans[self._last_ticket] = running
            self._effects.append(RunPlan(self._last_ticket, running.plan, step.computations))
        else:
            self._move(running.done)
            running.then(step.value)


# Consent: this party's owner may have to agree, or the owners of peers.


def turn_down(machine: Machine, recipient: str, reason: str) -> None:
    """Tell ``recipient`` why ``machine`` takes no part; the machine ends itself after that."""
    machine._move(REFUSES)
    machine._send(recipient, SessionRefuse(reason=reason[:2000]))


class OwnConsent(Part):
    """The passive party's consent: its owner may have to agree before it reads any data.

    ``within``: seconds that the owner has to answer; 0: the owner is not asked. Then ``prepare``
    reads this party's data, or ``refuse`` refuses the session.
    """

    def __init__(
        self,
        machine: Machine,
        within: int,
        prepare: Callable[[], None],
        refuse: Callable[[FedmqError], None],
    ) -> None:
        super().__init__(machine)
        self._within = within
        self._prepare = prepare
        self._refuse = refuse

    def begin(self, asked_by: str) -> None:
        """Prepare at once, or after the owner agrees; ``asked_by`` learns that it must wait."""
        if not self._within:
            self._prepare()
            return
        self._move(ASKS_OWNER)
        self._emit(RequestConsent())
        self._send(asked_by, ConsentPendingMessage(seconds=self._within))

    @on(ConsentDecided)
    def _on_owner_decided(self, event: ConsentDecided) -> None:
        if event.refusal:
            self._refuse(Refused(event.refusal))
        else:
            self._prepare()


class PeerConsents(Part):
    """The active party's view of consent: peers whose owners are asked and have not answered."""

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self._asked: set[str] = set()
        self._answered: set[str] = set()

    def __bool__(self) -> bool:
        """Whether an owner has still to answer."""
        return bool(self._asked)

    @on_message(ConsentPendingMessage)
    def _on_consent_awaited(self, peer: str, body: ConsentPendingMessage) -> None:
        if peer in self._asked | self._answered:  # twice, or too late
            raise ProtocolError("its owner was asked before")
        self._asked.add(peer)
        self._emit(ConsentPending(peer, body.seconds))

    def answered(self, peer: str) -> None:
        """Stop waiting for the owner of ``peer``, which takes part."""
        self._answered.add(peer)
        if peer in self._asked:
            self._asked.discard(peer)
            self._emit(ConsentPending(peer, 0))


# Running a plan without I/O, for a machine's `RunPlan`.


def advance(plan: Plan[Any], value: Any) -> Compute | Exchange | Reply | Ended:
    """Resume ``plan`` with ``value`` up to its next step or its end; skip empty Computes."""
    while True:
        try:
            step = plan.send(value)
        except StopIteration as stop:
            return Ended(stop.value)
        if not isinstance(step, Compute) or step.computations:
            return step
        value = []


@dataclass(slots=True, eq=False)
class PlanRunner:
    """Runs the ``plan`` of a :class:`RunPlan` up to its :class:`PlanReturned`.

    ``computations`` are under way; their ``results`` may come in any order.
    """

    ticket: int
    plan: Plan[Any]
    computations: Sequence[Computation]
    results: dict[int, Any] = field(default_factory=dict)

    def add(self, index: int, result: Any) -> Compute | PlanReturned | ComputationFailed | None:
        """Take the result of computation ``index``; None while other results are missing.

        If it returns a :class:`Compute`, the plan's next ``computations`` are under way.
        """
        self.results[index] = result
        if len(self.results) < len(self.computations):
            return None
        try:
            step = advance(self.plan, [self.results[n] for n in range(len(self.computations))])
        except FedmqError as error:
            return ComputationFailed(self.ticket, error)
        if isinstance(step, Compute):
            self.computations, self.results = step.computations, {}
            return step
        return PlanReturned(self.ticket, step)


def run_inline(effect: RunPlan) -> PlanReturned:
    """Run the plan of ``effect`` at once, for arithmetic cheaper than its transfer to a worker."""
    step: Compute | Exchange | Reply | Ended = Compute(effect.computations)
    while isinstance(step, Compute):
        step = advance(effect.plan, [computation.run() for computation in step.computations])
    return PlanReturned(effect.ticket, step)
