"""Audit records of sessions, written in threads and before the party answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from fedmq.errors import FedmqError, Inconsistent
from fedmq.messages.envelope import Header
from fedmq.party.consent.audit_log import AuditLog, audited
from fedmq.party.store.certificates import Certificate
from fedmq.party.store.database import until_taken
from fedmq.party.telemetry.metrics import Traffic
from fedmq.transport.background_tasks import BackgroundTasks

__all__ = ["SessionAudit"]

log = logging.getLogger(__name__)


class SessionAudit:
    """Writes into the ``audit_log`` of ``party``."""

    def __init__(self, party: str, audit_log: AuditLog) -> None:
        self.log = audit_log
        self._party = party
        self._ends = BackgroundTasks()

    async def until_recordable(self, on_trouble: Callable[[str], None] = lambda _: None) -> None:
        """Wait until the disk can take another entry; ``on_trouble`` as in ``until_taken``."""
        await until_taken(lambda: asyncio.to_thread(self.log.check), on_trouble=on_trouble)

    async def record(self, event: str, header: Header, **details: Any) -> None:
        """Record ``event`` of the session of ``header``, and sync it to disk.

        Raises:
            Refused: it cannot be recorded.
        """
        await audited(
            self.log,
            self._party,
            event,
            peer=header.sender,
            session=header.session,
            attempt=header.attempt,
            **details,
        )

    def follow(self, header: Header, outcome: asyncio.Future[Any], traffic: Traffic) -> None:
        """Record the end of a session, and the number of answered messages of each kind."""

        def ended(done: asyncio.Future[Any]) -> None:
            error = None if done.cancelled() else done.exception()
            answers = traffic.volumes[self._party, header.sender]
            entry = {
                "event": "ended",
                "peer": header.sender,
                "session": header.session,
                "attempt": header.attempt,
                "outcome": "interrupted" if done.cancelled() else str(error or "finished"),
                "answered": {kind: volume.messages for kind, volume in answers.items()},
            }
            self._ends.spawn(self._recorded(entry))

        outcome.add_done_callback(ended)

    def accuse(self, session: str, attempt: int, model: str, outcome: asyncio.Future[Any]) -> None:
        """Record the evidence if one of this party's own sessions ends as inconsistent.

        What convinces others is kept as a file, which the entry names.
        """

        def ended(done: asyncio.Future[Any]) -> None:
            error = None if done.cancelled() else done.exception()
            if not isinstance(error, Inconsistent):
                return
            entry = {
                "event": "inconsistent",
                "peer": error.party,
                "session": session,
                "attempt": attempt,
                "model": model,
                "what": error.what,
                "evidence": dict(error.evidence),
            }
            certificate = None
            if error.proof:
                certificate = Certificate(self._party, error.party, session, attempt, error.proof)
            self._ends.spawn(self._recorded(entry, certificate))

        outcome.add_done_callback(ended)

    async def close(self) -> None:
        """Wait until all ends of sessions are written."""
        await asyncio.sleep(0)  # futures call back in the next round of the loop
        while tasks := [task for task in self._ends if not task.done()]:
            await asyncio.wait(tasks)

    async def _recorded(
        self, entry: dict[str, Any], certificate: Certificate | None = None
    ) -> None:
        try:
            if certificate is not None:
                path = await asyncio.to_thread(certificate.keep, self.log.path.parent)
                entry["certificate"] = str(path)
            await asyncio.to_thread(self.log.record_all, [entry])
        except (FedmqError, OSError) as error:  # too late to refuse
            log.error("%s: %s", self._party, error)
