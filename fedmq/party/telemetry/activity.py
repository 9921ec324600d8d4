"""Who computed, and whom this party waited for, in the last minutes of a session."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fedmq.messages.envelope import Header

__all__ = ["ACTIVITY_SECONDS", "Activity"]

ACTIVITY_SECONDS = 120.0
"""How far back it is shown."""
_MOST_INTERVALS = 600
_GAP_SECONDS = 0.05
"""Intervals that are closer than this are one."""


@dataclass(frozen=True, slots=True)
class _Question:
    kind: str
    since: float


class Activity:
    """Intervals of one session, as ``party`` sees them; ``clock`` gives Unix seconds.

    Another party is waited for from the first message to it until something comes back. It may
    compute then, or its message may be on the way: nobody here can tell.
    """

    def __init__(self, party: str, clock: Callable[[], float] = time.time) -> None:
        self._party = party
        self._clock = clock
        self._intervals: dict[str, deque[tuple[float, float]]] = {}
        self._open: dict[str, _Question] = {}

    def computed(self, start: float, end: float) -> None:
        """This party computed from ``start`` to ``end``, in Unix seconds."""
        self._add(self._party, start, end)

    def sent(self, header: Header) -> None:
        """A message leaves."""
        if header.sequence:  # acknowledgements ask nothing, and answer nothing
            self._open.setdefault(header.recipient, _Question(header.kind, self._clock()))

    def received(self, header: Header) -> None:
        """A message has arrived."""
        question = self._open.pop(header.sender, None) if header.sequence else None
        if question is not None:
            self._add(header.sender, question.since, self._clock())

    def end(self) -> None:
        """Nobody is waited for any more."""
        for party, question in self._open.items():
            self._add(party, question.since, self._clock())
        self._open.clear()

    def described(self) -> dict[str, Any]:
        """Plain data: by party the intervals as seconds before now, and who owes what since when.

        ``busy`` has lists of (start, end), the oldest first; start is the larger number.
        """
        now = self._clock()
        parties = [self._party, *sorted((self._intervals.keys() | self._open) - {self._party})]
        return {
            "seconds": ACTIVITY_SECONDS,
            "busy": {party: self._recent(party, now) for party in parties},
            "owed": {
                party: {"kind": question.kind, "seconds": round(now - question.since, 1)}
                for party, question in sorted(self._open.items())
            },
        }

    def _recent(self, party: str, now: float) -> list[tuple[float, float]]:
        found = list(self._intervals.get(party, ()))
        if party in self._open:
            found.append((self._open[party].since, now))
        return [
            (round(min(now - start, ACTIVITY_SECONDS), 2), round(max(now - end, 0.0), 2))
            for start, end in found
            if now - end < ACTIVITY_SECONDS
        ]

    def _add(self, party: str, start: float, end: float) -> None:
        known = self._intervals.setdefault(party, deque(maxlen=_MOST_INTERVALS))
        if known and start <= known[-1][1] + _GAP_SECONDS:
            first, last = known.pop()
            start, end = min(first, start), max(last, end)
        known.append((start, end))
