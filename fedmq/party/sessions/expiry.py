"""When is a training given up that its label holder never goes on with?"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from fedmq.party.sessions.open_sessions import Sessions
from fedmq.party.sessions.resumption import Resumption
from fedmq.party.store.sessions import SessionStore
from fedmq.transport.background_tasks import BackgroundTasks

__all__ = ["Expiry"]

log = logging.getLogger(__name__)

_BETWEEN_SECONDS = 3600.0
_DAY_SECONDS = 24 * 3600.0


class Expiry:
    """Ends the trainings of ``store`` that had neither attempt nor tree for ``most_days()``.

    What one had reserved is then free for others, and its transcript is kept no longer than those
    of sessions that ended. A party that was away itself waits an hour for the label holder.
    """

    def __init__(
        self,
        *,
        store: SessionStore,
        sessions: Sessions,
        resumption: Resumption,
        most_days: Callable[[], float],
    ) -> None:
        self._store = store
        self._sessions = sessions
        self._resumption = resumption
        self._most_days = most_days
        self._tasks = BackgroundTasks()

    def start(self) -> None:
        """Look every hour."""
        self._tasks.spawn(self._run())

    def cancel(self) -> None:
        """Look no more."""
        self._tasks.cancel()

    async def give_up(self) -> None:
        """End what has been idle for too long, whether an attempt waits here or none."""
        days = self._most_days()
        reason = f"it did not go on for {days:g} days (most_idle_days)"
        for session in await self._store.unchanged(days * _DAY_SECONDS):
            running = self._sessions.running.get(session.id)
            if running is not None:
                running.runner.cancel(reason)
            elif await self._resumption.end_idle(session.id, reason):
                log.warning("training %s of %s ended: %s", session.id, session.model, reason)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(_BETWEEN_SECONDS)
            await self.give_up()
