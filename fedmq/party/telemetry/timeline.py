"""When did each party compute, send and wait? In Chrome's trace event format.

The file opens in https://ui.perfetto.dev and in chrome://tracing. Every party is a process; its
states, its messages and its workers are threads of it. An arrow leads from the sending of a message
to its arrival, if both are in the file. Times are wall-clock times, so that `JoinedTrace` can
combine the files of several parties. `Activity` keeps the last minutes only.
"""

from __future__ import annotations

import json
import time
import zlib
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Any

from fedmq.errors import ConfigError, DataError
from fedmq.messages.envelope import Header
from fedmq.party.atomic_file import write_whole

__all__ = [
    "ACTIVITY_SECONDS",
    "Activity",
    "JoinedTrace",
    "Span",
    "Timeline",
    "check_writable",
    "read_trace",
    "write_trace",
]

_STATES, _SENT, _RECEIVED, _FIRST_WORKER = 0, 1, 2, 10


@dataclass(frozen=True, slots=True)
class Span:
    """The time of a computation, in seconds, and its worker (number of its process or thread).

    ``busy``: its processor time in seconds.
    """

    worker: int
    start: float
    end: float
    busy: float


class Timeline:
    """Collects the timeline of one session, or of all parties' sides of it.

    The timeline of a training takes some hundred bytes per computation and message.
    """

    def __init__(self) -> None:
        self.busy: dict[tuple[str, str], float] = defaultdict(float)
        """Seconds of processor time by party and computation."""
        self.begun = time.time()
        self._events: list[dict[str, Any]] = []
        self._parties: dict[str, int] = {}
        self._workers: dict[tuple[str, int], int] = {}
        self._entered: dict[str, tuple[str, float]] = {}

    def entered(self, party: str, state: Enum) -> None:
        """Put the machine of ``party`` in ``state`` from now on."""
        name, now = state.name.lower(), time.time()
        before, since = self._entered.get(party, ("", now))
        if before == name:
            return
        if before:
            self._span(party, _STATES, before, since, now, {})
        self._entered[party] = (name, now)

    def computed(self, party: str, what: str, asked: float, span: Span) -> None:
        """``party`` requested computation ``what`` at ``asked`` (seconds); it ran in ``span``."""
        worker = self._workers.setdefault(
            (party, span.worker),
            _FIRST_WORKER + sum(owner == party for owner, _ in self._workers),
        )
        self.busy[party, what] += span.busy
        args = {
            "waited ms": round(1e3 * (span.start - asked), 3),
            "busy ms": round(1e3 * span.busy, 3),
        }
        self._span(party, worker, what, span.start, span.end, args)

    def sent(self, header: Header, size: int, start: float) -> None:
        """A message of ``size`` bytes left between ``start`` and now, and the broker has it."""
        now = time.time()
        args = {"to": header.recipient, "bytes": size, "sequence": header.sequence}
        self._span(header.sender, _SENT, header.kind, start, now, args)
        self._add(header.sender, _SENT, "s", start, name="message", cat="message", id=header.id)

    def received(self, header: Header) -> None:
        """A message arrived just now."""
        now = time.time()
        args = {"from": header.sender, "sequence": header.sequence}
        self._span(header.recipient, _RECEIVED, header.kind, now, now + 1e-5, args)
        self._add(
            header.recipient,
            _RECEIVED,
            "f",
            now,
            name="message",
            cat="message",
            id=header.id,
            bp="e",
        )

    def spans(self) -> Iterable[tuple[str, str, float, float]]:
        """(party, what, start, end) of each duration, in seconds."""
        names = {number: party for party, number in self._parties.items()}
        for event in self._events:
            if event["ph"] == "X":
                start = event["ts"] / 1e6
                yield names[event["pid"]], event["name"], start, start + event["dur"] / 1e6

    def turns(self, party: str, other: str) -> int:
        """How often the talk of two parties turned round: messages of one after the other's."""
        pair = {self._parties.get(party), self._parties.get(other)}
        said = [
            event["pid"]
            for event in self._events
            if event["tid"] == _SENT
            and event["ph"] == "X"
            and event["pid"] in pair
            and event["args"]["to"] in (party, other)
            and event["args"]["sequence"]
        ]
        return sum(before != after for before, after in pairwise(said))

    def document(self) -> dict[str, Any]:
        """The timeline in Chrome's JSON object format."""
        for party in list(self._entered):
            state, since = self._entered.pop(party)
            self._span(party, _STATES, state, since, time.time(), {})
        labels: list[dict[str, Any]] = []
        for party, number in self._parties.items():
            labels.append(_label("process_name", number, 0, party))
            for thread, name in ((_STATES, "state"), (_SENT, "sent"), (_RECEIVED, "received")):
                labels.append(_label("thread_name", number, thread, name))
        for (party, _), thread in self._workers.items():
            name = f"worker {thread - _FIRST_WORKER + 1}"
            labels.append(_label("thread_name", self._parties[party], thread, name))
        return {"displayTimeUnit": "ms", "traceEvents": labels + self._events}

    def _span(
        self, party: str, thread: int, name: str, start: float, end: float, args: dict[str, Any]
    ) -> None:
        self._add(party, thread, "X", start, name=name, dur=round(1e6 * (end - start)), args=args)

    def _add(self, party: str, thread: int, phase: str, at: float, **fields: Any) -> None:
        # A party has the same number in every file, so that files of several parties can be joined.
        number = self._parties.setdefault(party, 1 + zlib.crc32(party.encode()) % 2**20)
        when = round(1e6 * at)
        self._events.append({"ph": phase, "pid": number, "tid": thread, "ts": when, **fields})


