"""Which parties count as away: one circuit breaker for each, and a probe until they are back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from fedmq.messages.body import Body
from fedmq.messages.online import OnlinePing
from fedmq.transport.background_tasks import end

__all__ = ["CircuitBreaker", "PeerAvailability"]

log = logging.getLogger(__name__)

_PROBE_SECONDS = 0.5


class CircuitBreaker:
    """Opens after ``misses`` batches in a row that waited in vain; any answer closes it."""

    def __init__(self, misses: int = 2) -> None:
        self._misses_to_open = misses
        self._misses_in_a_row = 0
        self.times_opened = 0

    @property
    def is_open(self) -> bool:
        """Whether the party counts as away."""
        return self._misses_in_a_row >= self._misses_to_open

    def record_miss(self) -> None:
        """A batch waited in vain."""
        self._misses_in_a_row += 1
        self.times_opened += self._misses_in_a_row == self._misses_to_open

    def record_answer(self) -> None:
        """The party sent something."""
        self._misses_in_a_row = 0


class PeerAvailability:
    """Knows which parties answer, and sends pings to those that do not until they do.

    ``send`` takes (recipient, body, seconds for which it is of use).
    """

    def __init__(self, send: Callable[[str, Body, float], None]) -> None:
        self.breakers: dict[str, CircuitBreaker] = {}
        """By party that was ever asked."""
        self._send = send
        self._probing: asyncio.Task[None] | None = None

    def expect(self, parties: Iterable[str]) -> None:
        """These parties are about to be asked."""
        for party in parties:
            self.breakers.setdefault(party, CircuitBreaker())

    @property
    def away(self) -> list[str]:
        """The parties that do not answer."""
        return [party for party, breaker in self.breakers.items() if breaker.is_open]

    def record_answer(self, party: str) -> None:
        """The party sent something; if it counted as away, it is back."""
        breaker = self.breakers.get(party)
        if breaker is not None:
            if breaker.is_open:
                log.info("%s answers again", party)
            breaker.record_answer()

    def record_miss(self, party: str) -> None:
        """A batch waited in vain for the party, which was expected to answer."""
        breaker = self.breakers[party]
        if not breaker.is_open:
            breaker.record_miss()
            if breaker.is_open:
                log.warning("%s does not answer; it counts as away until it does", party)
        if breaker.is_open and (self._probing is None or self._probing.done()):
            self._probing = asyncio.create_task(self._probe())

    async def close(self) -> None:
        """Send no more pings."""
        if self._probing is not None:
            await end([self._probing])

    async def _probe(self) -> None:
        while away := self.away:
            for party in away:
                self._send(party, OnlinePing(), _PROBE_SECONDS)
            await asyncio.sleep(_PROBE_SECONDS)
