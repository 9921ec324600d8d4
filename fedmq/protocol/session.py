"""What is one attempt at a session? A machine with its mail.

The transport may lose, repeat, delay and reorder messages; the machine gets each once and in order.
Each ordered pair of parties counts its messages, and the receiver acknowledges what it has taken
without a gap. A message on its way to the broker is not resent. If one that the broker has
confirmed stays unacknowledged for longer than this link takes, the mailbox does not resend it, for
it may only wait behind megabytes: a probe follows it through the same queue. The probe's
acknowledgement names the messages that came early, so what left before the probe and is not among
them is lost, and alone resent. A peer that does not name them gets the oldest message again, and
more at a time only if that one was lost. Waits grow under the retry policy. The mailbox also probes
a peer that has been silent for long.

Early messages are kept packed, up to a limit in bytes; beyond the limit a message counts as lost,
and its sender resends it. A broker with confirmed publishing rarely needs this; a link that breaks
does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice

import numpy as np

from fedmq.errors import FedmqError, MessageError, OldState, ProtocolError
from fedmq.messages.body import MOST_RANGES, Abort, Acknowledge, Body, Probe, SessionUnknown
from fedmq.messages.codec import pack, read_body
from fedmq.messages.envelope import Envelope, Header
from fedmq.protocol.events import (
    Arrived,
    Cancelled,
    CancelTimer,
    ComputationFailed,
    ConsentDecided,
    Effect,
    Event,
    Fail,
    Finish,
    Interrupted,
    Pause,
    PeerLost,
    PlanReturned,
    Received,
    Resume,
    Send,
    SetTimer,
    Start,
    TimerFired,
    Transmit,
    Waiting,
)
from fedmq.protocol.machine import Machine
from fedmq.protocol.retry_policy import RetryPolicy

__all__ = [
    "Acknowledgement",
    "Address",
    "Decision",
    "Lost",
    "Mailbox",
    "Probing",
    "Resend",
    "RoundTrip",
    "Session",
    "SessionEvent",
    "Stall",
    "StoredState",
    "decide",
    "resend_wait",
]


_SLOWEST = 32_000
"""Bytes a second, a quarter of a Mbit/s: the assumed speed of an unmeasured link."""

_MEASURED_BYTES = 16 * 1024
"""Fewer say nothing about the speed of a link, for they mostly wait."""

# RFC 6298, section 2: alpha, beta and K.
_OF_NEWEST = 1 / 8
_OF_NEWEST_DEVIATION = 1 / 4
_DEVIATIONS = 4


@dataclass(slots=True)
class RoundTrip:
    """Seconds until a peer acknowledges what waits the longest, smoothed, and the link's speed.

    They begin at the broker's confirm, or at the acknowledgement of what came before, whichever is
    later, so a long queue does not count. RFC 6298: ``srtt = 7/8 srtt + 1/8 r``, ``rttvar = 3/4
    rttvar + 1/4 |srtt - r|``, and an acknowledgement is due after ``srtt + 4 rttvar``. Larger
    messages take longer, so their bytes count besides, at the speed that was measured.
    """

    smoothed: float | None = None
    deviation: float = 0.0
    rate: float = 0.0
    """Bytes a second that were acknowledged, smoothed; 0 before the first large message."""

    def measure(self, seconds: float, size: int = 0) -> None:
        """Add a measurement: ``size`` bytes, sent once, were acknowledged after ``seconds``."""
        if size >= _MEASURED_BYTES and seconds > 0:
            rate = size / seconds
            self.rate += (_OF_NEWEST if self.rate else 1.0) * (rate - self.rate)
        if self.smoothed is None:
            self.smoothed, self.deviation = seconds, seconds / 2
            return
        error = abs(self.smoothed - seconds)
        self.deviation += _OF_NEWEST_DEVIATION * (error - self.deviation)
        self.smoothed += _OF_NEWEST * (seconds - self.smoothed)

    def due(self, size: int) -> float:
        """Seconds after which a message of ``size`` bytes should be acknowledged."""
        measured = (self.smoothed or 0.0) + _DEVIATIONS * self.deviation
        return measured + size / (self.rate or _SLOWEST)


def resend_wait(
    policy: RetryPolicy, retry: int, random: np.random.Generator, at_least: float = 0.0
) -> float:
    """Seconds to wait before resend number ``retry`` + 1; ``at_least`` if the link is slow."""
    within_floats = retry * math.log2(policy.factor) < 1000
    growth = policy.factor**retry if within_floats else math.inf
    wait = max(policy.first, at_least) * growth
    wait = min(wait, max(policy.ceiling, at_least))
    return float(wait * (1 + policy.jitter * random.random()))


# The mail: how a message arrives once and in order.

_WINDOW = 4096  # messages that may arrive early; a gap this long means a foreign sender
_EARLY_BYTES = 96 * 2**20  # kept of one peer: a hundred full messages, such as a broadcast
_RESENT_AT_ONCE = 8
_ACKNOWLEDGE_EVERY = 32
_READS = " early"
"""Ends the ids of acknowledgements and probes of parties that read names of early messages: in an
id, others overread it."""
_PATIENCE = 4
"""Time-outs after which the oldest message is resent although no probe was answered."""


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a mailbox: a party in one attempt at one session."""

    federation: str
    session: str
    attempt: int
    party: str


