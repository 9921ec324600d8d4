"""What people want to know of a running session."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from fedmq.party.sessions.runner import SessionRunner
from fedmq.party.telemetry.traffic import Traffic
from fedmq.protocol.events import Report, Waiting

if TYPE_CHECKING:
    pass

__all__ = ["Purpose", "RunningSession"]


Purpose = Literal["alignment", "training", "inference", "activation"]


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
    """For whom it waits, and what the link has to say about it."""

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
            "done": self.report.done if self.report else 0,
            "total": self.report.total if self.report else None,
            "unit": self.report.unit if self.report else None,
            "details": dict(self.report.details) if self.report else {},
            "waiting": waits,
            "bytes_sent": self.traffic.total.bytes,
        }

    @property
    def waits(self) -> list[str]:
        """For whom it waits, a line each; for nobody once it is closed."""
        waiting = [] if self.runner.closed.done() else self.waiting.values()
        return [self.wait(*each) for each in waiting]

    def wait(self, waiting: Waiting, trouble: str) -> str:
        """For whom this session waits since when, in a line."""
        seen = self.runner.last_seen.get(waiting.peer)
        last = f"last seen {seen:%H:%M:%S}" if seen else "not seen yet"
        line = f"waiting for {waiting.peer} ({last}, retry {waiting.retry} of {waiting.retries})"
        return f"{line}: {trouble}" if trouble else line
