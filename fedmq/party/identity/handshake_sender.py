"""How handshakes leave: on the lane that nothing holds up, and without anybody waiting for them."""

from __future__ import annotations

import itertools
import logging

from fedmq.errors import LinkError
from fedmq.transport.background_tasks import BackgroundTasks
from fedmq.transport.link import Link

__all__ = ["HandshakeSender"]

log = logging.getLogger(__name__)

_EXPIRES = 30.0


class HandshakeSender:
    """Sends handshakes over ``link``; whoever misses an answer offers a new one."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._numbers = itertools.count(1)
        self._tasks = BackgroundTasks()

    def send(self, recipient: str, data: bytes) -> None:
        """Send ``data`` in the background."""
        self._tasks.spawn(self._post(recipient, data))

    async def _post(self, recipient: str, data: bytes) -> None:
        number = f"seals/{self._link.party}/{next(self._numbers)}"
        try:
            await self._link.post(recipient, data, message_id=number, expires=_EXPIRES)
        except LinkError as error:
            log.debug("%s: no handshake was sent to %s: %s", self._link.party, recipient, error)
