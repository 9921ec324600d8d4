"""A restarted party tells the active one which sessions it has to begin anew."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from random import Random

from fedmq.errors import LinkError
from fedmq.transport.backoff import Backoff

__all__ = ["RestartNotice"]

log = logging.getLogger(__name__)

_WAITS = Backoff(first=1.0, limit=60.0)


class RestartNotice:
    """Says again and again which sessions lie idle here, until each has a new attempt.

    ``say`` tells the active party that this party knows nothing of the session's last attempt.
    """

    def __init__(self, say: Callable[[str], Awaitable[None]]) -> None:
        self._say = say
        self._idle: set[str] = set()
        self._news = asyncio.Event()

    def add(self, session: str) -> None:
        """The session waits for a new attempt."""
        self._idle.add(session)
        self._news.set()

    def discard(self, session: str) -> None:
        """The session has a new attempt, or has ended."""
        self._idle.discard(session)

    async def run(self) -> None:
        """Remind without end."""
        while True:
            await self._news.wait()
            self._news.clear()
            for delay in _WAITS.delays(Random()):
                for session in sorted(self._idle):
                    try:
                        await self._say(session)
                    except LinkError as error:
                        log.info("session %s: no reminder was sent: %s", session, error)
                if not self._idle:
                    break
                await asyncio.sleep(delay)
