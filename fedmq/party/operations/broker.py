"""How does a party reach its broker, does the broker refuse what it must, and how fast is it?

The check does no harm if the broker wrongly allows it: at most it sends a meaningless message.
"""

from __future__ import annotations

import secrets
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from statistics import median
from typing import Self

from fedmq.errors import ConfigError, LinkError
from fedmq.party.configuration.federation import Federation
from fedmq.party.configuration.party import PartyFile
from fedmq.privacy.plan import PIECE_BYTES
from fedmq.transport.link import LANES
from fedmq.transport.rabbitmq.address import BrokerAddress
from fedmq.transport.rabbitmq.certificates import common_name
from fedmq.transport.rabbitmq.connection import BrokerConnection, Received
from fedmq.transport.rabbitmq.topology import (
    Topology,
    dead_exchange_name,
    dead_queue_name,
    exchange_name,
    is_name,
    queue_name,
    routing_key,
    topology,
)

__all__ = [
    "NOBODY",
    "BrokerAccess",
    "BrokerLatency",
    "Finding",
    "check_broker",
    "latency_of_broker",
]

_REFUSED = "ACCESS_REFUSED"

NOBODY = "nobody"
"""No party has this name, so a message to it reaches no queue."""

_TIMED_MESSAGES = 20  # messages of every size, at most
_TIMED_SECONDS = 3.0
_LONG_ENOUGH = 0.3  # seconds: a longer message would say no more about a link
_SIZES = (16_000, 80_000, PIECE_BYTES)


@dataclass(frozen=True)
class BrokerAccess:
    """The URL with its login mechanism, and the TLS settings."""

    url: str
    ssl_context: ssl.SSLContext | None

    @classmethod
    def of(cls, config: PartyFile) -> Self:
        """Raises ConfigError: ``[tls]`` does not fit the URL, or a file of it cannot be used."""
        tls, url = config.tls, config.broker
        if tls is None:
            return cls(url, None)
        if not url.startswith("amqps://"):
            raise ConfigError("tls: the broker's URL is not encrypted; write it as amqps://")
        context = tls.context()
        if tls.certificate is not None:
            url += ("&" if "?" in url else "?") + "auth=external"
        return cls(url, context)

    def check_owner(self, config: PartyFile) -> None:
        """Raise ConfigError where the certificate is another party's, before the broker refuses."""
        if config.tls is None or config.tls.certificate is None:
            return
        owner = common_name(config.tls.certificate.read_bytes())
        # A broker may derive user names differently; then the name is no party's.
        if owner is not None and owner != config.party and is_name(owner):
            raise ConfigError(
                f"tls.certificate: {config.tls.certificate} is the certificate of {owner!r}, not "
                f"of {config.party}; put its own beside the party's file"
            )


@dataclass(frozen=True)
class Finding:
    """An attempt as ``party``, whether it must be ``allowed``, and whether it was."""

    party: str
    tried: str
    allowed: bool
    right: bool
    answer: str


async def check_broker(config: PartyFile, federation: Federation) -> list[Finding]:
    """Try everything as this party; LinkError without a connection."""
    check = _Check(config, federation)
    await check.rights()
    await check.logins()
    return check.findings


