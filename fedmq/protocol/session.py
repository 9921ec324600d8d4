"""What is one attempt at a session? A machine with its mailbox.

Envelopes, timers and results come in; effects for the daemon go out.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedmq.errors import FedmqError, MessageError, ProtocolError
from fedmq.messages.body import Abort, SessionUnknown
from fedmq.messages.envelope import Envelope
from fedmq.protocol.events import (
    Arrived,
    Cancelled,
    ComputationFailed,
    Effect,
    Event,
    Fail,
    Finish,
    Interrupted,
    OwnerDecided,
    Pause,
    PeerLost,
    PlanReturned,
    Published,
    Publishing,
    Received,
    Resume,
    Send,
    SetTimer,
    Start,
    TimerFired,
    Transmit,
)
from fedmq.protocol.machine import Machine
from fedmq.protocol.mailbox import Acknowledgement, Mailbox, Probing, Resend

__all__ = ["Session", "SessionEvent", "Stall"]

SessionEvent = (
    Start
    | Arrived
    | TimerFired
    | PlanReturned
    | ComputationFailed
    | Cancelled
    | Publishing
    | Published
    | Pause
    | Resume
    | OwnerDecided
)


@dataclass(frozen=True, slots=True)
class Stall:
    """The timer after which a session in which nothing happens is given up."""


class Session:
    """One party's side of one attempt at one session, from the first message to the last.

    When the machine has finished or failed, the session lives on until all that it sent has
    arrived, and afterwards only acknowledges repetitions. A peer that knows nothing of this attempt
    any more ends it, even then: the peer may not have kept the last message.
    """

    def __init__(self, machine: Machine, mailbox: Mailbox) -> None:
        self.machine = machine
        self.mailbox = mailbox
        self.over = False
        """Whether the machine has finished, failed, or waits for another attempt."""
        self._moved = False
        self._gave_up: set[str] = set()

    @property
    def closed(self) -> bool:
        """Whether nothing is left to do: the machine is done and all that it sent has arrived."""
        return self.over and self.mailbox.idle

    def handle(self, event: SessionEvent) -> list[Effect]:
        """What follows from ``event``; never raises on what a peer sends.

        Raises:
            MessageError: the envelope belongs to no peer of this session; it changed nothing.
        """
        match event:
            case Arrived(envelope, at):
                bodies, mail = self.mailbox.receive(envelope, at)
                effects: list[Effect] = [
                    effect for effect in mail if not isinstance(effect, Transmit)
                ]
                for body in bodies:
                    effects += self._heard(Received(envelope.header.sender, body))
                if self.over:  # no later message will carry it
                    mail += self.mailbox.acknowledge(envelope.header.sender)
                    mail += self._disowned(envelope)
                # An acknowledgement promises that a checkpoint which follows is on disk.
                return effects + [effect for effect in mail if isinstance(effect, Transmit)]
            case Publishing(peer, sequence):
                self.mailbox.publishing(peer, sequence)
                return []
            case Published(peer, sequence, size, at):
                return self.mailbox.published(peer, sequence, size, at)
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
        """Whether this party has finished, and some of the others may not have."""
        machine = self.machine
        given_up = machine.state in (machine.failed_state, machine.interrupted_state)
        return machine.ends_everywhere and self.over and not given_up and not self.closed

    def _stall_timer(self) -> Effect:
        return SetTimer(Stall(), self.mailbox.policy.stall)

    def _stalled(self) -> list[Effect]:
        """End a session in which nothing happens, even if all peers are there."""
        if self.over:
            return []
        if self._moved or self.machine.rests:
            self._moved = False
            return [self._stall_timer()]
        silent = (
            f"nothing has come of it for {self.mailbox.policy.stall:g} s, all parties are there"
        )
        return self._drive(Cancelled(silent))

    def _disowned(self, envelope: Envelope) -> list[Effect]:
        """Whoever gave up and goes on is told that it is alone, or it would ask for ever."""
        header, ends = envelope.header, isinstance(envelope.body, Abort | SessionUnknown)
        if header.sender not in self._gave_up or header.sequence == 0 or ends:
            return []
        return self.mailbox.disown(header.sender)

    def _heard(self, event: Received) -> list[Effect]:
        if isinstance(event.body, Abort | SessionUnknown):
            self._gave_up.add(event.sender)
        if isinstance(event.body, Abort):
            if self._awaits_the_others:
                # It gave up before it took the end: the reason follows in a new attempt.
                return [Interrupted(event.sender, "gave up"), *self.mailbox.silence_all()]
            # It needs none of the messages that are under way to it.
            return self._drive(event) + self.mailbox.silence(event.sender)
        if isinstance(event.body, SessionUnknown) and self.machine.is_done_with(event.sender):
            return self.mailbox.silence(event.sender)
        if not isinstance(event.body, SessionUnknown) or not self.over:
            return self._drive(event)
        if self.machine.state is self.machine.failed_state or self.closed:
            return self.mailbox.silence(event.sender)
        return [Interrupted(event.sender), *self.mailbox.silence_all()]

    def _drive(self, event: Event) -> list[Effect]:
        self._moved = True
        try:
            wanted = self.machine.handle(event)
        except FedmqError as error:
            wanted = self._give_up(event, error)
        effects: list[Effect] = []
        for effect in wanted:
            if isinstance(effect, Send):
                if isinstance(effect.body, Abort) and self.mailbox.is_stranger(effect.recipient):
                    continue  # it was never asked, need not know, and would not answer
                effects += self.mailbox.send(effect.recipient, effect.body)
            else:
                effects.append(effect)
                if isinstance(effect, Finish | Fail):
                    self.over = True
                elif isinstance(effect, Interrupted):
                    self.over = True
                    effects += self.mailbox.silence_all()
        if self.over:
            effects += self.mailbox.quiet()
        return effects

    def _give_up(self, event: Event, error: FedmqError) -> list[Effect]:
        if isinstance(event, Received) and isinstance(error, ProtocolError | MessageError):
            # In order and exactly once, so this is no accident of the link: the peer is wrong.
            disclosed = f"{event.sender} broke the protocol: {error}"
            story = "; ".join([disclosed, *getattr(error, "__notes__", ())])
            return self.machine.handle(Cancelled(story, disclosed))
        if isinstance(error, ProtocolError):
            raise error
        ticket = event.ticket if isinstance(event, PlanReturned) else 0
        return self.machine.handle(ComputationFailed(ticket, error))