@dataclass(frozen=True, slots=True)
class Resend:
    """The timer after which unacknowledged messages to ``peer`` are resent."""

    peer: str


@dataclass(frozen=True, slots=True)
class Probing:
    """The timer after which a silent ``peer`` is probed."""

    peer: str


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """The timer after which ``peer`` gets an acknowledgement."""

    peer: str


@dataclass(frozen=True, slots=True)
class Lost:
    """``peer`` has not acknowledged anything after all the resends of the policy."""

    peer: str
    reason: str


@dataclass(slots=True)
class _Peer:
    sent: int = 0
    unacknowledged: dict[int, Body] = field(default_factory=dict)
    """Bodies by sequence; the oldest is the first."""
    retry: int = 0
    taken: int = 0
    early: dict[int, tuple[Header, bytes]] = field(default_factory=dict)
    early_bytes: int = 0
    unconfirmed: int = 0
    outside: int = 0
    withdrawn: int = 0
    recovering: int = 0
    """Highest sequence sent before the last time-out; all up to it may be lost."""
    again: set[int] = field(default_factory=set)
    """Sequences of unacknowledged messages that were sent more than once."""
    burst: int = 1
    """Messages to resend to a peer that does not name what came early."""
    names: bool | None = None
    """Whether the peer names early messages, and reads such names; None before it has shown it."""
    held: set[int] = field(default_factory=set)
    """Sequences that came early, as the peer says."""
    probe: int = 0
    """Sequence of the probe behind overdue messages; 0 while none is unanswered."""
    overdue: set[int] = field(default_factory=set)
    """Sequences that the broker took before that probe, into the same queue."""
    doubts: int = 0
    """Time-outs of confirmed messages, until all that was sent before the last is acknowledged."""
    progress: float = 0.0
    """When the peer has last acknowledged something."""
    leaving: set[int] = field(default_factory=set)
    """Sequences that the link has taken and not yet published."""
    confirmed: dict[int, tuple[float, int]] = field(default_factory=dict)
    """Time of the broker's confirm and size in bytes, by unacknowledged sequence."""
    given_up: list[int] = field(default_factory=list)
    """Sequences of unacknowledged messages whose bodies this attempt no longer sends."""
    round_trip: RoundTrip = field(default_factory=RoundTrip)

    def take(self, envelope: Envelope) -> list[Body]:
        """Take ``envelope`` and the early ones behind it if it is next; otherwise keep it."""
        header = envelope.header
        if header.sequence > self.taken + 1:
            body = pack(envelope).body
            if self.early_bytes + len(body) <= _EARLY_BYTES:
                self.early[header.sequence] = header, body
                self.early_bytes += len(body)
            return []
        bodies = [envelope.body]
        self.taken += 1
        while (early := self.early.pop(self.taken + 1, None)) is not None:
            bodies.append(read_body(*early))
            self.early_bytes -= len(early[1])
            self.taken += 1
        return bodies


