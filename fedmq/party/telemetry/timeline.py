"""Who computed and sent what, when, and what it waited for: in Chrome's trace event format.

The file opens in https://ui.perfetto.dev and in chrome://tracing. Every party is a process; its
states, its messages and its workers are threads of it. An arrow leads from the sending of a message
to its arrival, if both are in the file. Times are wall-clock times, so that the timelines of
several parties can be joined.
"""

from __future__ import annotations

import json
import time
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from fedmq.errors import ConfigError
from fedmq.messages.envelope import Header
from fedmq.party.atomic_file import write_atomically

__all__ = ["Span", "Timeline", "check_writable", "write_trace"]

_STATES, _SENT, _RECEIVED, _FIRST_WORKER = 0, 1, 2, 10


@dataclass(frozen=True, slots=True)
class Span:
    """When a computation ran, in seconds, and on which worker (number of its process or thread).

    ``busy``: the seconds of processor time that it took.
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
        """The machine of ``party`` is in ``state`` from now on."""
        name, now = state.name.lower(), time.time()
        before, since = self._entered.get(party, ("", now))
        if before == name:
            return
        if before:
            self._span(party, _STATES, before, since, now, {})
        self._entered[party] = (name, now)

    def computed(self, party: str, what: str, asked: float, span: Span) -> None:
        """``party`` wanted the computation ``what`` at ``asked`` (seconds); it ran in ``span``."""
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
        """(party, what, start, end) of everything that took time, in seconds."""
        names = {number: party for party, number in self._parties.items()}
        for event in self._events:
            if event["ph"] == "X":
                start = event["ts"] / 1e6
                yield names[event["pid"]], event["name"], start, start + event["dur"] / 1e6

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
    """Raise `ConfigError` before the work if its trace could not be written to ``path``."""
    if not path.parent.is_dir():
        raise ConfigError(f"{path}: there is no folder {path.parent}")


def write_trace(document: Mapping[str, Any], path: Path) -> None:
    """Write a `Timeline.document` to ``path``; raises `ConfigError` if that cannot be."""
    try:
        write_atomically(path, json.dumps(document))
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None


def _label(what: str, process: int, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": process, "tid": thread, "args": {"name": name}}
