"""The hand-over of deliveries from a connection to the party that reads them."""

from __future__ import annotations

import asyncio
import logging

from fedmq.transport.background_tasks import BackgroundTasks, being_cancelled
from fedmq.transport.link import LANES, Delivery, Lane, OnDelivery

__all__ = ["LaneWorkers"]

log = logging.getLogger(__name__)


class LaneWorkers:
    """Calls ``on_delivery`` for one delivery at a time per lane, in order.

    The calls run in tasks of their own: a client library cancels its callbacks when a connection
    drops, and a handler cut off in the middle would have handed over half.
    """

    def __init__(self, party: str, on_delivery: OnDelivery) -> None:
        self._party = party
        self._on_delivery = on_delivery
        # Never full: a broker sends no more than the prefetch count ahead of acknowledgements.
        self._waiting: dict[Lane, asyncio.Queue[Delivery]] = {
            lane: asyncio.Queue() for lane in LANES
        }
        self._tasks = BackgroundTasks()
        for lane in LANES:
            self._tasks.spawn(self._run(lane), name=f"{party} reads {lane}")

    def put(self, delivery: Delivery) -> None:
        """Queue a delivery behind the others of its lane."""
        self._waiting[delivery.lane].put_nowait(delivery)

    def forget(self) -> None:
        """Drop what waits, because its connection is gone and the broker will send it again."""
        for waiting in self._waiting.values():
            while not waiting.empty():
                waiting.get_nowait()

    async def close(self) -> None:
        """End the tasks; a handler that is running is cancelled."""
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