def check_writable(path: Path) -> None:
    """Raise `ConfigError` before the work if its trace cannot be written to ``path``."""
    if not path.parent.is_dir():
        raise ConfigError(f"{path}: there is no folder {path.parent}")


def write_trace(document: Mapping[str, Any], path: Path) -> None:
    """Write a `Timeline.document` to ``path``; `ConfigError` if that fails."""
    write_whole(path, json.dumps(document))


def _label(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}


ACTIVITY_SECONDS = 120.0
"""How far back the activity is shown."""
_MOST_INTERVALS = 600
_GAP_SECONDS = 0.05
"""Intervals closer than this merge."""


@dataclass(frozen=True, slots=True)
class _Question:
    kind: str
    since: float


class Activity:
    """Intervals of one session, as ``party`` sees them; ``clock`` gives Unix seconds.

    A wait for another party lasts from the first message to it until its next message. That party
    may be computing, or its message may be on the way: this party cannot tell.
    """

    def __init__(self, party: str, clock: Callable[[], float] = time.time) -> None:
        self._party = party
        self._clock = clock
        self._intervals: dict[str, deque[tuple[float, float]]] = {}
        self._open: dict[str, _Question] = {}

    def computed(self, start: float, end: float) -> None:
        """Record that this party computed from ``start`` to ``end``, in Unix seconds."""
        self._add(self._party, start, end)

    def sent(self, header: Header) -> None:
        """A message leaves."""
        if header.sequence:  # acknowledgements are neither questions nor answers
            self._open.setdefault(header.recipient, _Question(header.kind, self._clock()))

    def received(self, header: Header) -> None:
        """A message has arrived."""
        question = self._open.pop(header.sender, None) if header.sequence else None
        if question is not None:
            self._add(header.sender, question.since, self._clock())

    def end(self) -> None:
        """End all waits."""
        for party, question in self._open.items():
            self._add(party, question.since, self._clock())
        self._open.clear()

    def described(self) -> dict[str, Any]:
        """Plain data: intervals by party, in seconds before now; kind and age of owed answers.

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


def read_trace(path: Path) -> dict[str, Any]:
    """Read the document in ``path``; DataError if it is no party's timeline."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        assert all(
            isinstance(event["ph"], str) and isinstance(event["pid"], int)
            for event in document["traceEvents"]
        )
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AssertionError):
        raise DataError(f"{path}: not a timeline of fedmq") from None
    return dict(document)


@dataclass(frozen=True)
class JoinedTrace:
    """A ``document`` in the format of its parts; ``parties`` are in the order of the parts.

    ``arrows``: the number of messages with both ends in it. ``early``: if clocks disagree, a
    message may arrive before it was sent; the largest such gap in seconds, else 0.
    """

    document: Mapping[str, Any]
    parties: tuple[str, ...]
    arrows: int
    early: float

    @classmethod
    def of(cls, parts: Sequence[tuple[str, Mapping[str, Any]]]) -> JoinedTrace:
        """Join documents, with their names for errors; DataError if two hold the same party."""
        owner: dict[str, str] = {}
        left: dict[str, float] = {}
        arrived: dict[str, float] = {}
        events = []
        for name, document in parts:
            for event in document["traceEvents"]:
                if event.get("name") == "process_name":
                    party = str(event["args"]["name"])
                    if party in owner:
                        raise DataError(f"{name}: {party} is in {owner[party]} already")
                    owner[party] = name
                elif event["ph"] == "s":
                    left.setdefault(str(event["id"]), event["ts"] / 1e6)
                elif event["ph"] == "f":
                    arrived.setdefault(str(event["id"]), event["ts"] / 1e6)
                events.append(event)
        gaps = [arrived[message] - left[message] for message in arrived.keys() & left.keys()]
        return cls(
            {"displayTimeUnit": "ms", "traceEvents": events},
            tuple(owner),
            len(gaps),
            max(0.0, -min(gaps, default=0.0)),
        )
