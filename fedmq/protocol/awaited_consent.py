"""Whose owners are still asked whether their party takes part?"""

from __future__ import annotations

from fedmq.errors import ProtocolError
from fedmq.messages.body import ConsentAwaited
from fedmq.protocol.events import AwaitConsent
from fedmq.protocol.handlers import on_message
from fedmq.protocol.machine import Machine

__all__ = ["AwaitedConsent", "AwaitsConsent"]


class AwaitedConsent:
    """The peers that have said that they ask, and have not answered since."""

    def __init__(self) -> None:
        self._peers: set[str] = set()
        self._answered: set[str] = set()

    def __bool__(self) -> bool:
        """Whether anybody is still asked."""
        return bool(self._peers)

    def asked(self, peer: str, seconds: int) -> AwaitConsent:
        """The owner of ``peer`` is asked; ProtocolError where that comes twice, or too late."""
        if peer in self._peers | self._answered:
            raise ProtocolError("its owner was asked before")
        self._peers.add(peer)
        return AwaitConsent(peer, seconds)

    def answered(self, peer: str) -> list[AwaitConsent]:
        """``peer`` takes part; what follows if its owner was asked."""
        self._answered.add(peer)
        if peer not in self._peers:
            return []
        self._peers.discard(peer)
        return [AwaitConsent(peer, 0)]


class AwaitsConsent(Machine):
    """A label holder's machine whose peers may have to ask their owners."""

    _awaited_consent: AwaitedConsent

    @property
    def awaits_consent(self) -> bool:
        return bool(self._awaited_consent)

    @on_message(ConsentAwaited)
    def _on_consent_awaited(self, peer: str, body: ConsentAwaited) -> None:
        self._emit(self._awaited_consent.asked(peer, body.seconds))
