"""On which lane does a message of a session leave?"""

from __future__ import annotations

import asyncio

from fedmq.errors import Unroutable
from fedmq.transport.link import Lane, Link

__all__ = ["SessionLane"]


class SessionLane:
    """Publishes what a session says on ``lane``, and what goes in bulk on the lane for that.

    To whom does not read that one, as where a broker's definitions are older, all goes on ``lane``.
    """

    def __init__(self, link: Link, lane: Lane) -> None:
        self._link = link
        self._lane = lane
        self._asking = asyncio.Lock()
        self._reads_bulk: dict[str, bool] = {}

    async def publish(
        self, recipient: str, body: bytes, *, message_id: str, in_bulk: bool = False
    ) -> None:
        """Send ``body``; raises as `Link.publish`."""
        if in_bulk and await self._bulk_is_read(recipient):
            try:
                await self._link.publish(recipient, "bulk", body, message_id=message_id)
            except Unroutable:  # its queue is gone
                self._reads_bulk[recipient] = False
            else:
                return
        await self._link.publish(recipient, self._lane, body, message_id=message_id)

    async def _bulk_is_read(self, recipient: str) -> bool:
        async with self._asking:
            if recipient not in self._reads_bulk:
                self._reads_bulk[recipient] = await self._link.is_read(recipient, "bulk")
        return self._reads_bulk[recipient]
