"""How does a message arrive once and in order?

The transport may lose, repeat, delay and reorder.

Each ordered pair of parties counts its messages; the receiver acknowledges what it has taken
without a gap, the sender resends the oldest unacknowledged ones under the retry policy, and a peer
that has been quiet for long is probed. What is still on its way to the broker is not sent again,
and what the broker has confirmed not before an acknowledgement is due on this link. What arrives
early is kept packed and up to a limit in bytes; beyond it a message counts as lost, and its sender
sends it again. A broker with confirmed publishing rarely needs any of this; a link that breaks in
the wrong moment does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from fedmq.errors import MessageError
from fedmq.messages.body import Abort, Acknowledge, Body, Probe, SessionUnknown
from fedmq.messages.codec import pack, read_body
from fedmq.messages.envelope import Envelope, Header
from fedmq.protocol.events import CancelTimer, Effect, SetTimer, Transmit, Waiting
from fedmq.protocol.retry import RetryPolicy
from fedmq.protocol.round_trip import RoundTrip

__all__ = ["Acknowledgement", "Address", "Lost", "Mailbox", "Probing", "Resend"]

_WINDOW = 4096  # messages that may arrive early; a gap this long means a foreign sender
_EARLY_BYTES = 96 * 2**20  # put aside of one peer: a hundred full messages, as of a broadcast
_RESENT_AT_ONCE = 8
_ACKNOWLEDGE_EVERY = 32


@dataclass(frozen=True, slots=True)
class Address:
    """Whose mailbox this is, and in which attempt at which session."""

    federation: str
    session: str
    attempt: int
    party: str


@dataclass(frozen=True, slots=True)
class Resend:
    """The timer after which ``peer`` gets again what it has not acknowledged."""

    peer: str


@dataclass(frozen=True, slots=True)
class Probing:
    """The timer after which ``peer``, which was quiet for long, is probed."""

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
    retry: int = 0
    taken: int = 0
    early: dict[int, tuple[Header, bytes]] = field(default_factory=dict)
    early_bytes: int = 0
    unconfirmed: int = 0
    outside: int = 0
    withdrawn: int = 0
    recovering: int = 0
    """After a resend: everything sent up to here may have been lost with it."""
    leaving: set[int] = field(default_factory=set)
    """What the link has not got rid of yet."""
    confirmed: dict[int, tuple[float, int]] = field(default_factory=dict)
    """When the broker confirmed what is not acknowledged, and how many bytes it has."""
    round_trip: RoundTrip = field(default_factory=RoundTrip)

    @property
    def oldest(self) -> int:
        """The first that is not acknowledged; there must be one."""
        return next(iter(self.unacknowledged))


class Mailbox:
    """One party's mail in one attempt at one session: bodies in, envelopes out, and back."""

    def __init__(
        self,
        address: Address,
        peers: Sequence[str],
        policy: RetryPolicy,
        random: np.random.Generator,
    ) -> None:
        self.address = address
        self.policy = policy
        self._random = random
        self._peers = {peer: _Peer() for peer in peers}
        self._probing = True
        self.lost: set[str] = set()
        """Who has not acknowledged anything after all the resends of the policy."""

    @property
    def idle(self) -> bool:
        """Whether everything that was sent has been acknowledged."""
        return not any(peer.unacknowledged for peer in self._peers.values())

    def is_stranger(self, peer: str) -> bool:
        """Whether nothing was ever sent to ``peer``, nor received from it, in this session."""
        mail = self._peers[peer]
        return self.address.attempt == 1 and not mail.sent and not mail.taken

    def send(self, recipient: str, body: Body) -> list[Effect]:
        """Send ``body`` to ``recipient``, again and again until it has arrived."""
        peer = self._peers[recipient]
        peer.sent += 1
        peer.unacknowledged[peer.sent] = body
        effects = self._transmit(recipient, peer, peer.sent, body)
        if len(peer.unacknowledged) == 1:
            effects.append(self._resend_timer(recipient, peer))
        return effects + self._probe_timer(recipient)

    def publishing(self, recipient: str, sequence: int) -> None:
        """The link has taken message ``sequence``: it is not sent again before it is published."""
        if sequence in self._peers[recipient].unacknowledged:
            self._peers[recipient].leaving.add(sequence)

    def published(self, recipient: str, sequence: int, size: int, at: float | None) -> list[Effect]:
        """It has left: confirmed by the broker at the time ``at``, or perhaps lost without one."""
        peer = self._peers[recipient]
        peer.leaving.discard(sequence)
        if at is None or sequence not in peer.unacknowledged:
            return []
        peer.confirmed[sequence] = at, size
        return [self._resend_timer(recipient, peer)] if sequence == peer.oldest else []

    def receive(self, envelope: Envelope, at: float = 0.0) -> tuple[list[Body], list[Effect]]:
        """The bodies that are now next in order, and what follows for the mail itself.

        ``at``: when it came, by the clock of `published`.

        Raises:
            MessageError: the sender takes no part in this session, or is far ahead of itself.
        """
        header = envelope.header
        peer = self._peers.get(header.sender)
        if peer is None:
            raise MessageError(f"{header.sender} takes no part in session {header.session}")
        if header.sequence > peer.taken + _WINDOW or header.acknowledged > peer.sent:
            raise MessageError(f"message {header.id!r} does not fit the session's order")
        effects = self._acknowledged(header.sender, peer, header.acknowledged, at)
        effects += self._probe_timer(header.sender)
        if header.sequence == 0:
            heard = isinstance(envelope.body, Abort | SessionUnknown)
            return [envelope.body] if heard else [], effects
        repeated = header.sequence <= peer.taken or header.sequence in peer.early
        bodies = [] if repeated else self._taken(peer, envelope)
        peer.unconfirmed += 1
        at_once = repeated or any(isinstance(body, Probe) for body in bodies)
        if at_once or peer.unconfirmed >= _ACKNOWLEDGE_EVERY:
            effects += self._acknowledge(header.sender, peer)
        elif peer.unconfirmed == 1:
            effects.append(SetTimer(Acknowledgement(header.sender), self.policy.acknowledge))
        return [body for body in bodies if not isinstance(body, Probe)], effects

    def timer(self, key: Resend | Probing | Acknowledgement) -> tuple[Lost | None, list[Effect]]:
        """What follows when one of this mailbox's timers runs out."""
        recipient = key.peer
        peer = self._peers[recipient]
        if isinstance(key, Acknowledgement):
            return None, self.acknowledge(recipient)
        if isinstance(key, Probing):
            return None, [] if peer.unacknowledged else self.send(recipient, Probe())
        if not peer.unacknowledged:
            return None, []
        if peer.oldest in peer.leaving:
            return None, [self._resend_timer(recipient, peer)]
        peer.retry += 1
        if peer.retry > self.policy.resends:
            lost = Lost(recipient, f"{recipient} has not answered {peer.retry} times")
            self.lost.add(recipient)
            return lost, self.silence(recipient)
        peer.recovering = peer.sent
        return None, [
            Waiting(recipient, peer.retry, self.policy.resends),
            *self._resend(recipient, peer),
        ]

    def withdraw(self) -> None:
        """Nothing that was sent so far may leave any more."""
        for peer in self._peers.values():
            peer.withdrawn = peer.sent

    def leaving(self, envelope: Envelope) -> Envelope:
        """``envelope``; a probe in place of one that was withdrawn, as others follow it."""
        header = envelope.header
        if not 0 < header.sequence <= self._peers[header.recipient].withdrawn:
            return envelope
        return Envelope(header.model_copy(update={"kind": Probe.kind}), Probe())

    def acknowledge(self, sender: str) -> list[Effect]:
        """Tell ``sender`` how far it was heard, unless it knows."""
        peer = self._peers[sender]
        return self._acknowledge(sender, peer) if peer.unconfirmed else []

    def disown(self, sender: str) -> list[Effect]:
        """Tell ``sender``, which gave up and goes on, that nobody takes part any more."""
        return self._transmit(sender, self._peers[sender], 0, SessionUnknown())

    def silence(self, recipient: str) -> list[Effect]:
        """Stop waiting for ``recipient``: nothing is resent to it any more."""
        peer = self._peers[recipient]
        for kept in (peer.unacknowledged, peer.leaving, peer.confirmed):
            kept.clear()
        return [CancelTimer(Resend(recipient)), CancelTimer(Probing(recipient))]

    def silence_all(self) -> list[Effect]:
        """Stop waiting for anybody: only a new attempt can go on."""
        return [*self.quiet(), *(effect for peer in self._peers for effect in self.silence(peer))]

    def quiet(self) -> list[Effect]:
        """Stop probing: the session is over, only what was sent must still arrive."""
        self._probing = False
        return [CancelTimer(Probing(recipient)) for recipient in self._peers]

    @staticmethod
    def _taken(peer: _Peer, envelope: Envelope) -> list[Body]:
        """``envelope`` and all early ones behind it, if it is the next; else it is put aside."""
        header = envelope.header
        if header.sequence > peer.taken + 1:
            body = pack(envelope).body
            if peer.early_bytes + len(body) <= _EARLY_BYTES:
                peer.early[header.sequence] = header, body
                peer.early_bytes += len(body)
            return []
        bodies = [envelope.body]
        peer.taken += 1
        while (early := peer.early.pop(peer.taken + 1, None)) is not None:
            bodies.append(read_body(*early))
            peer.early_bytes -= len(early[1])
            peer.taken += 1
        return bodies

    def _probe_timer(self, recipient: str) -> list[Effect]:
        return [SetTimer(Probing(recipient), self.policy.probe)] if self._probing else []

    def _acknowledged(self, recipient: str, peer: _Peer, upto: int, at: float) -> list[Effect]:
        done = [sequence for sequence in peer.unacknowledged if sequence <= upto]
        if not done:
            return []
        # Of what was sent twice nobody knows which one is acknowledged: Karn's algorithm.
        if (confirmed := peer.confirmed.get(done[-1])) and done[-1] > peer.recovering:
            peer.round_trip.measure(at - confirmed[0])
        for sequence in done:
            del peer.unacknowledged[sequence]
            peer.leaving.discard(sequence)
            peer.confirmed.pop(sequence, None)
        effects: list[Effect] = []
        if peer.retry:
            peer.retry = 0
            effects.append(Waiting(recipient, 0, self.policy.resends))
        if not peer.unacknowledged:
            return [*effects, CancelTimer(Resend(recipient))]
        if upto < peer.recovering:
            return [*effects, *self._resend(recipient, peer)]
        return [*effects, self._resend_timer(recipient, peer)]

    def _resend(self, recipient: str, peer: _Peer) -> list[Effect]:
        effects: list[Effect] = []
        for sequence, body in list(peer.unacknowledged.items())[:_RESENT_AT_ONCE]:
            if sequence not in peer.leaving:
                effects += self._transmit(recipient, peer, sequence, body, again=True)
        return [*effects, self._resend_timer(recipient, peer)]

    def _acknowledge(self, recipient: str, peer: _Peer) -> list[Effect]:
        return self._transmit(recipient, peer, 0, Acknowledge())

    def _resend_timer(self, recipient: str, peer: _Peer) -> SetTimer:
        _, size = peer.confirmed.get(peer.oldest, (0.0, 0))
        due = peer.round_trip.due(size)
        return SetTimer(Resend(recipient), self.policy.wait(peer.retry, self._random, due))

    def _transmit(
        self, recipient: str, peer: _Peer, sequence: int, body: Body, *, again: bool = False
    ) -> list[Effect]:
        # Every message carries an acknowledgement, so none is due after it.
        effects: list[Effect] = []
        if peer.unconfirmed:
            peer.unconfirmed = 0
            effects.append(CancelTimer(Acknowledgement(recipient)))
        if sequence == 0:
            peer.outside += 1
        to = self.address
        number = f"{sequence}" if sequence else f"a{peer.outside}"
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
        return [*effects, Transmit(Envelope(header, body), again)]