class Mailbox:
    """One party's mail in one attempt at one session: bodies in, envelopes out, and back.

    ``names_early``: whether this party tells others that it reads acknowledgements which name early
    messages, and so gets them; since 0.1.0 all do.
    """

    def __init__(
        self,
        address: Address,
        peers: Sequence[str],
        policy: RetryPolicy,
        random: np.random.Generator,
        *,
        names_early: bool = True,
    ) -> None:
        self.address = address
        self.policy = policy
        self._random = random
        self._reads = _READS if names_early else ""
        self._peers = {peer: _Peer() for peer in peers}
        self._probing = True
        self.lost: set[str] = set()
        """Peers that have acknowledged nothing after all the resends of the policy."""

    @property
    def idle(self) -> bool:
        """Whether every sent message is acknowledged."""
        return not any(peer.unacknowledged for peer in self._peers.values())

    def is_stranger(self, peer: str) -> bool:
        """Whether this session has neither sent to ``peer`` nor received from it."""
        mail = self._peers[peer]
        return self.address.attempt == 1 and not mail.sent and not mail.taken

    def send(self, recipient: str, body: Body) -> list[Effect]:
        """Send ``body`` to ``recipient``, and resend it until it is acknowledged."""
        peer = self._peers[recipient]
        timed = bool(peer.unacknowledged)
        # The recipient takes nothing beyond a gap, so probes fill the numbers of what was given up.
        peer.unacknowledged.update((sequence, Probe()) for sequence in peer.given_up)
        peer.given_up.clear()
        peer.sent += 1
        peer.unacknowledged[peer.sent] = body
        effects = self._transmit(recipient, peer, peer.sent, body)
        if not timed:
            effects.append(self._resend_timer(recipient, peer))
        if self._probing:
            effects.append(SetTimer(Probing(recipient), self.policy.probe))
        return effects

    def publishing(self, recipient: str, sequence: int) -> None:
        """The link has taken message ``sequence``: do not resend it before it is published."""
        if sequence in self._peers[recipient].unacknowledged:
            self._peers[recipient].leaving.add(sequence)

    def published(self, recipient: str, sequence: int, size: int, at: float | None) -> list[Effect]:
        """Message ``sequence`` has left: confirmed at ``at``, or perhaps lost if ``at`` is None."""
        peer = self._peers[recipient]
        peer.leaving.discard(sequence)
        if at is None or sequence not in peer.unacknowledged:
            return []
        peer.confirmed[sequence] = at, size
        effects = self._resend(recipient, peer) if sequence in peer.again else []
        oldest = next(iter(peer.unacknowledged))
        return [*effects, self._resend_timer(recipient, peer)] if sequence == oldest else effects

    def receive(self, envelope: Envelope, at: float = 0.0) -> tuple[list[Body], list[Effect]]:
        """Take ``envelope``; returns the bodies that are next in order, and the mail's effects.

        ``at``: time of arrival, by the clock of `published`.

        Raises:
            MessageError: the sender takes no part in this session, or is too far ahead.
        """
        header = envelope.header
        peer = self._peers.get(header.sender)
        if peer is None:
            raise MessageError(f"{header.sender} takes no part in session {header.session}")
        if header.sequence > peer.taken + _WINDOW or header.acknowledged > peer.sent:
            raise MessageError(f"message {header.id!r} does not fit the session's order")
        effects: list[Effect] = []
        if peer.unacknowledged and next(iter(peer.unacknowledged)) <= header.acknowledged:
            effects = self._acknowledged(header.sender, peer, header.acknowledged, at)
        if self._probing:
            effects.append(SetTimer(Probing(header.sender), self.policy.probe))
        if header.sequence == 0:
            if isinstance(envelope.body, Acknowledge):
                peer.names = self._reads != "" and header.id.endswith(_READS)
                if envelope.body.early and peer.unacknowledged:
                    effects += self._named(header.sender, peer, envelope.body.early)
                return [], effects
            heard = isinstance(envelope.body, Abort | SessionUnknown)
            return [envelope.body] if heard else [], effects
        repeated = header.sequence <= peer.taken or header.sequence in peer.early
        if header.sequence == peer.taken + 1 and not peer.early:
            bodies = [envelope.body]
            peer.taken += 1
        else:
            bodies = [] if repeated else peer.take(envelope)
        peer.unconfirmed += 1
        at_once = repeated or any(isinstance(body, Probe) for body in bodies)
        if isinstance(envelope.body, Probe) and self._reads and header.id.endswith(_READS):
            peer.names = at_once = True
        if at_once or peer.unconfirmed >= _ACKNOWLEDGE_EVERY:
            effects += self._acknowledge(header.sender, peer)
        elif peer.unconfirmed == 1:
            effects.append(SetTimer(Acknowledgement(header.sender), self.policy.acknowledge))
        return [body for body in bodies if not isinstance(body, Probe)], effects

    def timer(self, key: Resend | Probing | Acknowledgement) -> tuple[Lost | None, list[Effect]]:
        """Handle a timer of this mailbox that ran out."""
        recipient = key.peer
        peer = self._peers[recipient]
        if isinstance(key, Acknowledgement):
            return None, self.acknowledge(recipient)
        if isinstance(key, Probing):
            return None, [] if peer.unacknowledged else self.send(recipient, Probe())
        if not peer.unacknowledged:
            return None, []
        if next(iter(peer.unacknowledged)) in peer.leaving:
            return None, [self._resend_timer(recipient, peer)]
        peer.retry += 1
        if peer.retry > self.policy.resends:
            lost = Lost(recipient, f"{recipient} has not answered {peer.retry} times")
            self.lost.add(recipient)
            return lost, self.stop_resending(recipient)
        peer.recovering = peer.sent
        return None, [
            Waiting(recipient, peer.retry, self.policy.resends),
            *self._overdue(recipient, peer),
            *self._resend(recipient, peer),
            self._resend_timer(recipient, peer),
        ]

    def withdraw(self) -> None:
        """Withdraw all messages sent so far that have not left."""
        for peer in self._peers.values():
            peer.withdrawn = peer.sent

    def leaving(self, envelope: Envelope) -> Envelope:
        """``envelope``, or a probe if it was withdrawn: later messages need its number."""
        header = envelope.header
        if not 0 < header.sequence <= self._peers[header.recipient].withdrawn:
            return envelope
        return Envelope(header.model_copy(update={"kind": Probe.kind}), Probe())

    def acknowledge(self, sender: str) -> list[Effect]:
        """Acknowledge the messages of ``sender``, unless all are acknowledged."""
        peer = self._peers[sender]
        return self._acknowledge(sender, peer) if peer.unconfirmed else []

    def answer(self, sender: str, body: Abort | SessionUnknown) -> list[Effect]:
        """Send ``body`` outside the order and once: ``sender`` repeats its message without it."""
        return self._transmit(sender, self._peers[sender], 0, body)

    def stop_resending(self, recipient: str) -> list[Effect]:
        """Stop waiting for ``recipient``, and resend nothing to it."""
        peer = self._peers[recipient]
        peer.unacknowledged.clear()
        peer.confirmed.clear()
        for sequences in (peer.leaving, peer.again, peer.held, peer.overdue):
            sequences.clear()
        return [CancelTimer(Resend(recipient)), CancelTimer(Probing(recipient))]

    def stop_waiting(self) -> list[Effect]:
        """Stop waiting for all peers: only a new attempt can continue."""
        effects = self.stop_probing()
        for recipient, peer in self._peers.items():
            peer.given_up += peer.unacknowledged
            effects += self.stop_resending(recipient)
        return effects

    def stop_probing(self) -> list[Effect]:
        """Stop probing: the session is over, and only sent messages must still arrive."""
        self._probing = False
        return [CancelTimer(Probing(recipient)) for recipient in self._peers]

    def _acknowledged(self, recipient: str, peer: _Peer, upto: int, at: float) -> list[Effect]:
        done = [sequence for sequence in peer.unacknowledged if sequence <= upto]
        again = peer.again and peer.again.intersection(done)
        # Karn's algorithm: the acknowledgement of a resent message is ambiguous, so not measured.
        if not again and (confirmed := peer.confirmed.get(done[0])):
            size = sum(peer.confirmed[one][1] for one in done if one in peer.confirmed)
            peer.round_trip.measure(at - max(confirmed[0], peer.progress), size)
        if peer.again:  # if nothing behind what was resent has come, that may be lost as well
            beyond = upto > max(peer.again)
            peer.burst = 1 if beyond else min(2 * peer.burst, _RESENT_AT_ONCE)
            peer.again -= again
        for sequence in done:
            del peer.unacknowledged[sequence]
            peer.leaving.discard(sequence)
            peer.held.discard(sequence)
            peer.confirmed.pop(sequence, None)
        if next(iter(peer.unacknowledged), peer.sent) >= peer.probe:
            # Nothing is left before it to ask for: it is mail like any other, and resent if lost.
            peer.probe = 0
            peer.overdue.clear()
        peer.progress = at
        if upto >= peer.recovering:
            peer.doubts = 0
        effects = self._heard(recipient, peer)
        if not peer.unacknowledged:
            return [*effects, CancelTimer(Resend(recipient))]
        if upto < peer.recovering:
            effects += self._resend(recipient, peer)
        return [*effects, self._resend_timer(recipient, peer)]

    def _heard(self, recipient: str, peer: _Peer) -> list[Effect]:
        if not peer.retry:
            return []
        peer.retry = 0
        return [Waiting(recipient, 0, self.policy.resends)]

    def _named(self, recipient: str, peer: _Peer, early: Iterable[tuple[int, int]]) -> list[Effect]:
        """Resend what is lost: the probe behind it has come, as the ranges ``early`` show."""
        ranges = iter(early)
        first, last = next(ranges)
        for sequence in peer.unacknowledged:
            while sequence > last and (following := next(ranges, None)):
                first, last = following
            if first <= sequence <= last:
                peer.held.add(sequence)
        if peer.probe not in peer.held:
            return []
        for sequence in peer.overdue - peer.held:
            peer.confirmed.pop(sequence, None)
        peer.probe = 0
        peer.overdue.clear()
        # A peer that answers probes and never takes the message in question is as good as away.
        return [*self._resend(recipient, peer), self._resend_timer(recipient, peer)]

    def _overdue(self, recipient: str, peer: _Peer) -> list[Effect]:
        """Find out whether messages that the broker has confirmed are lost or under way."""
        oldest = next(iter(peer.unacknowledged))
        if oldest not in peer.confirmed:
            return []
        peer.doubts += 1
        if peer.names is False or not self._reads:
            return self._resend_oldest(recipient, peer, peer.burst)
        effects: list[Effect] = []
        if peer.retry >= _PATIENCE and peer.retry.bit_count() == 1:  # seldom: it may be under way
            effects = self._resend_oldest(recipient, peer, 1)
        if peer.probe not in peer.unacknowledged:
            peer.sent += 1
            peer.probe = peer.sent
            peer.unacknowledged[peer.sent] = Probe()
            in_bulk = self._in_bulk(peer, oldest)
            alike = {one for one in peer.confirmed if self._in_bulk(peer, one) == in_bulk}
            peer.overdue = alike - peer.held
        if peer.probe not in peer.leaving:
            in_bulk = any(self._in_bulk(peer, one) for one in peer.overdue)
            effects += self._transmit(
                recipient, peer, peer.probe, Probe(), again=peer.retry > 1, in_bulk=in_bulk
            )
        return effects

    @staticmethod
    def _in_bulk(peer: _Peer, sequence: int) -> bool:
        body = peer.unacknowledged.get(sequence)
        return body is not None and body.in_bulk and sequence not in peer.again

    def _resend_oldest(self, recipient: str, peer: _Peer, most: int) -> list[Effect]:
        """Resend at most so many of the oldest that the broker has confirmed."""
        effects: list[Effect] = []
        for sequence, body in list(islice(peer.unacknowledged.items(), most)):
            if sequence in peer.confirmed:
                effects += self._transmit(recipient, peer, sequence, body, again=True)
        return effects

    def _resend(self, recipient: str, peer: _Peer) -> list[Effect]:
        """Resend what did not reach the broker, or is known to be lost behind it."""
        room = _RESENT_AT_ONCE - len(peer.again & peer.leaving)
        reached = (peer.leaving, peer.confirmed, peer.held)
        astray = [
            (sequence, body)
            for sequence, body in peer.unacknowledged.items()
            if sequence <= peer.recovering
            and sequence != peer.probe
            and not any(sequence in kept for kept in reached)
        ]
        effects: list[Effect] = []
        for sequence, body in astray[: max(0, room)]:
            effects += self._transmit(recipient, peer, sequence, body, again=True)
        return effects

    def _acknowledge(self, recipient: str, peer: _Peer) -> list[Effect]:
        early: tuple[tuple[int, int], ...] = ()
        if peer.early and peer.names:
            early = ranges_of(sorted(peer.early))[:MOST_RANGES]
        return self._transmit(recipient, peer, 0, Acknowledge(early=early))

    def _resend_timer(self, recipient: str, peer: _Peer) -> SetTimer:
        _, size = peer.confirmed.get(next(iter(peer.unacknowledged)), (0.0, 0))
        due = peer.round_trip.due(size)
        if not peer.round_trip.rate:  # a guess, on which nobody waits for long
            due = min(due, self.policy.ceiling)
        retry = max(peer.retry, peer.doubts)
        return SetTimer(Resend(recipient), resend_wait(self.policy, retry, self._random, due))

    def _transmit(
        self,
        recipient: str,
        peer: _Peer,
        sequence: int,
        body: Body,
        *,
        again: bool = False,
        in_bulk: bool = False,
    ) -> list[Effect]:
        # Every message carries an acknowledgement, so none is due after it.
        effects: list[Effect] = []
        if peer.unconfirmed:
            peer.unconfirmed = 0
            effects.append(CancelTimer(Acknowledgement(recipient)))
        if sequence == 0:
            peer.outside += 1
        if again:
            peer.again.add(sequence)
        to = self.address
        number = f"{sequence}" if sequence else f"a{peer.outside}"
        if sequence in (0, peer.probe) and isinstance(body, Acknowledge | Probe):
            number += self._reads
        header = Header(
            id=f"{to.session}/{to.attempt}/{to.party}/{recipient}/{number}",
            federation=to.federation,
            session=to.session,
            attempt=to.attempt,
            sender=to.party,
            recipient=recipient,
            sequence=sequence,
            acknowledged=peer.taken,
            kind=body.kind,
        )
        # The broker forgets its bulk when it restarts, so what is resent goes with the rest.
        bulk = in_bulk or (body.in_bulk and not again)
        return [*effects, Transmit(Envelope(header, body), again, bulk)]


