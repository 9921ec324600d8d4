"""The broker's own administrator as the attacker: it learns nothing, and changes nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path
from random import Random

import pytest

from fedmq.errors import Aborted
from fedmq.messages.array import Array, Bitmap
from fedmq.messages.codec import decode
from fedmq.party.configuration.party import PartyFile
from fedmq.party.identity.sealer import Clear, Sealer
from fedmq.party.operations.broker import check_broker
from fedmq.protocol.machine import Machine
from fedmq.transport.rabbitmq.address import BrokerAddress
from fedmq.transport.rabbitmq.connection import BrokerConnection, Received
from fedmq.transport.rabbitmq.link import RabbitMQLink
from fedmq.transport.rabbitmq.topology import Binding, Queue, Topology, exchange_name, routing_key
from tests.how_often import each_seed
from tests.party.attacked import (
    PARTIES,
    TAMPERS,
    Attack,
    Forger,
    Recorder,
    Sitting,
    Tamper,
    Training,
    tampered,
)
from tests.party.sealed_parties import sealers
from tests.protocol.alignment.alignments import Own, machines
from tests.protocol.federation import small
from tests.rabbitmq_node import RabbitNode


@pytest.fixture(scope="module")
def undisturbed() -> tuple[list[Attack], str]:
    """What travels without seals, and the model."""
    recorder = Recorder()
    training = Training({party: Clear() for party in PARTIES})
    share = asyncio.run(training.run(recorder.links()))
    return recorder.recorded, share.dumps()


def secrets_in(recorded: list[Attack]) -> set[bytes]:
    """What messages without seals say: gradients, sums, directions, blinded ids, ids."""

    def pieces(value: object) -> Iterator[bytes]:
        if isinstance(value, Array | Bitmap):
            yield value.data
        elif isinstance(value, dict):
            for inner in value.values():
                yield from pieces(inner)
        elif isinstance(value, tuple):
            yield from (text.encode() for text in value if isinstance(text, str))

    bodies = (decode(message.body).body for message in recorded)
    found = (data for body in bodies for _, value in body for data in pieces(value))
    return {data[:64] for data in found if len(data) >= 14 and len(set(data[:64])) > 4}


async def recorded_by_the_broker(
    machines: Mapping[str, Machine], sealers: Mapping[str, Sealer] | None = None
) -> list[Attack]:
    recorder = Recorder(machines)
    clear = {party: Clear() for party in machines}
    await Sitting(sealers or clear, machines).run(recorder.links())
    return recorder.recorded


def alignment() -> dict[str, Machine]:
    ids = [f"customer-{number:06}" for number in range(120)]
    return machines({party: Own(ids[20 * at :]) for at, party in enumerate(PARTIES)})


def inference() -> dict[str, Machine]:
    federation = small(rows=120, counts=(2, 2, 1))
    shares = federation.train().results
    return federation.scoring(shares, [f"customer-{number:06}" for number in range(120)])


@pytest.mark.parametrize(("session", "fewest"), [(alignment, 6), (inference, 125)])
async def test_recorded_traffic_reveals_no_id_blinded_or_not_and_no_direction(
    session: Callable[[], dict[str, Machine]], fewest: int
) -> None:
    clear = await recorded_by_the_broker(session())
    wanted = secrets_in(clear)
    seen_in_the_clear = b"".join(message.body for message in clear)
    assert len(wanted) >= fewest
    assert all(secret in seen_in_the_clear for secret in wanted)

    again = session()
    sealed = await recorded_by_the_broker(again, sealers(again))

    seen = b"".join(message.body for message in sealed)
    assert not [secret for secret in wanted if secret in seen]
    assert b"customer-" not in seen


async def test_recorded_traffic_reveals_no_gradient_sum_or_direction(
    undisturbed: tuple[list[Attack], str],
) -> None:
    clear, model = undisturbed
    wanted = secrets_in(clear)
    seen_in_the_clear = b"".join(message.body for message in clear)
    assert b"stays-at-home" not in seen_in_the_clear  # the digests of the tables
    assert len(wanted) > 50
    assert all(secret in seen_in_the_clear for secret in wanted)

    recorder = Recorder()
    training = Training(sealers(PARTIES))
    share = await training.run(recorder.links())

    seen = b"".join(message.body for message in recorder.recorded)
    assert not [secret for secret in wanted if secret in seen]
    assert share.dumps() == model


@each_seed(8)
async def test_forgeries_are_refused_and_counted_and_the_model_is_the_same(
    seed: int, undisturbed: tuple[list[Attack], str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)  # refusals are logged, too
    forger = Forger(seed)
    training = Training(sealers(PARTIES))

    share = await training.run(
        forger.links(), before_close=lambda: training.refused == forger.forged
    )

    assert share.dumps() == undisturbed[1]
    assert forger.forged > 50


@pytest.mark.parametrize("tamper", TAMPERS, ids=lambda tamper: tamper.__name__)
async def test_each_kind_of_forgery_alone_is_refused_and_counted(
    tamper: Tamper, undisturbed: tuple[list[Attack], str]
) -> None:
    forger = Forger(1, tamper)
    training = Training(sealers(PARTIES))

    share = await training.run(
        forger.links(), before_close=lambda: training.refused == forger.forged
    )

    assert share.dumps() == undisturbed[1]
    assert forger.forged > 50


async def test_without_seals_the_same_forger_would_succeed() -> None:
    """The control: what the tests above hold against is a real danger."""
    training = Training({party: Clear() for party in PARTIES})
    with pytest.raises(Aborted):
        await training.run(Forger(0).links())


@pytest.fixture
async def admin(node: RabbitNode) -> AsyncIterator[BrokerConnection]:
    connection = await BrokerConnection.open(BrokerAddress.parse(node.url()), "admin")
    yield connection
    await connection.close()


async def test_a_training_on_rabbitmq_under_attack_ends_right(
    node: RabbitNode, admin: BrokerConnection, undisturbed: tuple[list[Attack], str]
) -> None:
    exchange = exchange_name("demo")
    tap = Queue("tap", {"x-queue-type": "quorum"})
    tapping = Topology((), (tap,), (Binding(exchange, "tap", "#"),))
    await admin.declare(tapping)
    recorded: list[Attack] = []
    forged = 0
    random = Random(5)

    async def tapped(message: Received) -> None:
        nonlocal forged
        await message.settle(accept=True)
        if message.message_id == "forged" or message.message_id.startswith("seals/"):
            return  # handshakes under attack have tests of their own: test_handshakes.py
        sender, recipient, _ = message.routing_key.split(".")
        recorded.append(Attack(sender, recipient, message.body))
        if random.random() < 0.5:
            attack = tampered(random, recorded)
            forged += 1
            key = routing_key(attack.sender, attack.recipient, "training")
            assert await admin.publish(exchange, key, attack.body, "forged")

    await admin.consume("tap", tapped)
    training = Training(sealers(PARTIES))
    links = {party: RabbitMQLink(node.url(party), "demo", party) for party in PARTIES}

    share = await training.run(links, before_close=lambda: training.refused == forged)
    await admin.delete(tapping)

    assert share.dumps() == undisturbed[1]
    assert forged > 20
    seen = b"".join(message.body for message in recorded)
    assert not [secret for secret in secrets_in(undisturbed[0]) if secret in seen]


async def test_a_broker_that_allows_too_much_is_found_out(node: RabbitNode, tmp_path: Path) -> None:
    """As the user ``admin`` everything that must be refused is allowed."""
    (tmp_path / "federation.toml").write_text(
        'name = "demo"\nactive = "bank"\npassive = ["telco", "retail"]\n'
    )
    (tmp_path / "party.toml").write_text(
        f'party = "telco"\nfederation = "federation.toml"\nbroker = "{node.url()}"\n'
        '[data]\npath = "data.csv"\nid = "id"\n'
    )
    findings = await check_broker(*PartyFile.read(tmp_path / "party.toml"))
    wrong = {finding.tried for finding in findings if not finding.right}
    assert {
        "read fedmq.demo.bank.dead",
        "publish under the name of bank",
        "write into the queue of retail past the exchange",
        "declare queues and exchanges",
    } <= wrong
    assert not any("log in" in tried for tried in wrong)
