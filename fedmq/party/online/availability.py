"""Which parties answer questions about scores, and how are they found again?

A party that is silent counts as away, and is pinged until it answers. While this party's own link
is down, silence says nothing about the others.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from fedmq.messages.body import Body
from fedmq.messages.online import OnlinePing
from fedmq.transport.background_tasks import end

__all__ = ["Asking", "CircuitBreaker", "PeerAvailability"]

log = logging.getLogger(__name__)

_PROBE_SECONDS = 0.25
"""Between pings of a party that is away."""

_LINK_SECONDS = 2.0
"""So long after the link went down callers wait for it: most outages of a broker are shorter."""


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
    """Knows which parties answer ``party``, and pings the others until they do.

    ``send`` takes (recipient, body, seconds for which it is useful). ``heard``: by party, when a
    message of it came last, on any lane.
    """

    def __init__(
        self,
        party: str,
        send: Callable[[str, Body, float], None],
        heard: Mapping[str, float] | None = None,
    ) -> None:
        self.breakers: dict[str, CircuitBreaker] = {}
        """By party that was ever asked."""
        self._party = party
        self._send = send
        self._heard = heard if heard is not None else {}
        self._loop = asyncio.get_running_loop
        self._link_since = -math.inf
        self._cut_since: float | None = None
        self._probing: asyncio.Task[None] | None = None

    def link_changed(self, connected: bool) -> None:
        """Note that this party's own link is up, or down."""
        now = self._loop().time()
        if connected:
            self._cut_since, self._link_since = None, now
        elif self._cut_since is None:
            self._cut_since = now

    def expect(self, parties: Iterable[str]) -> Asking:
        """Register parties that are about to be asked."""
        for party in parties:
            self.breakers.setdefault(party, CircuitBreaker())
        return Asking(self._loop().time(), dict(self._heard))

    @property
    def away(self) -> list[str]:
        """The parties that do not answer."""
        return [party for party, breaker in self.breakers.items() if breaker.is_open]

    @property
    def cut_off(self) -> str:
        """Why nobody can be asked now, in one line; empty while this party's own link is up."""
        if self._cut_since is None:
            return ""
        return f"{self._party} has no connection to its broker; ask again in a moment"

    def unreachable(self, parties: Iterable[str]) -> dict[str, str]:
        """Those of ``parties`` that nobody should wait for, and why."""
        cut = self._cut_since
        if cut is not None and self._loop().time() - cut > _LINK_SECONDS:
            return dict.fromkeys(parties, self.cut_off)
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

        It is no miss if the link was down meanwhile, or if the party was heard on any lane.
        """
        if self._cut_since is not None or self._link_since > asking.at:
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
