"""The daemon deletes what names people when the period of the policy is over."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from fedmq.errors import FedmqError
from fedmq.party.services.service import PartyContext
from fedmq.party.store.expired import delete_expired
from fedmq.transport.background_tasks import BackgroundTasks

__all__ = ["Retention"]

log = logging.getLogger(__name__)

_STEP_SECONDS = 3600.0


class Retention:
    """Deletes the expired files of ``context``; ``clock`` gives seconds since the epoch."""

    def __init__(self, context: PartyContext, clock: Callable[[], float] = time.time) -> None:
        self._context = context
        self._clock = clock
        self._tasks = BackgroundTasks()

    def start(self) -> None:
        """Look now and every hour."""
        self._tasks.spawn(self._run())

    def cancel(self) -> None:
        """Look no more."""
        self._tasks.cancel()

    async def keep(self) -> dict[str, int]:
        """Delete what has expired by the policy that holds now, and note it in the audit log.

        Returns how many files by key of ``retention``.

        Raises:
            ConfigError: the disk refuses.
            DataError: the audit log was tampered with.
        """
        config = self._context.config
        periods = config.policy.retention
        if not periods.days:
            return {}
        running = {session.id for session in await self._context.session_store.running()}
        running |= {
            session.id
            for session in self._context.sessions.running.values()
            if session.ended is None
        }
        deleted = await asyncio.to_thread(
            delete_expired, config.state, config.recordings, periods.days, self._clock(), running
        )
        if deleted:
            audit_log = self._context.consent.audit.log
            await asyncio.to_thread(
                audit_log.record, "expired", deleted=deleted, periods=periods.periods
            )
            log.info("%s: deleted after their period: %s", self._context.party, deleted)
        return deleted

    async def _run(self) -> None:
        while True:
            try:
                await self.keep()
            except FedmqError as error:
                log.error("%s: retention: %s", self._context.party, error)
            await asyncio.sleep(_STEP_SECONDS)
