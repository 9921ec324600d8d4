"""What only a real broker can do: refuse, keep parties apart, break and come back."""

from __future__ import annotations

import asyncio
import itertools
import logging
import re
import socket
from collections.abc import AsyncIterator

import pytest

from benchmarks.wide_area_link import Link as SlowLink
from benchmarks.wide_area_link import linked
from fedmq.errors import ConfigError, LinkError, Unroutable
from fedmq.transport.link import Link, LinkState
from fedmq.transport.rabbitmq import connection as connection_module
from fedmq.transport.rabbitmq.address import BrokerAddress
from fedmq.transport.rabbitmq.connection import BrokerConnection, Received
from fedmq.transport.rabbitmq.link import RabbitMQLink, TemporaryTopology
from fedmq.transport.rabbitmq.topology import (
    DELIVERY_LIMIT,
    Topology,
    dead_queue_name,
    exchange_name,
    queue_name,
    routing_key,
    topology,
)
from tests.rabbitmq_node import RabbitNode
from tests.transport.federations import PARTIES, Inbox, Observer, RabbitFederation


async def ignore(message: Received) -> None:
    raise AssertionError(f"nothing should arrive here, but {message} did")


numbers = itertools.count()


async def sent(link: Link, recipient: str, message_id: str) -> None:
    """Publish until it is confirmed, as the layer above a link does."""
    async with asyncio.timeout(90):
        while True:
            try:
                await link.publish(recipient, "training", b"", message_id=message_id)
            except LinkError:
                await asyncio.sleep(0.05)
            else:
                return


class TestRefusals:
    """One line that names what is wrong, and never the password."""

    async def refusal(self, url: str, federation: str = "demo", party: str = "bank") -> str:
        link = RabbitMQLink(url, federation, party)
        with pytest.raises(LinkError) as error:
            await link.open(Inbox())
        assert not link.connected
        assert "s3cret" not in str(error.value)
        assert "\n" not in str(error.value)
        return str(error.value)

    async def test_a_broker_that_is_not_there(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]

        line = await self.refusal(f"amqp://bank:s3cret@127.0.0.1:{port}/")
        assert f"broker 127.0.0.1:{port} cannot be reached" in line

    async def test_a_host_that_does_not_exist(self) -> None:
        line = await self.refusal("amqp://bank:s3cret@no-such-host.invalid/")
        assert "broker no-such-host.invalid:5672 cannot be reached" in line

    async def test_a_server_that_says_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(connection_module, "TIMEOUT_SECONDS", 0.2)
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            line = await self.refusal(f"amqp://bank:s3cret@127.0.0.1:{port}/")
        assert f"broker 127.0.0.1:{port} does not answer" in line

    async def test_a_wrong_password(self, node: RabbitNode) -> None:
        line = await self.refusal(node.url("bank", "s3cret"))
        assert f"broker 127.0.0.1:{node.port} refuses user 'bank'" in line

    async def test_a_virtual_host_that_does_not_exist(self, node: RabbitNode) -> None:
        line = await self.refusal(node.url("bank", vhost="elsewhere"))
        assert "does not let user 'bank' into virtual host 'elsewhere'" in line

    async def test_a_federation_that_was_never_declared(self, node: RabbitNode) -> None:
        line = await self.refusal(node.url("admin"), federation="nowhere")
        assert "cannot read queue fedmq.nowhere.bank.training: NOT_FOUND" in line

    async def test_another_partys_user(self, node: RabbitNode) -> None:
        line = await self.refusal(node.url("telco"), party="bank")
        assert "cannot read queue fedmq.demo.bank.training: ACCESS_REFUSED" in line

    @pytest.mark.parametrize(("federation", "party"), [("demo", "Bank"), ("de.mo", "bank")])
    def test_a_name_that_is_none(self, federation: str, party: str) -> None:
        with pytest.raises(ConfigError, match="a name starts with a letter"):
            RabbitMQLink("amqp://localhost/", federation, party)

    async def test_a_link_that_failed_to_open_opens_later(self, node: RabbitNode) -> None:
        link = RabbitMQLink(node.url(), "later", "bank")
        with pytest.raises(LinkError, match="NOT_FOUND"):
            await link.open(Inbox())

        async with TemporaryTopology(node.url(), "later", ["bank"]):
            await link.open(Inbox())
            assert link.connected
            await link.close()


