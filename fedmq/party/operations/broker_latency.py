"""How fast the broker answers."""

from __future__ import annotations

import time
from dataclasses import dataclass
from statistics import median

from fedmq.party.configuration.federation import Federation
from fedmq.party.configuration.party import PartyFile
from fedmq.party.operations.broker_access import BrokerAccess
from fedmq.party.operations.broker_check import NOBODY
from fedmq.privacy.plan import PIECE_BYTES
from fedmq.transport.rabbitmq.address import BrokerAddress
from fedmq.transport.rabbitmq.connection import BrokerConnection
from fedmq.transport.rabbitmq.topology import exchange_name, routing_key

__all__ = ["BrokerLatency", "latency_of_broker"]

_TIMED = 20  # messages of every size


@dataclass(frozen=True)
class BrokerLatency:
    """Seconds until the broker confirms a message, and the seconds more per byte of it."""

    message: float
    byte: float


async def latency_of_broker(config: PartyFile, federation: Federation) -> BrokerLatency:
    """The median of some messages to nobody; LinkError without a connection."""
    access = BrokerAccess.of(config)
    access.check_owner(config)
    address = BrokerAddress.parse(access.url)
    connection = await BrokerConnection.open(address, "fedmq estimate", access.ssl_context)
    exchange = exchange_name(federation.name)
    key = routing_key(config.party, NOBODY, "training")
    times: dict[int, list[float]] = {0: [], PIECE_BYTES: []}
    try:
        for size in list(times) * _TIMED:
            begun = time.perf_counter()
            await connection.publish(exchange, key, bytes(size), "latency")
            times[size].append(time.perf_counter() - begun)
    finally:
        await connection.close()
    empty, full = (median(seconds) for seconds in times.values())
    return BrokerLatency(empty, max(0.0, full - empty) / PIECE_BYTES)
