"""The names, queues and permissions of a federation on RabbitMQ: data, no I/O.

::

    bank ──bank.telco.training──▶ fedmq.demo ──*.telco.training──▶ fedmq.demo.telco.training
                                   (topic)                                  │ rejected, or
                                                                            ▼ delivered too often
                                  fedmq.demo.dead ────telco────▶ fedmq.demo.telco.dead
                                   (direct)

A routing key starts with its sender's name. The broker holds every user to its own name by a topic
permission, so a recipient can read the sender off the key. Users may configure nothing: queues and
exchanges come from the definitions that the broker loads at boot.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fedmq.errors import ConfigError
from fedmq.transport.link import LANES, Lane

__all__ = [
    "Binding",
    "Exchange",
    "Queue",
    "Topology",
    "check_name",
    "dead_queue_name",
    "exactly",
    "exchange_name",
    "is_name",
    "policies",
    "queue_name",
    "routing_key",
    "topology",
]

NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
ADMIN = "admin"

# A message that kills its reader comes back this often before it is put aside. RabbitMQ 4 has 20
# as its default, 3.x has none and would loop for ever.
DELIVERY_LIMIT = 20

# What waits on the transient lane is a question that somebody still waits for, or nothing at all.
ONLINE_MILLISECONDS = 10_000
ONLINE_MESSAGES = 10_000

# Nobody may read a party's dead letters for months; the oldest go before the disk is full.
DEAD_QUEUE_BYTES = 256 * 1024 * 1024
DEAD_LETTER_MS = 30 * 24 * 3600 * 1000

# Looking at a dead letter and putting it back counts as a delivery, and RabbitMQ 4 would drop it
# after 20; 3.x has no way to say "without limit".
DEAD_DELIVERY_LIMIT = 1_000_000

# A party that is away for longer has been given up by its peers, whose seals are no longer good.
MESSAGE_MS = 7 * 24 * 3600 * 1000

# Publishing to a full queue fails, and the sender tries again later: nothing is dropped.
QUEUE_BYTES = 4 * 1024 * 1024 * 1024


@dataclass(frozen=True)
class Exchange:
    """A durable exchange."""

    name: str
    type: str


@dataclass(frozen=True)
class Queue:
    """A durable queue and its arguments."""

    name: str
    arguments: Mapping[str, str | int] = field(default_factory=dict)


@dataclass(frozen=True)
class Binding:
    """What an exchange sends to a queue."""

    exchange: str
    queue: str
    routing_key: str


@dataclass(frozen=True)
class Topology:
    """All that a federation needs to exist on its broker."""

    exchanges: tuple[Exchange, ...]
    queues: tuple[Queue, ...]
    bindings: tuple[Binding, ...]


def is_name(name: str) -> bool:
    """Whether ``name`` can name a party or a federation."""
    return NAME.fullmatch(name) is not None


def check_name(kind: str, name: str) -> str:
    """Return ``name``; raise `ConfigError` when it cannot name a party or federation (``kind``)."""
    if not is_name(name):
        raise ConfigError(
            f"{kind} {name!r}: a name starts with a letter and has up to 32 characters "
            "out of a-z, 0-9, _ and -"
        )
    return name


def exchange_name(federation: str) -> str:
    """The topic exchange through which the parties of a federation speak."""
    return f"fedmq.{federation}"


def dead_exchange_name(federation: str) -> str:
    """The direct exchange through which the broker moves dead letters."""
    return f"fedmq.{federation}.dead"


def queue_name(federation: str, party: str, lane: Lane) -> str:
    """The queue that a party reads on a lane."""
    return f"fedmq.{federation}.{party}.{lane}"


def dead_queue_name(federation: str, party: str) -> str:
    """The queue that holds what a party could not handle."""
    return f"fedmq.{federation}.{party}.dead"


def routing_key(sender: str, recipient: str, lane: Lane) -> str:
    """The routing key of a message."""
    return f"{sender}.{recipient}.{lane}"


def topology(federation: str, parties: Iterable[str]) -> Topology:
    """Exchanges, queues and bindings of a federation.

    Raises `ConfigError` for a name that is none, or that occurs twice.
    """
    check_name("federation", federation)
    names = [check_name("party", party) for party in parties]
    for party in names:
        if names.count(party) > 1:
            raise ConfigError(f"federation {federation!r}: party {party!r} is named twice")
    exchange, dead = exchange_name(federation), dead_exchange_name(federation)
    queues: list[Queue] = []
    bindings: list[Binding] = []
    for party in names:
        for lane in LANES:
            queue = queue_name(federation, party, lane)
            queues.append(Queue(queue, _arguments(party, lane, dead)))
            bindings.append(Binding(exchange, queue, f"*.{party}.{lane}"))
        aside = dead_queue_name(federation, party)
        queues.append(
            Queue(
                aside,
                {
                    "x-queue-type": "quorum",
                    "x-max-length-bytes": DEAD_QUEUE_BYTES,
                    "x-delivery-limit": DEAD_DELIVERY_LIMIT,
                },
            )
        )
        bindings.append(Binding(dead, aside, party))
    return Topology(
        exchanges=(Exchange(exchange, "topic"), Exchange(dead, "direct")),
        queues=tuple(queues),
        bindings=tuple(bindings),
    )


def _arguments(party: str, lane: Lane, dead: str) -> dict[str, str | int]:
    """Quorum queues keep what is said; the online lane keeps nothing but its name."""
    if lane == "online":
        return {
            "x-queue-type": "classic",
            "x-message-ttl": ONLINE_MILLISECONDS,
            "x-max-length": ONLINE_MESSAGES,
            "x-overflow": "drop-head",
        }
    return {
        "x-queue-type": "quorum",
        "x-delivery-limit": DELIVERY_LIMIT,
        "x-dead-letter-exchange": dead,
        "x-dead-letter-routing-key": party,
    }


def policies(federation: str, parties: Iterable[str], vhost: str = "/") -> list[dict[str, Any]]:
    """The limits of a federation's queues, which an operator can change while they are in use.

    Where a queue's own arguments say the same, the lower limit holds.
    """
    names = list(parties)

    def policy(name: str, queues: Iterable[str], definition: dict[str, Any]) -> dict[str, Any]:
        return {
            "vhost": vhost,
            "name": name,
            "pattern": exactly(*queues),
            "apply-to": "queues",
            "priority": 1,
            "definition": definition,
        }

    made = [
        policy(
            f"fedmq {federation} {party}",
            [queue_name(federation, party, lane) for lane in LANES if lane != "online"],
            {
                "delivery-limit": DELIVERY_LIMIT,
                "dead-letter-exchange": dead_exchange_name(federation),
                "dead-letter-routing-key": party,
                "message-ttl": MESSAGE_MS,
                "max-length-bytes": QUEUE_BYTES,
                "overflow": "reject-publish",
            },
        )
        for party in names
    ]
    dead = {"message-ttl": DEAD_LETTER_MS, "max-length-bytes": DEAD_QUEUE_BYTES}
    aside = [dead_queue_name(federation, party) for party in names]
    return [*made, policy(f"fedmq {federation} dead letters", aside, dead)]


def exactly(*names: str) -> str:
    """A permission's pattern that matches these names and no other."""
    return f"^({'|'.join(re.escape(name) for name in names)})$"