class TestIsolation:
    """What the definitions of the federation ``demo`` let the user ``bank`` do."""

    @pytest.fixture
    async def bank(self, node: RabbitNode) -> BrokerConnection:
        return await BrokerConnection.open(BrokerAddress.parse(node.url("bank")), "bank")

    @pytest.fixture(autouse=True)
    async def disconnect(self, bank: BrokerConnection) -> AsyncIterator[None]:
        yield
        await bank.close()

    async def test_two_parties_talk_under_their_own_users(self, node: RabbitNode) -> None:
        bank = RabbitMQLink(node.url("bank"), "demo", "bank")
        telco = RabbitMQLink(node.url("telco"), "demo", "telco")
        inbox = Inbox()
        await bank.open(Inbox())
        await telco.open(inbox)

        await bank.publish("telco", "training", b"hello", message_id="1")

        assert (await inbox.acked()).sender == "bank"
        with pytest.raises(Unroutable):
            await bank.publish("insurer", "training", b"", message_id="2")
        await bank.close()
        await telco.close()

    async def test_a_short_message_overtakes_long_ones_that_wait_for_the_broker(
        self, node: RabbitNode
    ) -> None:
        bank = RabbitMQLink(node.url("bank"), "demo", "bank")
        telco = RabbitMQLink(node.url("telco"), "demo", "telco")
        inbox = Inbox()
        await bank.open(Inbox())
        await telco.open(inbox)
        long = [
            asyncio.create_task(
                bank.publish("telco", "training", bytes(1 << 20), message_id=f"long {number}")
            )
            for number in range(30)
        ]
        await asyncio.sleep(0)

        await bank.publish("telco", "training", b"short", message_id="short")

        assert not all(sending.done() for sending in long)
        await asyncio.gather(*long)
        bodies = [(await inbox.acked()).message_id for _ in range(31)]
        assert bodies.index("short") < 29
        await bank.close()
        await telco.close()

    async def test_dead_letters_need_no_right_to_publish(self, node: RabbitNode) -> None:
        bank = RabbitMQLink(node.url("bank"), "demo", "bank")
        inbox = Inbox()
        await bank.open(inbox)
        await bank.publish("bank", "training", b"bad", message_id="9")
        await (await inbox.next()).dead_letter("no use")
        await bank.close()

        federation = RabbitFederation(node.url("bank"), "demo")
        assert await federation.dead_letter("bank") == ("9", b"bad")

    @pytest.mark.parametrize("kind", ["training", "inference", "dead"])
    async def test_bank_cannot_read_telcos_queues(self, bank: BrokerConnection, kind: str) -> None:
        with pytest.raises(LinkError, match="ACCESS_REFUSED"):
            await bank.consume(f"fedmq.demo.telco.{kind}", ignore)

    async def test_bank_cannot_publish_under_telcos_name(self, bank: BrokerConnection) -> None:
        key = routing_key("telco", "bank", "training")
        with pytest.raises(LinkError, match="ACCESS_REFUSED"):
            await bank.publish(exchange_name("demo"), key, b"forged", "1")

    @pytest.mark.parametrize(
        ("exchange", "key"),
        [
            ("", queue_name("demo", "telco", "training")),
            ("fedmq.demo.dead", "telco"),
            ("amq.topic", "bank.telco.training"),
        ],
    )
    async def test_bank_cannot_publish_elsewhere(
        self, bank: BrokerConnection, exchange: str, key: str
    ) -> None:
        with pytest.raises(LinkError, match="ACCESS_REFUSED"):
            await bank.publish(exchange, key, b"", "1")

    async def test_bank_cannot_declare(self, bank: BrokerConnection) -> None:
        with pytest.raises(LinkError, match="cannot declare a federation: ACCESS_REFUSED"):
            await bank.declare(topology("mine", ["bank"]))

    async def test_bank_cannot_delete(self, bank: BrokerConnection) -> None:
        with pytest.raises(LinkError, match="cannot delete a federation: ACCESS_REFUSED"):
            await bank.delete(topology("demo", ["bank", "telco"]))


