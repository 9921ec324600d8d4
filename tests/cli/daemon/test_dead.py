"""``fedmq dead``: letters that a daemon refused, on a real node."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from fedmq.errors import MessageError
from fedmq.messages.codec import encode
from fedmq.messages.envelope import Envelope
from fedmq.messages.inference import InferenceOpen
from fedmq.party.configuration.federation import pin
from fedmq.party.configuration.party import PartyFile
from fedmq.party.identity import private_keys as private_keys
from fedmq.party.identity.private_keys import KeyRing
from fedmq.party.identity.sealer import EndToEnd, HandshakeSender
from fedmq.party.operations.control import request_daemon
from fedmq.transport.link import MAX_MESSAGE_BYTES, Delivery
from fedmq.transport.rabbitmq.address import BrokerAddress
from fedmq.transport.rabbitmq.connection import BrokerConnection
from fedmq.transport.rabbitmq.link import RabbitMQLink
from fedmq.transport.rabbitmq.topology import exchange_name, routing_key
from fedmq.transport.sealing.keys import PrivateKeys
from tests.forked_command import forks
from tests.party.daemons import Daemon
from tests.party.sealed_parties import envelope
from tests.rabbitmq_node import RabbitNode


def fedmq(*words: object, code: int = 0) -> Any:
    done = forks().run([*map(str, words), "--json"])
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout) if done.stdout else done.stderr


@pytest.fixture
def rings() -> dict[str, KeyRing]:
    return {party: KeyRing(party, PrivateKeys.generate()) for party in ("bank", "telco")}


@pytest.fixture
def telco(tmp_path: Path, node: RabbitNode, rings: dict[str, KeyRing]) -> Path:
    """The passive party's file; it has not pinned the key with which bank signs."""
    federation = tmp_path / "federation.toml"
    federation.write_text('name = "demo"\nactive = "bank"\npassive = ["telco"]\n')
    pin(federation, "bank", [PrivateKeys.generate().public])
    pin(federation, "telco", [rings["telco"].current.public])
    private_keys.write(tmp_path / "keys.json", rings["telco"])
    (tmp_path / "data.csv").write_text("id,x\na,1\n")
    party = tmp_path / "party.toml"
    party.write_text(
        f'party = "telco"\nfederation = "federation.toml"\nbroker = "{node.url("telco")}"\n'
        '[data]\npath = "data.csv"\nid = "id"\n'
    )
    return party


@contextmanager
def running(party: Path) -> Iterator[None]:
    """The daemon of a party, from when it is ready."""
    process = Daemon(party)
    try:
        process.wait_until_says("is ready")
        yield
    finally:
        process.discard()


@pytest.fixture
def daemon(telco: Path) -> Iterator[Path]:
    with running(telco):
        yield telco


async def posted(node: RabbitNode, *bodies: bytes) -> None:
    connection = await BrokerConnection.open(BrokerAddress.parse(node.url("bank")), "test")
    for number, body in enumerate(bodies):
        key = routing_key("bank", "telco", "training")
        assert await connection.publish(exchange_name("demo"), key, body, f"m{number}")
    await connection.close()


@asynccontextmanager
async def connected(node: RabbitNode, bank: EndToEnd) -> AsyncIterator[RabbitMQLink]:
    """The bank at its own link, once it and the daemon have agreed on keys."""
    link = RabbitMQLink(node.url("bank"), "demo", "bank")

    async def take(delivery: Delivery) -> None:
        with suppress(MessageError):
            bank.open(delivery.body)
        await delivery.ack()

    bank.connect_by(HandshakeSender(link).send)
    await link.open(take)
    try:
        await bank.ready(envelope().header, 20)
        yield link
    finally:
        await bank.close()
        await link.close()


async def reloaded(party: Path) -> None:
    config, _ = PartyFile.read(party)
    await asyncio.to_thread(request_daemon, config.state, {"do": "reload"})


async def listed(party: Path, count: int) -> list[dict[str, Any]]:
    for _ in range(20):
        found: list[dict[str, Any]] = fedmq("dead", "list", party)
        if len(found) == count:
            return found
        await asyncio.sleep(0.1)
    raise AssertionError(f"{len(found)} letters instead of {count}")


