"""Deliveries pass one at a time, and waiting ones of a lost connection are dropped."""

from __future__ import annotations

import asyncio

from fedmq.transport.link import Delivery, Lane, LaneWorkers


async def acknowledged() -> None:
    raise AssertionError("acknowledged")


async def dead_lettered(reason: str) -> None:
    raise AssertionError(f"dead-lettered: {reason}")


def unsettled(message_id: str, lane: Lane = "training") -> Delivery:
    """A delivery that nobody may settle."""
    return Delivery(b"", message_id, "bank", lane, False, acknowledged, dead_lettered)


async def test_what_waits_is_dropped_and_what_runs_is_finished() -> None:
    started, go_on = asyncio.Event(), asyncio.Event()
    finished: asyncio.Queue[str] = asyncio.Queue()

    async def handle(delivery: Delivery) -> None:
        started.set()
        await go_on.wait()
        finished.put_nowait(delivery.message_id)

    workers = LaneWorkers("telco", handle)
    workers.put(unsettled("running"))
    await started.wait()
    workers.put(unsettled("waiting"))
    workers.drop_waiting()
    workers.put(unsettled("sent again"))
    go_on.set()

    assert [await finished.get(), await finished.get()] == ["running", "sent again"]
    await workers.close()


async def test_closing_cancels_the_handler_and_settles_nothing() -> None:
    started, cancelled = asyncio.Event(), asyncio.Event()

    async def handle(_: Delivery) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    workers = LaneWorkers("telco", handle)
    workers.put(unsettled("1"))
    await started.wait()
    await workers.close()

    assert cancelled.is_set()