async def ignore_delivery(_: object) -> None:
    pass


class TestOutages:
    """The broker goes and comes back; the link says so, and goes on."""

    @pytest.fixture
    async def rabbit(self, node: RabbitNode) -> AsyncIterator[RabbitFederation]:
        # Left behind on the node: to delete a quorum queue that has just been restarted
        # takes the broker five seconds.
        name = f"outage{next(numbers)}"
        connection = await BrokerConnection.open(BrokerAddress.parse(node.url()), name)
        await connection.declare(topology(name, PARTIES))
        await connection.close()
        federation = RabbitFederation(node.url(), name)
        yield federation
        await federation.close()

    async def test_a_killed_broker_loses_nothing_that_was_confirmed(
        self, node: RabbitNode, rabbit: RabbitFederation, caplog: pytest.LogCaptureFixture
    ) -> None:
        observer = Observer()
        bank = rabbit.link("bank", on_state=observer)
        await bank.open(Inbox())
        _, inbox = await rabbit.opened("telco")
        for number in range(20):
            await bank.publish("telco", "training", b"", message_id=str(number))
            await inbox.next()

        node.kill()
        await observer.sees(connected=False)
        with pytest.raises(LinkError, match="bank: not connected to broker"):
            await bank.publish("telco", "training", b"", message_id="lost")
        await asyncio.to_thread(node.start)
        await sent(bank, "telco", "after")

        seen = [await inbox.acked() for _ in range(21)]
        assert [delivery.message_id for delivery in seen] == [*map(str, range(20)), "after"]
        assert [delivery.redelivered for delivery in seen] == [True] * 20 + [False]
        # A link that is back publishes already while it still begins to consume.
        await observer.sees(connected=True)
        up, down, *_ = observer.states
        assert up == LinkState(True, "connected")
        assert not down.connected
        assert down.reason
        assert f"telco: lost broker 127.0.0.1:{node.port}" in caplog.text

    @pytest.mark.long
    async def test_publishes_cut_off_by_a_kill_arrive_when_repeated(
        self, node: RabbitNode, rabbit: RabbitFederation
    ) -> None:
        bank, _ = await rabbit.opened("bank")
        _, inbox = await rabbit.opened("telco")

        async def restart() -> None:
            await asyncio.to_thread(node.restart)

        ids = [str(number) for number in range(300)]
        await asyncio.gather(restart(), *(sent(bank, "telco", message_id) for message_id in ids))

        arrived: set[str] = set()
        while arrived != set(ids):
            arrived.add((await inbox.acked()).message_id)

    @pytest.mark.long
    async def test_closing_during_an_outage_ends_the_attempts(
        self, node: RabbitNode, rabbit: RabbitFederation
    ) -> None:
        observer = Observer()
        bank = rabbit.link("bank", on_state=observer)
        await bank.open(Inbox())
        node.kill()
        await observer.sees(connected=False)

        async with asyncio.timeout(5):
            await bank.close()
        await asyncio.to_thread(node.start)

        assert not [task for task in asyncio.all_tasks() if task.get_name() == "link bank"]

    async def test_a_frozen_broker_fails_a_publish_and_serves_again_when_it_thaws(
        self, node: RabbitNode, rabbit: RabbitFederation, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(connection_module, "TIMEOUT_SECONDS", 1.0)
        monkeypatch.setattr(connection_module, "CLOSE_SECONDS", 0.5)
        bank, _ = await rabbit.opened("bank")
        _, inbox = await rabbit.opened("telco")

        node.freeze()
        try:
            with pytest.raises(LinkError, match="did not confirm message 1: no answer in time"):
                await bank.publish("telco", "training", b"", message_id="1")
        finally:
            node.thaw()
        await sent(bank, "telco", "2")

        arrived = {(await inbox.acked()).message_id, (await inbox.acked()).message_id}
        assert arrived == {"1", "2"}

    async def test_what_is_not_confirmed_when_the_link_closes_was_not_sent(
        self, rabbit: RabbitFederation
    ) -> None:
        for turns in range(12):
            bank, _ = await rabbit.opened("bank")
            publishing = [
                asyncio.ensure_future(
                    bank.publish("telco", "training", b"", message_id=str(number))
                )
                for number in range(20)
            ]
            for _ in range(turns):
                await asyncio.sleep(0)
            await bank.close()

            for outcome in await asyncio.gather(*publishing, return_exceptions=True):
                if outcome is not None:
                    assert isinstance(outcome, LinkError)
                    assert re.search(r"message \d+: [a-zA-Z]", str(outcome))

    async def test_a_publisher_that_is_really_cancelled_stays_cancelled(
        self, node: RabbitNode, rabbit: RabbitFederation
    ) -> None:
        bank, _ = await rabbit.opened("bank")
        node.freeze()
        try:
            publishing = asyncio.create_task(bank.publish("telco", "training", b"", message_id="1"))
            await asyncio.sleep(0.1)
            publishing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await publishing
        finally:
            node.thaw()

    async def test_a_frozen_broker_is_reached_once_it_is_thawed(
        self, node: RabbitNode, rabbit: RabbitFederation
    ) -> None:
        bank, _ = await rabbit.opened("bank")
        node.freeze()
        try:
            await asyncio.sleep(0.1)  # until all of its threads stand still
            asking = asyncio.create_task(bank.reach_broker())
            await asyncio.wait([asking], timeout=0.1)
            assert not asking.done()
        finally:
            node.thaw()
        await asking

    async def test_a_slow_link_is_no_broken_one(
        self, node: RabbitNode, rabbit: RabbitFederation, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        bank, bank_inbox = await rabbit.opened("bank")
        observer, inbox = Observer(), Inbox()
        with linked(node.port, SlowLink(megabits=8, milliseconds=10)) as port:
            address = rabbit.url.replace(str(node.port), str(port))
            telco = RabbitMQLink(address, rabbit.name, "telco", on_state=observer)
            await telco.open(inbox)
            # A third of what the bytes take on this link.
            monkeypatch.setattr(connection_module, "TIMEOUT_SECONDS", 0.7)
            monkeypatch.setattr(connection_module, "WATCH_SECONDS", 0.2)
            pieces = [bytes(250_000)] * 8
            async with asyncio.timeout(90), asyncio.TaskGroup() as publishing:
                for number, piece in enumerate(pieces):
                    for link, to in ((bank, "telco"), (telco, "bank")):
                        publishing.create_task(
                            link.publish(to, "training", piece, message_id=str(number))
                        )
            for arrived in (inbox, bank_inbox):
                assert len([await arrived.acked() for _ in pieces]) == len(pieces)
            assert [state.connected for state in observer.states] == [True]
            await telco.close()

    async def test_a_consumer_that_the_broker_cancelled_comes_back(
        self, node: RabbitNode, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(connection_module, "WATCH_SECONDS", 1)
        observer = Observer()
        link = RabbitMQLink(node.url(), "shaken", "bank", on_state=observer)
        inbox = Inbox()
        async with TemporaryTopology(node.url(), "shaken", ["bank"]):
            await link.open(inbox)
        await observer.sees(connected=False, reason="NOT_FOUND")

        async with TemporaryTopology(node.url(), "shaken", ["bank"]):
            await observer.sees(connected=True)
            await link.publish("bank", "training", b"", message_id="1")
            assert (await inbox.acked()).message_id == "1"
            await link.close()

    async def test_a_consumer_that_is_there_but_gets_nothing_is_replaced(
        self, node: RabbitNode, rabbit: RabbitFederation, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(connection_module, "WATCH_SECONDS", 0.5)
        observer = Observer()
        link = rabbit.link("bank", on_state=observer)
        inbox = Inbox()
        await link.open(inbox)
        assert link._connection is not None
        # As if what was delivered were lost on the way.
        deaf = await link._connection._incoming.get_underlay_channel()
        for tag in deaf.consumers:
            deaf.consumers[tag] = ignore_delivery
        telco, _ = await rabbit.opened("telco")
        count = connection_module.PREFETCH + 1
        for number in range(count):
            await telco.publish("bank", "training", b"", message_id=str(number))

        await observer.sees(connected=False, reason="messages wait, but the broker delivers none")
        await observer.sees(connected=True)
        seen = [(await inbox.acked()).message_id for _ in range(count)]
        assert sorted(seen, key=int) == [str(number) for number in range(count)]


async def test_a_message_that_kills_its_reader_is_put_aside(node: RabbitNode) -> None:
    address = BrokerAddress.parse(node.url())
    async with TemporaryTopology(node.url(), "lethal", PARTIES):
        bank = await BrokerConnection.open(address, "bank")
        key = routing_key("bank", "telco", "training")
        assert await bank.publish(exchange_name("lethal"), key, b"poison", "m1")
        for _ in range(DELIVERY_LIMIT + 1):
            reader = await BrokerConnection.open(address, "reader")
            taken = await reader.take(queue_name("lethal", "telco", "training"))
            assert taken is not None
            await reader.close()  # before it is settled
        dead = None
        while dead is None:
            dead = await bank.take(dead_queue_name("lethal", "telco"))
        assert (dead.body, dead.death) == (b"poison", "delivery_limit")
        await bank.close()


async def test_a_temporary_topology_leaves_nothing_behind(node: RabbitNode) -> None:
    async with TemporaryTopology(node.url(), "brief", PARTIES):
        pass

    connection = await BrokerConnection.open(BrokerAddress.parse(node.url()), "test")
    with pytest.raises(LinkError, match="NOT_FOUND"):
        await connection.consume(queue_name("brief", "bank", "training"), ignore)
    await connection.close()


async def test_no_log_line_shows_a_password(
    node: RabbitNode, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with pytest.raises(LinkError):
        await RabbitMQLink(node.url("bank", "s3cret"), "demo", "bank").open(Inbox())

    ours = [record.getMessage() for record in caplog.records if record.name.startswith("fedmq")]
    assert not any("s3cret" in line for line in ours)


@pytest.mark.long
async def test_a_broker_that_restarts_has_forgotten_the_bulk_and_takes_more(
    node: RabbitNode,
) -> None:
    async with TemporaryTopology(node.url(), "forgetful", PARTIES):
        observer, inbox = Observer(), Inbox()
        bank = RabbitMQLink(node.url(), "forgetful", "bank", on_state=observer)
        telco = RabbitMQLink(node.url(), "forgetful", "telco")
        await bank.open(Inbox())
        await bank.publish("telco", "training", b"", message_id="kept")
        await bank.publish("telco", "bulk", b"", message_id="forgotten")
        await asyncio.to_thread(node.restart)
        await observer.sees(connected=False)
        await observer.sees(connected=True)
        await bank.publish("telco", "bulk", b"", message_id="taken")
        await telco.open(inbox)

        seen = {(await inbox.acked()).message_id, (await inbox.acked()).message_id}
        assert seen == {"kept", "taken"}
        await bank.close()
        await telco.close()


async def test_a_broker_without_a_queue_for_bulk_serves_all_other_lanes(
    node: RabbitNode, caplog: pytest.LogCaptureFixture
) -> None:
    """As one whose definitions are older than this lane."""
    async with TemporaryTopology(node.url(), "older", PARTIES):
        admin = await BrokerConnection.open(BrokerAddress.parse(node.url()), "admin")
        whole = topology("older", PARTIES)
        bulk = tuple(queue for queue in whole.queues if queue.name.endswith(".bulk"))
        await admin.delete(Topology(exchanges=(), queues=bulk, bindings=()))
        await admin.close()
        bank, telco = (RabbitMQLink(node.url(), "older", party) for party in ("bank", "telco"))
        inbox = Inbox()
        await bank.open(Inbox())
        await telco.open(inbox)

        assert not await bank.is_read("telco", "bulk")
        await bank.publish("telco", "training", b"", message_id="m1")
        assert (await inbox.acked()).message_id == "m1"
        assert "load the broker's definitions anew" in caplog.text
        assert bank.connected
        assert telco.connected
        await bank.close()
        await telco.close()
