"""On which lane a message of a session leaves."""

from __future__ import annotations

import asyncio

import pytest

from fedmq.errors import Unroutable
from fedmq.party.sessions.runner import SessionLane
from fedmq.transport.link import Delivery
from fedmq.transport.memory import MemoryBroker, MemoryLink


class Pair:
    """A bank that publishes, and a telco that keeps what arrives, on a broker in memory."""

    def __init__(self) -> None:
        self.broker = MemoryBroker()
        for party in ("bank", "telco"):
            self.broker.declare(party)
        self.bank, self.telco = (MemoryLink(self.broker, party) for party in ("bank", "telco"))
        self._arrived: asyncio.Queue[Delivery] = asyncio.Queue()

    async def open(self) -> SessionLane:
        await self.bank.open(self._take)
        await self.telco.open(self._take)
        return SessionLane(self.bank, "training")

    async def next_lane(self) -> str:
        return (await self._arrived.get()).lane

    async def _take(self, delivery: Delivery) -> None:
        self._arrived.put_nowait(delivery)


async def test_only_what_goes_in_bulk_takes_the_lane_for_it() -> None:
    pair = Pair()
    lane = await pair.open()

    await lane.publish("telco", b"", message_id="1", in_bulk=True)
    assert await pair.next_lane() == "bulk"
    await lane.publish("telco", b"", message_id="2")
    assert await pair.next_lane() == "training"


async def test_bulk_takes_the_other_lane_to_whom_does_not_read_its_own() -> None:
    pair = Pair()
    lane = await pair.open()
    pair.broker.queues["telco", "bulk"].consumer = None

    await lane.publish("telco", b"", message_id="1", in_bulk=True)

    assert await pair.next_lane() == "training"


async def test_bulk_takes_the_other_lane_where_its_queue_is_gone() -> None:
    pair = Pair()
    lane = await pair.open()
    await lane.publish("telco", b"", message_id="1", in_bulk=True)
    assert await pair.next_lane() == "bulk"
    del pair.broker.queues["telco", "bulk"]

    await lane.publish("telco", b"", message_id="2", in_bulk=True)

    assert await pair.next_lane() == "training"


async def test_a_recipient_without_any_queue_is_named() -> None:
    pair = Pair()
    lane = await pair.open()

    with pytest.raises(Unroutable, match="'nobody' has no training queue"):
        await lane.publish("nobody", b"", message_id="1", in_bulk=True)
