"""The definitions of a federation, and the example that ships with the broker's files."""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from fedmq.errors import ConfigError
from fedmq.transport.link import PASSING
from fedmq.transport.rabbitmq.definitions import definitions, password_hash, policies
from fedmq.transport.rabbitmq.topology import dead_queue_name, queue_name

EXAMPLE = Path(__file__).parents[3] / "brokers" / "rabbitmq" / "definitions.json"


def rights(document: dict[str, Any], user: str) -> dict[str, str]:
    (found,) = [right for right in document["permissions"] if right["user"] == user]
    return found


def test_a_party_without_a_password_is_refused() -> None:
    with pytest.raises(ConfigError, match="'demo': party 'telco' has no broker password"):
        definitions("demo", ["bank", "telco"], {"bank": "secret"})


def test_a_party_named_like_the_administrator_is_refused() -> None:
    with pytest.raises(ConfigError, match="may not be named 'admin'"):
        definitions("demo", ["admin"], {"admin": "x"}, admin_password="y")


def test_every_queue_is_bound_durable_and_replicated() -> None:
    document = definitions("demo", ["bank", "telco"], {"bank": "b", "telco": "t"})

    names = [queue["name"] for queue in document["queues"]]
    assert sorted(names) == [
        "fedmq.demo.bank.bulk",
        "fedmq.demo.bank.dead",
        "fedmq.demo.bank.inference",
        "fedmq.demo.bank.online",
        "fedmq.demo.bank.training",
        "fedmq.demo.telco.bulk",
        "fedmq.demo.telco.dead",
        "fedmq.demo.telco.inference",
        "fedmq.demo.telco.online",
        "fedmq.demo.telco.training",
    ]
    assert sorted(binding["destination"] for binding in document["bindings"]) == sorted(names)
    assert all(queue["durable"] for queue in document["queues"])
    passing = tuple(f".{lane}" for lane in PASSING)
    kept = [queue for queue in document["queues"] if not queue["name"].endswith(passing)]
    assert {queue["arguments"]["x-queue-type"] for queue in kept} == {"quorum"}


def test_the_online_lane_keeps_nothing_for_long() -> None:
    document = definitions("demo", ["bank"], {"bank": "b"})

    [online] = [queue for queue in document["queues"] if queue["name"].endswith(".online")]
    assert online["arguments"]["x-queue-type"] == "classic"
    assert online["arguments"]["x-message-ttl"] <= 10_000
    assert "x-dead-letter-exchange" not in online["arguments"]


def test_the_bulk_lane_keeps_nothing_for_long_and_refuses_what_is_too_much() -> None:
    document = definitions("demo", ["bank"], {"bank": "b"})

    [bulk] = [queue for queue in document["queues"] if queue["name"].endswith(".bulk")]
    assert bulk["arguments"]["x-queue-type"] == "classic"
    assert bulk["arguments"]["x-message-ttl"] <= 600_000
    assert bulk["arguments"]["x-max-length-bytes"] <= 256 * 1024 * 1024
    assert bulk["arguments"]["x-overflow"] == "reject-publish"
    assert "x-dead-letter-exchange" not in bulk["arguments"]
    assert not any(re.search(made["pattern"], bulk["name"]) for made in policies("demo", ["bank"]))


def test_every_queue_that_keeps_messages_has_its_limits() -> None:
    limited = policies("demo", ["bank", "telco"])

    def limits(queue: str) -> dict[str, Any]:
        [found] = [made["definition"] for made in limited if re.search(made["pattern"], queue)]
        return dict(found)

    for party in ("bank", "telco"):
        for lane in ("training", "inference"):
            found = limits(queue_name("demo", party, lane))
            assert set(found) == {
                "delivery-limit",
                "dead-letter-exchange",
                "dead-letter-routing-key",
                "message-ttl",
                "max-length-bytes",
                "overflow",
            }
            assert found["dead-letter-routing-key"] == party
        assert set(limits(dead_queue_name("demo", party))) == {"message-ttl", "max-length-bytes"}


def test_a_party_reads_its_own_queues_only() -> None:
    document = definitions("demo", ["bank", "bank-2"], {"bank": "b", "bank-2": "c"})
    readable = {
        party: [
            queue["name"]
            for queue in document["queues"]
            if re.search(rights(document, party)["read"], queue["name"])
        ]
        for party in ("bank", "bank-2")
    }

    assert readable["bank"] == [
        "fedmq.demo.bank.training",
        "fedmq.demo.bank.bulk",
        "fedmq.demo.bank.inference",
        "fedmq.demo.bank.online",
        "fedmq.demo.bank.dead",
    ]
    assert not set(readable["bank"]) & set(readable["bank-2"])


def test_a_party_writes_to_its_federation_and_configures_nothing() -> None:
    document = definitions("demo", ["bank"], {"bank": "b"})
    bank = rights(document, "bank")

    assert re.search(bank["write"], "fedmq.demo")
    for other in ("", "fedmq.demo.dead", "fedmq.demo2", "xfedmq.demo", "fedmq-demo", "amq.topic"):
        assert not re.search(bank["write"], other)
    assert not re.search(bank["configure"], "anything")


def test_the_password_is_stored_as_a_salted_hash() -> None:
    document = definitions("demo", ["bank"], {"bank": "s3cret"})

    stored = b64decode(document["users"][0]["password_hash"])
    assert stored[4:] == hashlib.sha256(stored[:4] + b"s3cret").digest()
    assert "s3cret" not in json.dumps(document)


def test_equal_passwords_have_different_hashes() -> None:
    assert password_hash("same") != password_hash("same")


def test_the_hash_is_the_one_that_rabbitmq_documents() -> None:
    # https://www.rabbitmq.com/docs/passwords: user password "test12", salt 908DC60A
    expected = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"
    assert password_hash("test12", bytes.fromhex("908DC60A")) == expected


def test_the_example_definitions_are_those_of_its_three_parties() -> None:
    example = json.loads(EXAMPLE.read_text())
    parties = ["bank", "telco", "retail"]
    expected = definitions(
        "demo", parties, {party: f"{party}-example" for party in parties}, admin_password="x"
    )

    for user in example["users"]:
        salt = b64decode(user["password_hash"])[:4]
        assert user["password_hash"] == password_hash(f"{user['name']}-example", salt)
    assert [user["name"] for user in example.pop("users")] == [
        user["name"] for user in expected.pop("users")
    ]
    assert example == expected