def ranges_of(sequences: Iterable[int]) -> tuple[tuple[int, int], ...]:
    """The first and last of each run of consecutive numbers in ascending ``sequences``."""
    ranges: list[tuple[int, int]] = []
    for sequence in sequences:
        if ranges and ranges[-1][1] == sequence - 1:
            ranges[-1] = ranges[-1][0], sequence
        else:
            ranges.append((sequence, sequence))
    return tuple(ranges)


# The session: a machine with its mail.

SessionEvent = (
    Start
    | Arrived
    | TimerFired
    | PlanReturned
    | ComputationFailed
    | Cancelled
    | Pause
    | Resume
    | ConsentDecided
)


@dataclass(frozen=True, slots=True)
class Stall:
    """The timer after which a session without progress ends."""


class Session:
    """One party's side of one attempt at one session, from the first message to the last.

    After the machine has finished or failed, the session lives on until all its messages have
    arrived, and then only acknowledges repetitions. A peer that no longer knows this attempt ends
    it, even then: the peer may have lost the last message. Only the ``mailbox`` learns of messages
    on their way to the broker.
    """

    def __init__(self, machine: Machine, mailbox: Mailbox) -> None:
        self.machine = machine
        self.mailbox = mailbox
        self.over = False
        """Whether the machine has finished, failed, or waits for another attempt."""
        self._moved = False
        self._released = False
        self._gave_up: set[str] = set()
        self._told: dict[str, Abort] = {}
        """By peer, in which words it was told that this party gives up."""

    @property
    def closed(self) -> bool:
        """Whether nothing is left to do: the machine is done, and all its messages arrived."""
        return self.over and self.mailbox.idle

    def release(self) -> None:
        """Forget the machine's tables and parts: the session is closed, and nothing drives it."""
        self._released = True
        self.machine = Machine(self.machine.state, self.machine.peers, self.machine.active)

    def handle(self, event: SessionEvent) -> list[Effect]:
        """The effects of ``event``; a message of a peer never raises.

        Raises:
            MessageError: the envelope is of no peer of this session; it changed nothing.
        """
        match event:
            case Arrived(envelope, at):
                bodies, mail = self.mailbox.receive(envelope, at)
                effects: list[Effect] = [
                    effect for effect in mail if not isinstance(effect, Transmit)
                ]
                for body in bodies:
                    received = Received(envelope.header.sender, body)
                    ends = isinstance(body, Abort | SessionUnknown)
                    effects += self._ended(received) if ends else self._drive(received)
                if self.over:  # no later message will carry it
                    mail += self.mailbox.acknowledge(envelope.header.sender)
                    mail += self._tell_unknown(envelope)
                # An acknowledgement promises that a checkpoint which follows is on disk.
                return effects + [effect for effect in mail if isinstance(effect, Transmit)]
            case TimerFired(Stall()):
                return self._stalled()
            case Start():
                return [self._stall_timer(), *self._drive(event)]
            case TimerFired(Resend() | Probing() | Acknowledgement() as key):
                lost, effects = self.mailbox.timer(key)
                if lost is not None and not self.over:
                    effects += self._drive(PeerLost(lost.peer, lost.reason))
                return effects
            case _:
                return self._drive(event)

    @property
    def _awaits_the_others(self) -> bool:
        """Whether this party has finished, and some peers may not have."""
        if self.closed:
            return False
        machine = self.machine
        given_up = machine.state in (machine.failed_state, machine.interrupted_state)
        return machine.ends_everywhere and self.over and not given_up

    def _stall_timer(self) -> Effect:
        return SetTimer(Stall(), self.mailbox.policy.stall)

    def _stalled(self) -> list[Effect]:
        """End a session without progress, even if all peers are there."""
        if self.over:
            return []
        if self._moved or self.machine.rests:
            self._moved = False
            return [self._stall_timer()]
        silent = (
            f"the session made no progress for {self.mailbox.policy.stall:g} s, though all "
            "parties answer"
        )
        return self._drive(Cancelled(silent))

    def _tell_unknown(self, envelope: Envelope) -> list[Effect]:
        """A peer that aborted but still sends gets "session unknown"."""
        header, ends = envelope.header, isinstance(envelope.body, Abort | SessionUnknown)
        if header.sender not in self._gave_up or header.sequence == 0 or ends:
            return []
        return self.mailbox.answer(header.sender, SessionUnknown())

    def _ended(self, event: Received) -> list[Effect]:
        """A peer has ended the session, or knows nothing of it."""
        sender = event.sender
        self._gave_up.add(sender)
        if isinstance(event.body, Abort):
            if self._awaits_the_others:
                # It gave up before it took the end; a new attempt tells the reason.
                return [Interrupted(sender, "gave up"), *self.mailbox.stop_waiting()]
            # It needs no further messages.
            return self._drive(event) + self.mailbox.stop_resending(sender)
        if sender in self._told:
            # Its "session unknown" may be about earlier messages, and the end lost on the way.
            end = self.mailbox.answer(sender, self._told[sender])
            return [*self.mailbox.stop_resending(sender), *end]
        if self._released or self.machine.is_done_with(sender):
            return self.mailbox.stop_resending(sender)
        if not self.over:
            return self._drive(event)
        if self.machine.state is self.machine.failed_state or self.closed:
            return self.mailbox.stop_resending(sender)
        return [Interrupted(sender), *self.mailbox.stop_waiting()]

    def _drive(self, event: Event) -> list[Effect]:
        if self._released:
            return []
        self._moved = True
        try:
            wanted = self.machine.handle(event)
        except FedmqError as error:
            wanted = self._give_up(event, error)
        effects: list[Effect] = []
        for effect in wanted:
            if isinstance(effect, Send):
                if isinstance(effect.body, Abort):
                    if self.mailbox.is_stranger(effect.recipient):
                        continue  # it knows nothing of the session, and would not answer
                    self._told[effect.recipient] = effect.body
                effects += self.mailbox.send(effect.recipient, effect.body)
            else:
                effects.append(effect)
                if isinstance(effect, Finish | Fail):
                    self.over = True
                elif isinstance(effect, Interrupted):
                    self.over = True
                    effects += self.mailbox.stop_waiting()
        if self.over:
            effects += self.mailbox.stop_probing()
        return effects

    def _give_up(self, event: Event, error: FedmqError) -> list[Effect]:
        if isinstance(event, Received) and isinstance(error, ProtocolError | MessageError):
            # Delivery is ordered and exactly-once: this is a protocol violation by the peer.
            disclosed = f"{event.sender} broke the protocol: {error}"
            story = "; ".join([disclosed, *getattr(error, "__notes__", ())])
            return self.machine.handle(Cancelled(story, disclosed))
        if isinstance(error, ProtocolError):
            raise error
        if isinstance(error, OldState):  # everybody may know whose it is
            return self.machine.handle(Cancelled(str(error)))
        ticket = event.ticket if isinstance(event, PlanReturned) else 0
        return self.machine.handle(ComputationFailed(ticket, error))


