"""Is a daemon well? For supervisors, load balancers and its owner.

The daemon checks a party's own files from the start, before a session needs them.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from fedmq.errors import FedmqError
from fedmq.party.configuration.data import DataSection
from fedmq.party.configuration.party import PartyFile
from fedmq.party.data.sources.opening import source_of
from fedmq.party.data.table import Roles
from fedmq.party.online.scoring import Scorer
from fedmq.party.sessions.sessions import Sessions
from fedmq.party.telemetry.metrics import Gauges
from fedmq.transport.link import Link
from fedmq.transport.rabbitmq.certificates import expiry

__all__ = [
    "FileCheck",
    "Health",
    "Probe",
    "certificate_expiry",
    "certificate_warnings",
    "clock_warnings",
]

log = logging.getLogger(__name__)

_FRESH_SECONDS = 5.0
"""Maximum age of a finding before the next query opens the files again."""

_EXPIRES_SOON = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Health:
    """``reasons``: lines that say why the daemon cannot serve now; without any it is ready.

    ``away``: parties that have not answered scoring requests for a while. The setting ``degrade``
    decides which scores are computed meanwhile; the daemon stays ready.
    """

    reasons: tuple[str, ...] = ()
    away: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    """Problems for the owner that do not stop the daemon: tables, certificates, requests."""

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
    """Checks the parts of a daemon that can fail, on request."""

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
        """The gauges that metrics export beside the counters."""
        running = self._sessions.running.values()
        live = [session for session in running if not session.runner.session.over]
        return Gauges(
            self._link.state.connected,
            self._link.dead_lettered,
            Counter((session.purpose, session.status()["state"]) for session in live),
            sum(len(session.seen.waiting) for session in live),
        )


class FileCheck:
    """Opens the tables that ``config()`` names, reading no rows, and looks at the certificate.

    ``stale`` adds a line if the party's file has changed since the start.
    """

    def __init__(
        self,
        config: Callable[[], PartyFile],
        clock: Callable[[], float] = time.monotonic,
        stale: Callable[[], tuple[str, ...]] = tuple,
    ) -> None:
        self.troubles: tuple[str, ...] = ()
        """What was wrong when the files were looked at last, a line each."""
        self._config = config
        self._clock = clock
        self._stale = stale
        self._looked: float | None = None
        self._looking = asyncio.Lock()

    async def look(self) -> None:
        """Refresh ``troubles`` if older than some seconds; log new ones."""
        async with self._looking:
            if self._looked is None or self._clock() - self._looked > _FRESH_SECONDS:
                found = await asyncio.to_thread(self._found)
                for trouble in set(found) - set(self.troubles):
                    log.warning("%s", trouble)
                self.troubles, self._looked = found, self._clock()

    def _found(self) -> tuple[str, ...]:
        return (*_troubles(self._config()), *self._stale())


def _troubles(config: PartyFile) -> tuple[str, ...]:
    sections = {"data": config.data, "serving": config.serving}
    found = (
        _trouble(config.party, section, name == "data" and section.label is not None)
        for name, section in sections.items()
        if section is not None
    )
    return (*(trouble for trouble in found if trouble), *certificate_warnings(config))


def _trouble(party: str, section: DataSection, labelled: bool) -> str:
    try:
        with source_of(party, section) as source:
            Roles.of(source, section, labelled)
    except FedmqError as error:
        return str(error)
    return ""


def certificate_expiry(config: PartyFile) -> datetime | None:
    """The expiry of the certificate that ``config`` names; None without a certificate."""
    if config.tls is None or config.tls.certificate is None:
        return None
    try:
        return expiry(config.tls.certificate.read_bytes())
    except OSError:
        return None


def certificate_warnings(config: PartyFile, now: datetime | None = None) -> tuple[str, ...]:
    """A warning from thirty days before expiry: the broker refuses an expired certificate."""
    until, now = certificate_expiry(config), now or datetime.now(UTC)
    if until is None or until - now > _EXPIRES_SOON:
        return ()
    what = "expires" if until > now else "has expired"
    return (
        f"tls.certificate: it {what} on {until:%Y-%m-%d}, and this machine's clock says "
        f"{now:%Y-%m-%d}; if that is right, the broker's operator renews it with: "
        f"fedmq broker renew FOLDER {config.party}",
    )


def clock_warnings(clocks: Mapping[str, tuple[float, float]]) -> tuple[str, ...]:
    """A warning for each party of ``clocks``, as `Counters` has them."""
    return tuple(
        f"clocks: a message of {party} was sent at {_shown(theirs)} by the clock there, and came "
        f"at {_shown(own)} by the clock here; one of the two is wrong"
        for party, (theirs, own) in sorted(clocks.items())
    )


def _shown(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