async def seen(party: Path, what: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """The status of a daemon, once it shows ``what``."""
    for _ in range(50):
        status: dict[str, Any] = fedmq("status", party)
        if what(status):
            return status
        await asyncio.sleep(0.1)
    raise AssertionError(status)


async def test_letters_are_listed_with_their_reasons_taken_again_and_dropped(
    daemon: Path, node: RabbitNode, rings: dict[str, KeyRing]
) -> None:
    pins = {party: (ring.current.public,) for party, ring in rings.items()}
    sealed = EndToEnd(rings["bank"], pins).offer("demo", "telco")
    # Twice, as a broker delivers again what it did not see settled: it is one letter.
    await posted(node, b"garbage", b"garbage", encode(envelope()), sealed)

    letters = await listed(daemon, 3)
    assert fedmq("status", daemon)["dead_letters"] == 3
    assert [letter["reason"].split(";")[0] for letter in letters] == [
        "7 bytes are not a fedmq message: unpack(b) received extra data.",
        "message 's1/1/bank/telco/1' is not sealed",
        "bank seals with a key that is not pinned here",
    ]
    assert [letter["sender"] for letter in letters] == ["bank"] * 3
    assert all(letter["at"] for letter in letters)
    # To look changes nothing.
    assert await listed(daemon, 3) == letters
    shown = fedmq("dead", "show", daemon, letters[2]["letter"])
    assert shown["header"]["kind"] == "seal offer"

    assert fedmq("dead", "drop", daemon, letters[0]["letter"]) == [{"letter": letters[0]["letter"]}]
    again = fedmq("dead", "requeue", daemon, letters[2]["letter"])
    assert not again[0]["taken"]
    assert "not pinned" in again[0]["reason"]
    assert len(await listed(daemon, 2)) == 2
    assert fedmq("status", daemon)["refused"] == {"MessageError": 2, "Untrusted": 3}

    assert "no dead letter beef" in fedmq("dead", "show", daemon, "beef", code=4)
    assert len(fedmq("dead", "drop", daemon, "--all")) == 2
    assert fedmq("dead", "list", daemon) == []


async def test_what_is_too_long_is_put_aside_unread(
    telco: Path, node: RabbitNode, rings: dict[str, KeyRing]
) -> None:
    with running(telco):
        await posted(node, bytes(MAX_MESSAGE_BYTES + 1))
        [letter] = await listed(telco, 1)
        assert letter["reason"].startswith(f"{MAX_MESSAGE_BYTES + 1} bytes are not a fedmq message")
        assert len(fedmq("dead", "drop", telco, "--all")) == 1


async def test_messages_of_sessions_that_do_not_run_are_dropped_and_counted(
    telco: Path, node: RabbitNode, rings: dict[str, KeyRing]
) -> None:
    pins = {party: (ring.current.public,) for party, ring in rings.items()}
    pin(telco.with_name("federation.toml"), "bank", pins["bank"])
    bank = EndToEnd(rings["bank"], pins)
    body = InferenceOpen(model="m", rows=1, id_pieces=0)
    opening = Envelope(envelope().header.model_copy(update={"kind": body.kind}), body)
    newer = Envelope(
        opening.header.model_copy(update={"attempt": 2, "id": "s1/2/bank/telco/1"}), body
    )
    with running(telco):
        async with connected(node, bank):
            await posted(node, bank.seal(envelope(session="unknown")))
        assert await seen(telco, lambda it: it["dropped"] == 1)
        await posted(node, bank.seal(newer))
        assert await seen(telco, lambda it: it["sessions"])
        await posted(node, bank.seal(opening))  # of an attempt before
        status = await seen(telco, lambda it: it["dropped"] == 2)
        assert [session["attempt"] for session in status["sessions"]] == [2]
        assert fedmq("dead", "list", telco) == []


async def test_what_a_restarted_daemon_can_read_is_taken_again(
    telco: Path, node: RabbitNode, rings: dict[str, KeyRing]
) -> None:
    """As after ``fedmq keys trust``: the letter was refused for want of the sender's key."""
    pins = {party: (ring.current.public,) for party, ring in rings.items()}
    letter = EndToEnd(rings["bank"], pins).offer("demo", "telco")

    for trusted in (False, True):
        if trusted:
            pin(telco.with_name("federation.toml"), "bank", pins["bank"])
        with running(telco):
            if not trusted:
                await posted(node, letter)
                await listed(telco, 1)
                continue
            [done] = fedmq("dead", "requeue", telco, "--all")
            assert done["taken"], done
            assert fedmq("dead", "list", telco) == []


async def test_a_letter_that_nobody_waits_for_any_more_stays_with_the_reason(
    telco: Path, node: RabbitNode, rings: dict[str, KeyRing]
) -> None:
    pins = {party: (ring.current.public,) for party, ring in rings.items()}
    federation = telco.with_name("federation.toml")
    pin(federation, "bank", pins["bank"])
    bank = EndToEnd(rings["bank"], pins)

    with running(telco):
        async with connected(node, bank):
            pin(federation, "bank", [PrivateKeys.generate().public])
            await reloaded(telco)
            await posted(node, bank.seal(envelope(session="s8")))
        [letter] = await listed(telco, 1)
        assert "not pinned here any more" in letter["reason"]
        pin(federation, "bank", pins["bank"])
        await reloaded(telco)
        [done] = fedmq("dead", "requeue", telco, "--all")
        assert not done["taken"]
        assert "session s8 does not run here" in done["reason"]
        assert len(fedmq("dead", "drop", telco, "--all")) == 1


async def test_a_recorded_session_opens_nothing_after_a_restart(
    telco: Path, node: RabbitNode, rings: dict[str, KeyRing]
) -> None:
    pins = {party: (ring.current.public,) for party, ring in rings.items()}
    pin(telco.with_name("federation.toml"), "bank", pins["bank"])
    body = InferenceOpen(model="m", rows=1, id_pieces=0)
    header = envelope().header.model_copy(update={"kind": body.kind})
    bank = EndToEnd(rings["bank"], pins)

    with running(telco):
        async with connected(node, bank):
            opening = bank.seal(Envelope(header, body))
            await posted(node, opening)
        status = await seen(telco, lambda it: it["sessions"])
        assert status["sessions"][0]["session"] == header.session
    with running(telco):
        await posted(node, opening)
        status = await seen(telco, lambda it: it["refused"])
        assert status["refused"] == {"Stale": 1}
        assert status["sessions"] == []
    assert [entry["event"] for entry in fedmq("audit-log", "list", telco)].count("asked") == 1