class Decision(Enum):
    """What to do about a message that no running session takes."""

    DROP = "an older attempt, or an unexpected message"
    JOIN = "it opens a session here, or a new attempt"
    GO_ON = "a party was restarted: the session needs a new attempt"
    END = "another party has ended the session: it ends here, and the sender may forget it"
    REFUSE = "the session has failed here: the sender gets the reason"
    REPLY_UNKNOWN = 'the sender gets "session unknown"'


@dataclass(frozen=True, slots=True)
class StoredState:
    """The session's state in this party's store."""

    attempt: int
    failed: bool


def decide(
    header: Header, body: Body, standing: StoredState | None, *, opens: bool, drives: bool
) -> Decision:
    """Decide about a message that no running session takes.

    ``standing``: None for a session that the store does not know. ``opens``: the body opens
    sessions here, and the active party sends it. ``drives``: this party is the active party.
    """
    attempt = standing.attempt if standing is not None else 0
    if header.attempt < attempt:
        return Decision.DROP
    failed = standing is not None and standing.failed
    if opens and header.attempt > attempt:
        return Decision.REFUSE if failed else Decision.JOIN
    match body:
        case Acknowledge():
            return Decision.DROP
        case Abort():
            if not drives and not failed:
                return Decision.END
            # A numbered message is resent until somebody answers.
            return Decision.REPLY_UNKNOWN if header.sequence else Decision.DROP
        case SessionUnknown():
            if not drives:
                return Decision.DROP
            return Decision.REFUSE if standing is None or failed else Decision.GO_ON
    return Decision.REPLY_UNKNOWN
