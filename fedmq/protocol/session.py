"""A machine with its mailbox: envelopes, timers and results in; effects for the daemon out."""

from __future__ import annotations

from fedmq.errors import FedmqError, MessageError, ProtocolError
from fedmq.protocol.events import (
    Arrived,
    Cancelled,
    ComputationFailed,
    Computed,
    Effect,
    Event,
    Fail,
    Finish,
    PeerLost,
    Received,
    Send,
    Start,
    TimerFired,
)
from fedmq.protocol.machine import Machine
from fedmq.protocol.mailbox import Mailbox

__all__ = ["Session", "SessionEvent"]

SessionEvent = Start | Arrived | TimerFired | Computed | ComputationFailed | Cancelled


class Session:
    """One party's side of one attempt at one session, from the first message to the last.

    When the machine has finished or failed, the session lives on until all it said has arrived,
    and afterwards only acknowledges repetitions.
    """

    def __init__(self, machine: Machine, mailbox: Mailbox) -> None:
        self.machine = machine
        self.mailbox = mailbox
        self.over = False
        """Whether the machine has finished or failed."""

    @property
    def closed(self) -> bool:
        """Whether nothing is left to do: the machine is done and all it said has arrived."""
        return self.over and self.mailbox.idle

    def handle(self, event: SessionEvent) -> list[Effect]:
        """What follows from ``event``; never raises on what a peer says.

        Raises:
            MessageError: the envelope belongs to no peer of this session; it changed nothing.
        """
        match event:
            case Arrived(envelope):
                bodies, effects = self.mailbox.receive(envelope)
                for body in bodies:
                    effects += self._drive(Received(envelope.header.sender, body))
                return effects
            case TimerFired(name):
                lost, effects = self.mailbox.timer(name)
                if lost is not None and not self.over:
                    effects += self._drive(PeerLost(lost.peer, lost.reason))
                return effects
            case _:
                return self._drive(event)

    def _drive(self, event: Event) -> list[Effect]:
        try:
            wanted = self.machine.handle(event)
        except FedmqError as error:
            wanted = self._give_up(event, error)
        effects: list[Effect] = []
        for effect in wanted:
            if isinstance(effect, Send):
                effects += self.mailbox.send(effect.recipient, effect.body)
            else:
                effects.append(effect)
                if isinstance(effect, Finish | Fail):
                    self.over = True
        if self.over:
            effects += self.mailbox.quiet()
        return effects

    def _give_up(self, event: Event, error: FedmqError) -> list[Effect]:
        if isinstance(event, Received) and isinstance(error, ProtocolError | MessageError):
            # In order and exactly once, so this is no accident of the link: the peer is wrong.
            return self.machine.handle(Cancelled(f"{event.sender} broke the protocol: {error}"))
        if isinstance(error, ProtocolError):
            raise error
        ticket = event.ticket if isinstance(event, Computed) else 0
        return self.machine.handle(ComputationFailed(ticket, error))
