"""What people want to know of a running session."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from fedmq.party.sessions.progress import Progress
from fedmq.party.sessions.runner import SessionRunner
from fedmq.party.telemetry.activity import Activity
from fedmq.party.telemetry.traffic import Traffic
from fedmq.protocol.events import Report, Waiting

__all__ = ["EndedSession", "OnProgress", "Purpose", "RunningSession"]

OnProgress = Callable[[Mapping[str, Any]], Awaitable[None]]
"""Takes one event of the kind that the command line shows, such as a finished tree."""
Purpose = Literal["alignment", "training", "inference", "activation", "model request"]


@dataclass(frozen=True, slots=True)
class EndedSession:
    """What is remembered of a session when its tables and trees are gone."""

    id: str
    purpose: Purpose
    model: str
    ended: datetime
    reason: str
    """Why it ended without a result; empty where it has finished."""


@dataclass
class RunningSession:
    """A session and what people want to know about it."""

    id: str
    purpose: Purpose
    model: str
    runner: SessionRunner
    traffic: Traffic
    started: datetime = field(default_factory=lambda: datetime.now().astimezone())
    report: Report | None = None
    waiting: dict[str, tuple[Waiting, str]] = field(default_factory=dict)
    """By peer that it waits for, with the link's trouble."""
    consents: dict[str, datetime] = field(default_factory=dict)
    """By peer whose owner is asked: until when there is an answer."""
    received: Traffic = field(default_factory=Traffic)
    progress: Progress = field(default_factory=Progress)
    activity: Activity | None = None
    ended: datetime | None = None
    """When it ended, however it did."""

    def status(self) -> dict[str, Any]:
        """What ``fedmq status`` shows, as plain data."""
        state = self.runner.session.machine.state
        waits = self.waits
        return {
            "session": self.id,
            "purpose": self.purpose,
            "model": self.model,
            "attempt": self.runner.session.mailbox.address.attempt,
            "state": "waiting" if waits else state.name.lower(),
            "meaning": state.value,
            "started": self.started.isoformat(timespec="seconds"),
            "ended": None if self.ended is None else self.ended.isoformat(timespec="seconds"),
            "reason": self.reason,
            "done": self.report.done if self.report else 0,
            "total": self.report.total if self.report else None,
            "unit": self.report.unit if self.report else None,
            "details": dict(self.report.details) if self.report else {},
            "waiting": waits,
            "bytes_sent": self.traffic.total.bytes,
        }

    def details(self) -> dict[str, Any]:
        """What is known of it besides its status, as plain data."""
        machine = self.runner.session.machine
        until = self.ended or datetime.now().astimezone()
        return {
            **self.status(),
            "paused": machine.state.name == "PAUSED",
            "seconds": round((until - self.started).total_seconds(), 1),
            "seconds_left": self.progress.seconds_left,
            "curve": self.progress.curve,
            "traffic": [self._exchanged(peer) for peer in sorted(machine.peers)],
            "activity": None if self.activity is None else self.activity.described(),
        }

    def _exchanged(self, peer: str) -> dict[str, Any]:
        own = self.runner.session.mailbox.address.party
        sent = self.traffic.between(own, peer)
        received = self.received.between(peer, own)
        return {
            "party": peer,
            "messages_sent": sent.messages,
            "bytes_sent": sent.bytes,
            "messages_received": received.messages,
            "bytes_received": received.bytes,
        }

    @property
    def reason(self) -> str:
        """Why it ended without a result; empty while it runs, and where it has finished."""
        outcome = self.runner.outcome
        if not outcome.done() or outcome.cancelled() or outcome.exception() is None:
            return ""
        return str(outcome.exception())

    def end(self) -> EndedSession:
        """It has ended, however it did: what is to be remembered."""
        self.ended = datetime.now().astimezone()
        return EndedSession(self.id, self.purpose, self.model, self.ended, self.reason)

    @property
    def waits(self) -> list[str]:
        """One line per peer that it waits for; none once it is closed."""
        waits = [] if self.runner.closed.done() else self.waiting.values()
        consents = {} if self.runner.session.over else self.consents
        return [
            *(
                f"waits for {peer}'s consent (until {until:%Y-%m-%d %H:%M})"
                for peer, until in consents.items()
            ),
            *(self.wait(waiting, trouble) for waiting, trouble in waits),
        ]

    def wait(self, waiting: Waiting, trouble: str) -> str:
        """How long the peer in ``waiting`` has been silent, in a line."""
        seen = self.runner.last_seen.get(waiting.peer)
        last = f"last seen {seen:%H:%M:%S}" if seen else "not seen yet"
        line = f"waiting for {waiting.peer} ({last}, retry {waiting.retry} of {waiting.retries})"
        return f"{line}: {trouble}" if trouble else line
