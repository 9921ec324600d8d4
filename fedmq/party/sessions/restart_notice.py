"""A restarted party tells the active one which sessions it has to begin anew."""

from __future__ import annotations

import asyncio
import logging
from random import Random

from fedmq.errors import LinkError
from fedmq.messages.body import SessionUnknown
from fedmq.party.sessions.unsequenced_sender import UnsequencedSender
from fedmq.party.store.sessions import SessionStore
from fedmq.transport.backoff import Backoff

__all__ = ["RestartNotice"]

log = logging.getLogger(__name__)

_WAITS = Backoff(first=1.0, limit=60.0)


class RestartNotice:
    """Tells the ``active`` party which sessions lie idle here, until each has a new attempt.

    The notice is sent again and again, for it may get lost or the active party may be away.
    """

    def __init__(self, store: SessionStore, sender: UnsequencedSender, active: str) -> None:
        self._store = store
        self._sender = sender
        self._active = active
        self._idle: set[str] = set()
        self._news = asyncio.Event()

    def add(self, session: str) -> None:
        """The session waits for a new attempt."""
        self._idle.add(session)
        self._news.set()

    def discard(self, session: str) -> None:
        """The session has a new attempt, or has ended."""
        self._idle.discard(session)

    def on_idle(self, session: str, idle: bool) -> None:
        """The session waits for a new attempt, or has got one."""
        if idle:
            self.add(session)
        else:
            self.discard(session)

    async def run(self) -> None:
        """Send notices without end."""
        while True:
            await self._news.wait()
            self._news.clear()
            for delay in _WAITS.delays(Random()):
                for session in sorted(self._idle):
                    try:
                        await self._send(session)
                    except LinkError as error:
                        log.info("session %s: no reminder was sent: %s", session, error)
                if not self._idle:
                    break
                await asyncio.sleep(delay)

    async def _send(self, session: str) -> None:
        stored = await self._store.find(session)
        if stored is None or stored.state != "running":
            self.discard(session)
            return
        await self._sender.send(self._active, session, stored.attempt, SessionUnknown())
