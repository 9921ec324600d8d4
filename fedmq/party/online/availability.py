"""Which parties answer questions about scores, and how are they found again?

A party that is silent counts as away, and is pinged until it answers. While this party's own link
does not work, silence says nothing about the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from fedmq.messages.body import Body
from fedmq.messages.online import OnlinePing
from fedmq.party.online.own_link import OwnLink
from fedmq.transport.background_tasks import end

__all__ = ["Asking", "CircuitBreaker", "PeerAvailability"]

log = logging.getLogger(__name__)

_PROBE_SECONDS = 0.25
"""Between pings of a party that is away."""

_OUTAGE_SECONDS = 2.0
"""For so long callers wait for the own link: most outages of a broker are shorter."""


class CircuitBreaker:
    """Opens after ``misses`` consecutive batches without an answer; any answer closes it."""

    def __init__(self, misses: int = 2) -> None:
        self._misses_to_open = misses
        self.misses_in_a_row = 0
        """Consecutive batches without an answer."""
        self.times_opened = 0

    @property
    def is_open(self) -> bool:
        """Whether the party counts as away."""
        return self.misses_in_a_row >= self._misses_to_open

    def record_miss(self) -> None:
        """Count a batch without an answer."""
        self.misses_in_a_row += 1
        self.times_opened += self.misses_in_a_row == self._misses_to_open

    def record_answer(self) -> None:
        """Reset the count: the party sent a message."""
        self.misses_in_a_row = 0


@dataclass(frozen=True, slots=True)
class Asking:
    """When a batch began to ask, and by party, when it was last heard on any lane before."""

    at: float
    heard: Mapping[str, float]


class PeerAvailability:
    """Knows which parties answer over ``own_link``, and pings the others until they do.

    ``send`` takes (recipient, body, seconds for which it is useful). ``heard``: by party, when a
    message of it came last, on any lane.
    """

    def __init__(
        self,
        own_link: OwnLink,
        send: Callable[[str, Body, float], None],
        heard: Mapping[str, float] | None = None,
    ) -> None:
        self.breakers: dict[str, CircuitBreaker] = {}
        """By party that was ever asked."""
        self._own_link = own_link
        self._send = send
        self._heard = heard if heard is not None else {}
        self._loop = asyncio.get_running_loop
        self._probing: asyncio.Task[None] | None = None

    def expect(self, parties: Iterable[str]) -> Asking:
        """Register parties that are about to be asked."""
        for party in parties:
            self.breakers.setdefault(party, CircuitBreaker())
        return Asking(self._loop().time(), dict(self._heard))

    @property
    def away(self) -> list[str]:
        """The parties that do not answer."""
        return [party for party, breaker in self.breakers.items() if breaker.is_open]

    def still_waits(self, asking: Asking) -> None:
        """Note that a batch waits for long: if no party was heard, the own link may not work."""
        if self._heard == asking.heard:
            self._own_link.check(asking.at)

    def unreachable(self, parties: Iterable[str]) -> dict[str, str]:
        """Those of ``parties`` that nobody should wait for, and why."""
        if self._own_link.outage > _OUTAGE_SECONDS:
            return dict.fromkeys(parties, self._own_link.trouble)
        away = self.away
        return {party: f"{party} is away" for party in parties if party in away}

    def record_answer(self, party: str) -> None:
        """Note a message of the party; a party that counted as away is back."""
        breaker = self.breakers.get(party)
        if breaker is not None and breaker.misses_in_a_row:
            if breaker.is_open:
                log.info("%s answers again", party)
            breaker.record_answer()

    def record_miss(self, party: str, asking: Asking) -> None:
        """Note that a batch got no answer from the party, which was expected to answer.

        It is no miss if the own link did not work meanwhile, or the party was heard on any lane.
        """
        if not self._own_link.has_worked(asking.at):
            return
        if self._heard.get(party) != asking.heard.get(party):
            return
        breaker = self.breakers[party]
        if not breaker.is_open:
            breaker.record_miss()
            if breaker.is_open:
                log.warning("%s does not answer; it counts as away until it does", party)
        if breaker.is_open and (self._probing is None or self._probing.done()):
            self._probing = asyncio.create_task(self._probe())

    async def close(self) -> None:
        """Stop sending pings."""
        if self._probing is not None:
            await end([self._probing])

    async def _probe(self) -> None:
        while away := self.away:
            for party in away:
                self._send(party, OnlinePing(), _PROBE_SECONDS)
            await asyncio.sleep(_PROBE_SECONDS)
