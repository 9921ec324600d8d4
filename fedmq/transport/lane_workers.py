"""The workers that hand the deliveries of a connection to the party, one per lane."""

from __future__ import annotations

import asyncio
import logging

from fedmq.transport.background_tasks import BackgroundTasks, being_cancelled
from fedmq.transport.link import LANES, Delivery, Lane, OnDelivery

__all__ = ["LaneWorkers"]

log = logging.getLogger(__name__)


class LaneWorkers:
    """Calls ``on_delivery`` for one delivery at a time per lane, in the order of their arrival.

    Each lane has a task of its own. A client library cancels its callbacks when a connection drops,
    and ``on_delivery`` must not be cut off in the middle. What it raises sends the delivery to the
    dead letters.
    """

    def __init__(self, party: str, on_delivery: OnDelivery) -> None:
        self._party = party
        self._on_delivery = on_delivery
        # Unbounded, for a broker sends no more than the prefetch count ahead of acknowledgements.
        self._waiting: dict[Lane, asyncio.Queue[Delivery]] = {
            lane: asyncio.Queue() for lane in LANES
        }
        self._tasks = BackgroundTasks()
        for lane in LANES:
            self._tasks.spawn(self._run(lane), name=f"{party} reads {lane}")

    def put(self, delivery: Delivery) -> None:
        """Queue a delivery behind the others of its lane."""
        self._waiting[delivery.lane].put_nowait(delivery)

    def drop_waiting(self) -> None:
        """Drop what waits: its connection is gone, and the broker will deliver it again."""
        for waiting in self._waiting.values():
            while not waiting.empty():
                waiting.get_nowait()

    async def close(self) -> None:
        """End the workers; an ``on_delivery`` that is running is cancelled."""
        await self._tasks.close()

    async def _run(self, lane: Lane) -> None:
        while True:
            delivery = await self._waiting[lane].get()
            try:
                await self._on_delivery(delivery)
            except (Exception, asyncio.CancelledError) as error:
                if being_cancelled():
                    raise
                # One bad message never stalls a queue.
                log.exception("%s: cannot handle message %s", self._party, delivery.message_id)
                await delivery.dead_letter(f"{type(error).__name__}: {error}")
