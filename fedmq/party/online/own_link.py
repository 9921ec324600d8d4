"""Does this party's own link to its broker work? If not, silence says nothing about the others.

The transport tells when the link goes down. One that is frozen looks, until the transport gives it
up after many seconds, as if no other party answered: so while a batch waits, the broker is asked.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable

from fedmq.errors import LinkError
from fedmq.transport.background_tasks import BackgroundTasks

__all__ = ["OwnLink"]

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 0.25

_SILENT_SECONDS = 0.5
"""An answer of the broker takes one way there and back: less than this on every link that scores
can be made over."""


class OwnLink:
    """The link of ``party``; ``ask_broker`` returns once the broker has answered."""

    def __init__(self, party: str, ask_broker: Callable[[], Awaitable[None]]) -> None:
        self._party = party
        self._ask_broker = ask_broker
        self._loop = asyncio.get_running_loop
        self._up_since = -math.inf
        self._down_since: float | None = None
        self._asked_at: float | None = None
        """Since when the broker owes an answer; None while it owes none."""
        self._answered_at = -math.inf
        self._asking = BackgroundTasks()

    def changed(self, connected: bool) -> None:
        """Note that the link is up, or down."""
        now = self._loop().time()
        if connected:
            self._down_since, self._up_since = None, now
        elif self._down_since is None:
            self._down_since = now

    def check(self, since: float) -> None:
        """Ask the broker, unless it is being asked, or has answered ``since`` then."""
        if self._down_since is None and self._asked_at is None and self._answered_at < since:
            self._asked_at = self._loop().time()
            self._asking.spawn(self._ask())

    @property
    def outage(self) -> float:
        """For how many seconds nothing has come through, as far as is known; 0 if all is well."""
        since = self._asked_at if self._down_since is None else self._down_since
        return 0.0 if since is None else self._loop().time() - since

    @property
    def trouble(self) -> str:
        """Why nobody can be asked now, in one line; empty while the link works."""
        if self._down_since is not None:
            return f"{self._party} has no connection to its broker; ask again in a moment"
        if self.outage >= _SILENT_SECONDS:
            return f"{self._party} gets no answer from its broker; ask again in a moment"
        return ""

    def has_worked(self, since: float) -> bool:
        """Whether the link has worked ``since`` then, so that a silent party is to blame."""
        troubled = self._down_since is not None or self._asked_at is not None
        return not troubled and self._up_since <= since

    async def close(self) -> None:
        """Stop asking the broker."""
        await self._asking.close()

    async def _ask(self) -> None:
        while self._down_since is None:
            try:
                await self._ask_broker()
            except LinkError as error:
                log.info("%s: %s", self._party, error)
                await asyncio.sleep(_AGAIN_SECONDS)
            else:
                self._answered_at = self._loop().time()
                break
        self._asked_at = None
