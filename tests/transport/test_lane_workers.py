"""Deliveries pass one at a time, and those of a lost connection are dropped."""

from __future__ import annotations

import asyncio

from fedmq.transport.lane_workers import LaneWorkers
from fedmq.transport.link import Delivery, Lane


class Unsettled:
    """A settlement for deliveries that nobody settles."""

    async def ack(self) -> None:
        raise AssertionError("acknowledged")

    async def dead_letter(self, reason: str) -> None:
        raise AssertionError(f"dead-lettered: {reason}")


def delivery(message_id: str, lane: Lane = "training") -> Delivery:
    return Delivery(b"", message_id, "bank", lane, redelivered=False, settlement=Unsettled())


async def test_what_waits_is_forgotten_and_what_runs_is_finished() -> None:
    started, go_on = asyncio.Event(), asyncio.Event()
    finished: asyncio.Queue[str] = asyncio.Queue()

    async def handle(each: Delivery) -> None:
        started.set()
        await go_on.wait()
        finished.put_nowait(each.message_id)

    handover = LaneWorkers("telco", handle)
    handover.put(delivery("running"))
    await started.wait()
    handover.put(delivery("waiting"))
    handover.forget()
    handover.put(delivery("sent again"))
    go_on.set()

    assert [await finished.get(), await finished.get()] == ["running", "sent again"]
    await handover.close()


async def test_closing_cancels_the_handler_and_settles_nothing() -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def handle(_: Delivery) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    handover = LaneWorkers("telco", handle)
    handover.put(delivery("1"))
    await started.wait()
    await handover.close()

    assert cancelled.is_set()