class _Check:
    def __init__(self, config: PartyFile, federation: Federation) -> None:
        self.findings: list[Finding] = []
        self._party = config.party
        self._federation = federation
        self._access = BrokerAccess.of(config)
        self._address = BrokerAddress.parse(self._access.url)

    async def rights(self) -> None:
        """Check the rights of the party's own user."""
        name, me = self._federation.name, self._party
        exchange = exchange_name(name)
        async with self._connected():
            pass
        nobody = routing_key(me, NOBODY, "training")
        await self._try("publish under its own name", True, _publish(exchange, nobody))
        for other in self._federation.parties:
            if other == me:
                continue
            queues = [queue_name(name, other, lane) for lane in LANES]
            for queue in (*queues, dead_queue_name(name, other)):
                await self._try(f"read {queue}", False, _consume(queue))
            await self._try(
                f"publish under the name of {other}",
                False,
                _publish(exchange, routing_key(other, NOBODY, "training")),
            )
            await self._try(
                f"write into the queue of {other} past the exchange",
                False,
                _publish("", queue_name(name, other, "training")),
            )
        await self._try("write dead letters", False, _publish(dead_exchange_name(name), NOBODY))
        layout = topology(name, self._federation.parties)
        await self._try("declare queues and exchanges", False, _declare(layout))

    async def logins(self) -> None:
        """Check which logins the broker accepts."""
        host, vhost = f"{self._address.host}:{self._address.port}", self._address.vhost
        path = "" if vhost == "/" else vhost
        wrong = f"{self._party}:{secrets.token_urlsafe(12)}@{host}/{path}"
        if self._access.ssl_context is None:
            await self._try_login("log in with a wrong password", f"amqp://{wrong}", None)
            await self._try_login("log in as guest", f"amqp://guest:guest@{host}/{path}", None)
            return
        stranger = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        # The broker must refuse this client. Whether the client trusts the broker does not matter.
        stranger.check_hostname = False
        stranger.verify_mode = ssl.CERT_NONE
        login = f"amqps://{wrong}"
        await self._try_login("log in with a password, without a certificate", login, stranger)
        await self._try_login("log in without encryption", f"amqp://{wrong}", None)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[BrokerConnection]:
        name = f"fedmq broker check {self._party}"
        connection = await BrokerConnection.open(self._address, name, self._access.ssl_context)
        try:
            yield connection
        finally:
            await connection.close()

    async def _try(
        self, tried: str, allowed: bool, act: Callable[[BrokerConnection], Awaitable[object]]
    ) -> None:
        # Each attempt has its own connection: a refusal ends the channel.
        async with self._connected() as connection:
            try:
                await act(connection)
            except LinkError as error:
                right = not allowed and _REFUSED in str(error)
                self._found(tried, allowed, right, str(error))
            else:
                self._found(tried, allowed, allowed, "done")

    async def _try_login(self, tried: str, url: str, context: ssl.SSLContext | None) -> None:
        try:
            connection = await BrokerConnection.open(
                BrokerAddress.parse(url), "fedmq broker check", context
            )
        except LinkError as error:
            self._found(tried, False, True, str(error))
        else:
            await connection.close()
            self._found(tried, False, False, "done")

    def _found(self, tried: str, allowed: bool, right: bool, answer: str) -> None:
        self.findings.append(Finding(self._party, tried, allowed, right, answer))


def _publish(exchange: str, key: str) -> Callable[[BrokerConnection], Awaitable[bool]]:
    return lambda connection: connection.publish(exchange, key, b"broker check", "broker check")


def _declare(layout: Topology) -> Callable[[BrokerConnection], Awaitable[None]]:
    return lambda connection: connection.declare(layout)


def _consume(queue: str) -> Callable[[BrokerConnection], Awaitable[None]]:
    async def ignore(_: Received) -> None:
        """Leave the message unacknowledged, so it returns to its queue."""

    return lambda connection: connection.consume(queue, ignore)


_NEAR = 0.005
"""Seconds that a broker beside its party takes for a message at most."""


@dataclass(frozen=True)
class BrokerLatency:
    """Seconds until the broker confirms a message, and the seconds more per byte of it.

    ``is_far``: it is the link that takes them, and not the broker's own work.
    """

    message: float
    byte: float
    is_far: bool = False


async def latency_of_broker(config: PartyFile, federation: Federation) -> BrokerLatency:
    """The median time of some messages without a recipient; LinkError without a connection.

    It takes three seconds and the time of two messages at most.
    """
    access = BrokerAccess.of(config)
    access.check_owner(config)
    address = BrokerAddress.parse(access.url)
    connection = await BrokerConnection.open(address, "fedmq estimate", access.ssl_context)
    exchange = exchange_name(federation.name)
    key = routing_key(config.party, NOBODY, "training")

    async def timed(size: int) -> float:
        begun = time.perf_counter()
        await connection.publish(exchange, key, bytes(size), "latency")
        return time.perf_counter() - begun

    begun = time.monotonic()
    try:
        empty = [await timed(0)]
        for size in _SIZES:
            full = [await timed(size)]
            if full[0] > _LONG_ENOUGH:
                break
        while len(full) < _TIMED_MESSAGES and time.monotonic() - begun < _TIMED_SECONDS:
            empty.append(await timed(0))
            full.append(await timed(size))
    finally:
        await connection.close()
    message = median(empty)
    byte = max(0.0, median(full) - message) / size
    if message <= _NEAR:
        return BrokerLatency(message, byte)
    # What reaches no queue comes back: its bytes have taken the link both ways.
    return BrokerLatency(message, byte / 2, is_far=True)
