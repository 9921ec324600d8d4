"""Whether a daemon is well: for supervisors, load balancers and its owner."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from fedmq.party.online.scoring import Scorer
from fedmq.party.sessions.sessions import Sessions
from fedmq.party.telemetry.metrics import Gauges
from fedmq.transport.link import Link

__all__ = ["Health", "Probe"]


@dataclass(frozen=True, slots=True)
class Health:
    """``reasons``: lines that say why the daemon cannot serve now; without any it is ready.

    ``away``: parties that have not answered questions for scores for a while. The setting
    ``degrade`` decides what scores are made meanwhile; the daemon is ready all the same.
    """

    reasons: tuple[str, ...] = ()
    away: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    """What the owner should mend, though the daemon serves: tables, certificates, requests."""

    @property
    def ready(self) -> bool:
        """Whether the daemon can serve."""
        return not self.reasons

    def described(self) -> dict[str, Any]:
        """As plain data."""
        return {
            "ready": self.ready,
            "reasons": list(self.reasons),
            "away": list(self.away),
            "warnings": list(self.warnings),
        }


class Probe:
    """Looks at the parts of a daemon that can be in trouble, whenever somebody asks."""

    def __init__(
        self,
        link: Link,
        sessions: Sessions,
        scorer: Scorer,
        warnings: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self._link = link
        self._sessions = sessions
        self._scorer = scorer
        self._warnings = warnings

    def health(self) -> Health:
        """Whether the daemon can serve now."""
        link = self._link.state
        reasons = () if link.connected else (f"the broker is not connected: {link.reason}",)
        return Health(reasons, tuple(self._scorer.away), tuple(self._warnings()))

    def gauges(self) -> Gauges:
        """What a scraper of metrics sees beside the counters."""
        running = self._sessions.running.values()
        live = [session for session in running if not session.runner.session.over]
        return Gauges(
            self._link.state.connected,
            self._link.dead_lettered,
            Counter((session.purpose, session.status()["state"]) for session in live),
            sum(len(session.waiting) for session in live),
        )
