"""The exchanges, queues and names of a federation on RabbitMQ: data, no I/O.

::

    bank ──bank.telco.training──▶ fedmq.demo ──*.telco.training──▶ fedmq.demo.telco.training
                                   (topic)                                  │ rejected, or
                                                                            ▼ delivered too often
                                  fedmq.demo.dead ────telco────▶ fedmq.demo.telco.dead
                                   (direct)

Each lane has such a queue. Those of the lanes ``bulk`` and ``online`` have no dead letters.

A routing key starts with its sender's name. The broker holds every user to its own name by a topic
permission, so a recipient can read the sender off the key. Users may configure nothing: exchanges
and queues come from the `definitions` that the broker loads at boot.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from fedmq.errors import ConfigError
from fedmq.transport.link import LANES, Lane

__all__ = [
    "DEAD_QUEUE_BYTES",
    "DELIVERY_LIMIT",
    "Binding",
    "Exchange",
    "Queue",
    "Topology",
    "check_name",
    "dead_exchange_name",
    "dead_queue_name",
    "exchange_name",
    "is_name",
    "queue_name",
    "routing_key",
    "topology",
]

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")

DELIVERY_LIMIT = 20
"""Redeliveries of a message that crashes its reader, before it is dead-lettered.

RabbitMQ 4 defaults to 20; 3.x has no limit and would loop forever.
"""

DEAD_QUEUE_BYTES = 256 * 1024 * 1024

# Looking at a dead letter and putting it back counts as a delivery, and RabbitMQ 4 would drop it
# after 20; 3.x has no way to say "without limit".
_DEAD_DELIVERY_LIMIT = 1_000_000

# By then the sender has resent unacknowledged messages on another lane.
_BULK_MILLISECONDS = 600_000
_BULK_QUEUE_BYTES = 256 * 1024 * 1024

# A message on the lane online is of use while its caller waits for the answer.
_ONLINE_MILLISECONDS = 10_000
_ONLINE_MESSAGES = 10_000

_DEAD_ARGUMENTS: Mapping[str, str | int] = {
    "x-queue-type": "quorum",
    "x-max-length-bytes": DEAD_QUEUE_BYTES,
    "x-delivery-limit": _DEAD_DELIVERY_LIMIT,
}


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
    """The routing keys that an exchange sends to a queue."""

    exchange: str
    queue: str
    routing_key: str


@dataclass(frozen=True)
class Topology:
    """The exchanges, queues and bindings of a federation."""

    exchanges: tuple[Exchange, ...]
    queues: tuple[Queue, ...]
    bindings: tuple[Binding, ...]


def is_name(name: str) -> bool:
    """Whether ``name`` can name a party or a federation."""
    return _NAME.fullmatch(name) is not None


def check_name(kind: str, name: str) -> str:
    """Return ``name``; raise `ConfigError` when it cannot name a party or federation (``kind``)."""
    if not is_name(name):
        raise ConfigError(
            f"{kind} {name!r}: a name starts with a letter and has up to 32 characters "
            "out of a-z, 0-9, _ and -"
        )
    return name


def exchange_name(federation: str) -> str:
    """The topic exchange to which the parties of a federation publish."""
    return f"fedmq.{federation}"


def dead_exchange_name(federation: str) -> str:
    """The direct exchange through which the broker moves dead letters."""
    return f"fedmq.{federation}.dead"


def queue_name(federation: str, party: str, lane: Lane) -> str:
    """The queue that a party reads on a lane."""
    return f"fedmq.{federation}.{party}.{lane}"


def dead_queue_name(federation: str, party: str) -> str:
    """The queue of messages that a party could not handle."""
    return f"fedmq.{federation}.{party}.dead"


def routing_key(sender: str, recipient: str, lane: Lane) -> str:
    """The routing key of a message."""
    return f"{sender}.{recipient}.{lane}"


def topology(federation: str, parties: Iterable[str]) -> Topology:
    """Exchanges, queues and bindings of a federation.

    Raises:
        ConfigError: a name breaks the rules of `check_name`, or occurs twice.
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
        queue = dead_queue_name(federation, party)
        queues.append(Queue(queue, _DEAD_ARGUMENTS))
        bindings.append(Binding(dead, queue, party))
    return Topology(
        exchanges=(Exchange(exchange, "topic"), Exchange(dead, "direct")),
        queues=tuple(queues),
        bindings=tuple(bindings),
    )


def _arguments(party: str, lane: Lane, dead: str) -> dict[str, str | int]:
    """Quorum queues survive the loss of a node; lanes that keep nothing need no such queue."""
    if lane == "online":
        return {
            "x-queue-type": "classic",
            "x-message-ttl": _ONLINE_MILLISECONDS,
            "x-max-length": _ONLINE_MESSAGES,
            "x-overflow": "drop-head",
        }
    if lane == "bulk":
        return {
            "x-queue-type": "classic",
            "x-message-ttl": _BULK_MILLISECONDS,
            "x-max-length-bytes": _BULK_QUEUE_BYTES,
            "x-overflow": "reject-publish",
        }
    return {
        "x-queue-type": "quorum",
        "x-delivery-limit": DELIVERY_LIMIT,
        "x-dead-letter-exchange": dead,
        "x-dead-letter-routing-key": party,
    }
