"""Which of the parties that are asked count as away, and whether they are back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from fedmq.messages.body import Body
from fedmq.messages.online import OnlinePing
from fedmq.transport.background_tasks import end

__all__ = ["CircuitBreaker", "Peers"]

log = logging.getLogger(__name__)

_PROBE_EVERY = 0.5


class Peers:
    """A breaker for each. ``say`` takes (recipient, body, seconds for which it is of use)."""

    def __init__(self, say: Callable[[str, Body, float], None]) -> None:
        self.breakers: dict[str, CircuitBreaker] = {}
        self._say = say
        self._probing: asyncio.Task[None] | None = None

    def expect(self, parties: Iterable[str]) -> None:
        """These are going to be asked."""
        for party in parties:
            self.breakers.setdefault(party, CircuitBreaker())

    @property
    def away(self) -> list[str]:
        """Those that do not answer."""
        return [
            party for party, circuit_breaker in self.breakers.items() if circuit_breaker.is_open
        ]

    def answered(self, party: str) -> None:
        """It said something."""
        circuit_breaker = self.breakers.get(party)
        if circuit_breaker is not None:
            if circuit_breaker.is_open:
                log.info("%s answers again", party)
            circuit_breaker.answered()

    def missed(self, party: str) -> None:
        """A batch waited for it in vain."""
        circuit_breaker = self.breakers[party]
        if not circuit_breaker.is_open:
            circuit_breaker.missed()
            if circuit_breaker.is_open:
                log.warning("%s does not answer; it counts as away until it does", party)
        if circuit_breaker.is_open and (self._probing is None or self._probing.done()):
            self._probing = asyncio.create_task(self._probe())

    async def close(self) -> None:
        """Look no more whether they are back."""
        if self._probing is not None:
            await end([self._probing])

    async def _probe(self) -> None:
        while away := self.away:
            for party in away:
                self._say(party, OnlinePing(), _PROBE_EVERY)
            await asyncio.sleep(_PROBE_EVERY)


class CircuitBreaker:
    """Open after ``misses`` batches in a row that waited in vain; any answer closes it."""

    def __init__(self, misses: int = 2) -> None:
        self._limit = misses
        self._missed = 0
        self.opened = 0
        """How often it has opened."""

    @property
    def is_open(self) -> bool:
        """Whether the party counts as away."""
        return self._missed >= self._limit

    def missed(self) -> None:
        """A batch waited in vain."""
        self._missed += 1
        self.opened += self._missed == self._limit

    def answered(self) -> None:
        """The party said something."""
        self._missed = 0
