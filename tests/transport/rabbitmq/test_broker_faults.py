"""What a broker does to its clients on a bad day; no link stays deaf or dumb after it."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator

import pytest

from fedmq.errors import LinkError, Unroutable
from fedmq.transport.backoff import Backoff
from fedmq.transport.link import Link
from fedmq.transport.rabbitmq import connection as connection_module
from fedmq.transport.rabbitmq.address import BrokerAddress
from fedmq.transport.rabbitmq.connection import BrokerConnection
from fedmq.transport.rabbitmq.link import RabbitMQLink
from fedmq.transport.rabbitmq.topology import Topology, topology
from tests.rabbitmq_node import RabbitNode
from tests.transport.federations import Inbox, Observer, RabbitFederation
from tests.transport.rabbitmq.black_hole import BlackHole

numbers = itertools.count()
PAIR = ("bank", "telco")


async def sent(link: Link, recipient: str, message_id: str, seconds: float = 90) -> None:
    """Publish until it is confirmed, as the layer above a link does."""
    async with asyncio.timeout(seconds):
        while True:
            try:
                await link.publish(recipient, "training", b"", message_id=message_id)
            except LinkError:
                await asyncio.sleep(0.1)
            else:
                return


class Admin:
    """Somebody with all rights on the broker."""

    def __init__(self, node: RabbitNode) -> None:
        self._node = node

    async def declare(self, wanted: Topology) -> None:
        await (await self._connection()).declare(wanted)

    async def delete(self, wanted: Topology) -> None:
        await (await self._connection()).delete(wanted)

    async def ctl(self, *arguments: str) -> None:
        await asyncio.to_thread(self._node.ctl, *arguments)

    async def _connection(self) -> BrokerConnection:
        address = BrokerAddress.parse(self._node.url())
        connection = await BrokerConnection.open(address, "admin")
        self._opened.append(connection)
        return connection

    _opened: list[BrokerConnection]

    async def __aenter__(self) -> Admin:
        self._opened = []
        return self

    async def __aexit__(self, *_: object) -> None:
        for connection in self._opened:
            await connection.close()


@pytest.fixture
async def admin(node: RabbitNode) -> AsyncIterator[Admin]:
    async with Admin(node) as admin:
        yield admin


@pytest.fixture
async def rabbit(node: RabbitNode, admin: Admin) -> AsyncIterator[RabbitFederation]:
    name = f"faults{next(numbers)}"
    await admin.declare(topology(name, PAIR))
    federation = RabbitFederation(node.url(), name)
    yield federation
    await federation.close()


async def test_a_memory_alarm_holds_publishers_up_and_lets_them_go_on(
    admin: Admin, rabbit: RabbitFederation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "TIMEOUT_SECONDS", 1.0)
    bank, _ = await rabbit.opened("bank")
    _, inbox = await rabbit.opened("telco")

    await admin.ctl("set_vm_memory_high_watermark", "0.00001")
    try:
        # The broker takes what comes before it has shut the door.
        with pytest.raises(LinkError, match=r"did not confirm message .* no answer in time"):
            for number in range(100):
                await bank.publish("telco", "training", b"", message_id=f"held {number}")
    finally:
        await admin.ctl("set_vm_memory_high_watermark", "0.4")
    await sent(bank, "telco", "after")

    while (await inbox.acked()).message_id != "after":
        pass


async def test_a_deleted_queue_is_noticed_and_read_again_within_seconds(
    admin: Admin, rabbit: RabbitFederation
) -> None:
    observer = Observer()
    bank, _ = await rabbit.opened("bank")
    telco, inbox = rabbit.link("telco", on_state=observer), Inbox()
    await telco.open(inbox)

    await admin.delete(topology(rabbit.name, ["telco"]))
    begun = time.monotonic()
    await observer.sees(connected=False)
    noticed = time.monotonic() - begun
    await admin.declare(topology(rabbit.name, PAIR))
    await observer.sees(connected=True)
    await sent(bank, "telco", "1")

    assert (await inbox.acked()).message_id == "1"
    assert noticed < 8


async def test_a_recipient_without_a_queue_is_unroutable_until_it_has_one(
    admin: Admin, rabbit: RabbitFederation
) -> None:
    bank, _ = await rabbit.opened("bank")
    with pytest.raises(Unroutable, match="'retail' has no training queue"):
        await bank.publish("retail", "training", b"", message_id="1")

    await admin.declare(topology(rabbit.name, [*PAIR, "retail"]))
    await sent(bank, "retail", "1", seconds=5)
    _, inbox = await rabbit.opened("retail")
    assert (await inbox.acked()).message_id == "1"


async def test_rights_that_are_taken_away_cost_the_channel_and_come_back(
    admin: Admin, node: RabbitNode
) -> None:
    bank = RabbitMQLink(node.url("bank"), "demo", "bank", backoff=Backoff(limit=0.5))
    telco = RabbitMQLink(node.url("telco"), "demo", "telco", backoff=Backoff(limit=0.5))
    inbox = Inbox()
    await bank.open(Inbox())
    await telco.open(inbox)
    try:
        await admin.ctl("set_permissions", "bank", "^$", "^$", r"^fedmq\.demo\.bank\.")
        with pytest.raises(LinkError, match="ACCESS_REFUSED"):
            await bank.publish("telco", "training", b"", message_id="1")
        await admin.ctl("set_permissions", "bank", "^$", r"^fedmq\.demo$", r"^fedmq\.demo\.bank\.")
        await sent(bank, "telco", "2")
        assert (await inbox.acked()).message_id == "2"
    finally:
        await bank.close()
        await telco.close()


@pytest.mark.long
async def test_a_link_may_wait_for_a_broker_that_is_down(node: RabbitNode) -> None:
    observer, inbox = Observer(), Inbox()
    node.stop()
    link = RabbitMQLink(
        node.url("bank"),
        "demo",
        "bank",
        on_state=observer,
        backoff=Backoff(limit=0.5),
        wait=True,
    )
    await link.open(inbox)
    assert not link.connected
    await observer.sees(connected=False, reason="cannot be reached")

    await asyncio.to_thread(node.start)
    await observer.sees(connected=True)
    await link.publish("bank", "training", b"", message_id="1")
    assert (await inbox.acked()).message_id == "1"
    await link.close()


async def test_a_link_is_back_within_five_seconds_of_a_network_that_swallowed_packets(
    rabbit: RabbitFederation, node: RabbitNode
) -> None:
    way = BlackHole(BrokerAddress.parse(node.url()).port)
    observer, inbox = Observer(), Inbox()
    url = rabbit.url.replace(f":{way.target}", f":{way.port}")
    telco = RabbitMQLink(url, rabbit.name, "telco", on_state=observer)
    bank, _ = await rabbit.opened("bank")
    try:
        await telco.open(inbox)
        way.darken()
        begun = time.monotonic()
        await observer.sees(connected=False)
        assert time.monotonic() - begun < 10
        await asyncio.sleep(12)  # as many attempts as make the back-off its longest
        way.lighten()
        begun = time.monotonic()
        await observer.sees(connected=True)
        assert time.monotonic() - begun < 5
        await sent(bank, "telco", "1")
        assert (await inbox.acked()).message_id == "1"
    finally:
        await telco.close()
        await way.close()
