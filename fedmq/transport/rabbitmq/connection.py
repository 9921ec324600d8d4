"""A party's AMQP connections through aio-pika.

Frequent messages go straight to aiormq, the library below aio-pika.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self

from aio_pika import Connection, DeliveryMode, Message
from aio_pika.abc import AbstractChannel, ConnectionParameter
from aio_pika.connection import make_url
from aio_pika.exceptions import (
    CONNECTION_EXCEPTIONS,
    AMQPConnectionError,
    ChannelInvalidStateError,
    ChannelNotFoundEntity,
    ProbableAuthenticationError,
    PublishError,
)
from aiormq import Channel, spec
from aiormq.abc import DeliveredMessage

from fedmq.errors import LinkError
from fedmq.transport.background_tasks import being_cancelled, end
from fedmq.transport.link import PriorityGate
from fedmq.transport.rabbitmq.address import (
    BrokerAddress,
    no_login,
    no_vhost,
    out_of_date,
    silent,
    unreached,
)
from fedmq.transport.rabbitmq.certificates import validity
from fedmq.transport.rabbitmq.topology import Topology

__all__ = [
    "BULK_BYTES",
    "BrokerConnection",
    "BulkWindow",
    "Received",
    "all_of",
    "check_in_reach",
    "link_errors",
]

CONTENT_TYPE = "application/msgpack"
PREFETCH = 64
TIMEOUT_SECONDS = 10.0

READ_AHEAD = 1 << 20
"""Bytes; a stream of asyncio's own 64 KiB stops reading, and starts again, at every full frame."""

SLOWEST = 32_000
"""Assumed minimum bytes per second of a link: a confirm waits for the bytes ahead of it."""

CLOSE_SECONDS = 3.0
HEARTBEAT_SECONDS = 10
WATCH_SECONDS = 3.0

_USES = ("publishing", "low latency")
"""Of the connections beside the one on which messages arrive: long messages leave on the first, so
that short ones, which leave on the second, never wait behind megabytes."""

REACH_SECONDS = 2.0
"""Limit of a TCP connection to the broker.

It reveals a network that drops packets long before the time-out for a busy broker.
"""

_REACH_TRIES = 8
"""TCP connections that begin within `REACH_SECONDS`: the kernel repeats the first packet of each
after a second, and then after two, too late for a network that is back."""

_SETTLE_SECONDS = 10.0

BULK_BYTES = 64 * 1024
"""Longer messages are bulk."""

_WINDOW_BYTES = 4 * 1024 * 1024
"""Most bytes in flight while the broker writes earlier messages.

A link of 5 Mbit/s takes 7 s for them, less than the limit of a confirm.
"""

_OUT_OF_DATE = ("certificate is not yet valid", "certificate has expired")
"""In the words of OpenSSL."""

_ALWAYS_MESSAGES = 2  # messages, however long they are


def _refusal(address: BrokerAddress, error: BaseException) -> str:
    """The reason why there is no connection, in one line for the operator."""
    if isinstance(error, ProbableAuthenticationError):
        return no_login(address)
    if isinstance(error, TimeoutError):
        return silent(address)
    if isinstance(error, AMQPConnectionError | OSError | asyncio.CancelledError):
        return unreached(address, str(error) or "the connection was lost")
    # After the login only the virtual host can refuse. The client library reports that as an
    # unexpected frame.
    return no_vhost(address)


async def _out_of_date(address: BrokerAddress, error: BaseException) -> str:
    """The dates of the broker's certificate and this machine's, if they are why it is refused.

    Only the dates of that certificate are used, so nothing rests on it.
    """
    if not any(words in str(error) for words in _OUT_OF_DATE):
        return ""
    unverified = ssl.create_default_context()
    unverified.check_hostname, unverified.verify_mode = False, ssl.CERT_NONE
    try:
        async with asyncio.timeout(REACH_SECONDS):
            _, writer = await asyncio.open_connection(
                address.host, address.port, ssl=unverified, server_hostname=address.host
            )
    except OSError:  # TimeoutError and SSLError among them
        return ""
    dates = validity(writer.get_extra_info("ssl_object").getpeercert(binary_form=True) or b"")
    writer.close()
    return out_of_date(address, *dates, datetime.now(UTC)) if dates else ""


async def check_in_reach(address: BrokerAddress) -> None:
    """Raise `LinkError` unless something listens at ``address``."""
    tries: set[asyncio.Task[None]] = set()
    try:
        for _ in range(_REACH_TRIES):
            tries.add(asyncio.create_task(_reach(address)))
            done, _ = await asyncio.wait(
                tries, timeout=REACH_SECONDS / _REACH_TRIES, return_when=asyncio.FIRST_COMPLETED
            )
            for ended in done:
                return ended.result()
        raise TimeoutError
    except OSError as error:  # TimeoutError among them
        raise LinkError(_refusal(address, error)) from None
    finally:
        await end(tries)
        await asyncio.gather(*tries, return_exceptions=True)  # or errors are logged as never read


async def _reach(address: BrokerAddress) -> None:
    _, writer = await asyncio.open_connection(address.host, address.port)
    writer.close()


async def all_of(steps: Iterable[Awaitable[None]]) -> None:
    """Take all ``steps`` at once; the first error, in their order, once all have ended.

    One after the other they would take as many ways to the broker and back, on slow links seconds.
    """
    for error in await asyncio.gather(*steps, return_exceptions=True):
        if error is not None:
            raise error


async def _close(connections: Iterable[Connection]) -> None:
    """Close ``connections`` within `CLOSE_SECONDS`, even if the broker does not respond."""
    with suppress(LinkError), link_errors("close"):
        async with asyncio.timeout(CLOSE_SECONDS):
            await asyncio.gather(*(connection.close() for connection in connections))


async def _below(channel: AbstractChannel) -> Channel:
    """The channel on which ``channel`` stands."""
    below = await channel.get_underlay_channel()
    assert isinstance(below, Channel)
    return below


class _Connection(Connection):
    """One that takes the ``limit`` of asyncio's streams, the bytes that are read ahead."""

    PARAMETERS = (
        *Connection.PARAMETERS,
        ConnectionParameter(name="limit", parser=int, is_kwarg=True),
    )


class BrokerConnection:
    """AMQP connections of one party: channels to publish, to post and to consume on.

    Each direction has its own channel, because a refusal ends its channel. Transient messages have
    another channel: a channel confirms either all messages or none. Long messages, and short and
    transient ones, may also leave on their own connections, ``publishing`` and ``low_latency``.
    Then a confirm does not wait behind incoming megabytes, nor a short message behind any. ``lost``
    resolves to the reason as soon as a connection or channel ends.
    """

    def __init__(
        self,
        address: BrokerAddress,
        connection: Connection,
        publishing: Connection | None = None,
        low_latency: Connection | None = None,
        *,
        priority_gate: PriorityGate | None = None,
    ) -> None:
        self.address = address
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        publishing, low_latency = publishing or connection, low_latency or connection
        self._connections = list(dict.fromkeys((connection, publishing, low_latency)))
        self._outgoing = publishing.channel(publisher_confirms=True, on_return_raises=True)
        self._short = low_latency.channel(publisher_confirms=True, on_return_raises=True)
        self._incoming = connection.channel(publisher_confirms=False)
        self._posting = low_latency.channel(publisher_confirms=False)
        self._transient = low_latency.channel(publisher_confirms=False)
        self._bulk = BulkWindow()
        self._priority_gate = priority_gate or PriorityGate()
        self._delivered = 0
        self._unsettled = 0
        self._queues: list[str] = []
        self._apart: list[AbstractChannel] = []

    @classmethod
    async def open(
        cls,
        address: BrokerAddress,
        name: str,
        ssl_context: ssl.SSLContext | None = None,
        *,
        apart: bool = False,
        priority_gate: PriorityGate | None = None,
    ) -> BrokerConnection:
        """Connect and open all channels; ``name`` is shown on the broker's management page.

        ``apart``: outgoing and transient messages have their own connections. Long messages wait
        for ``priority_gate``.

        Raises:
            LinkError: the broker cannot be reached or does not answer, or it refuses the user or
                the virtual host.
        """
        titles = (name, *(f"{name} {use}" for use in _USES if apart))
        connections = [
            _Connection(
                make_url(address.url, heartbeat=HEARTBEAT_SECONDS, name=title),
                ssl_context=ssl_context,
                limit=READ_AHEAD,
            )
            for title in titles
        ]
        try:
            await all_of(connection.connect(timeout=TIMEOUT_SECONDS) for connection in connections)
        except (*CONNECTION_EXCEPTIONS, asyncio.CancelledError) as error:
            await _close(connections)
            if being_cancelled():
                raise
            reason = await _out_of_date(address, error) or _refusal(address, error)
            raise LinkError(reason) from error
        opened = cls(address, *connections, priority_gate=priority_gate)
        try:
            with link_errors(f"broker {address}: cannot open a channel"):
                async with asyncio.timeout(TIMEOUT_SECONDS):
                    await opened._open_channels()
        except BaseException:
            await opened.close()
            raise
        return opened

    async def publish(
        self, exchange: str, key: str, body: bytes, message_id: str, *, persistent: bool = True
    ) -> bool:
        """Publish and await the confirm; False when no queue takes the message.

        Raises:
            LinkError: the broker refuses, or does not confirm in time.
        """
        properties = spec.Basic.Properties(
            content_type=CONTENT_TYPE,
            delivery_mode=DeliveryMode.PERSISTENT if persistent else DeliveryMode.NOT_PERSISTENT,
            message_id=message_id,
            timestamp=datetime.now(UTC),
        )
        with link_errors(f"broker {self.address} did not confirm message {message_id}"):
            channel = await _below(self._short if len(body) <= BULK_BYTES else self._outgoing)
            async with self._in_turn(len(body)):
                try:
                    # The next message is written behind this one without waiting for the socket.
                    await channel.basic_publish(
                        body,
                        exchange=exchange,
                        routing_key=key,
                        properties=properties,
                        mandatory=True,
                        timeout=TIMEOUT_SECONDS + self._bulk.under_way / SLOWEST,
                        wait=False,
                    )
                except PublishError:
                    return False
        return True

    async def post(
        self, exchange: str, key: str, body: bytes, message_id: str, expires: float
    ) -> None:
        """Publish without persistence, confirm or return; LinkError if that fails."""
        message = Message(
            body,
            content_type=CONTENT_TYPE,
            delivery_mode=DeliveryMode.NOT_PERSISTENT,
            message_id=message_id,
            expiration=expires,
        )
        with link_errors(f"broker {self.address} did not take message {message_id}"):
            target = await self._posting.get_exchange(exchange, ensure=False)
            await target.publish(message, key, mandatory=False, timeout=TIMEOUT_SECONDS)

    async def reply(self, queue: str, body: bytes, correlation_id: str) -> None:
        """Send JSON to ``queue``, the name of a queue or a direct reply-to address.

        Returns when the broker has taken it; a durable queue has stored it by then. An address
        without a reader is no failure.

        Raises:
            LinkError: the broker refuses, or does not confirm in time.
        """
        message = Message(
            body,
            content_type="application/json",
            correlation_id=correlation_id,
            delivery_mode=DeliveryMode.PERSISTENT,
        )
        with link_errors(f"broker {self.address} did not take an answer"):
            exchange = self._outgoing.default_exchange
            await exchange.publish(message, queue, mandatory=False, timeout=TIMEOUT_SECONDS)

    async def consume(
        self,
        name: str,
        on_message: Callable[[Received], Awaitable[None]],
        *,
        transient: bool = False,
        apart: bool = False,
    ) -> None:
        """Start a consumer; LinkError if the queue is missing or forbidden.

        With ``transient``, deliveries are acknowledged automatically and must not be settled.
        ``apart``: on its own channel, so a refusal ends nothing else.
        """

        async def receive(message: DeliveredMessage) -> None:
            self._delivered += 1
            self._unsettled += not transient
            await on_message(
                Received.of(message, settled=transient, on_settled=self._count_settled)
            )

        with link_errors(f"broker {self.address}: cannot read queue {name}"):
            channel = self._transient if transient else self._incoming
            if apart:
                channel = self._connections[0].channel(publisher_confirms=False)
                await channel.initialize(timeout=TIMEOUT_SECONDS)
                await channel.set_qos(prefetch_count=PREFETCH, timeout=TIMEOUT_SECONDS)
            await (await _below(channel)).basic_consume(
                name, receive, no_ack=transient, timeout=TIMEOUT_SECONDS
            )
            if apart:
                channel.close_callbacks.add(self._on_end)
                self._apart.append(channel)
        self._queues.append(name)

    async def take(self, name: str) -> Received | None:
        """The next message of a queue, None if it is empty; LinkError as for `consume`.

        An unsettled message returns to the queue when the connection closes.
        """
        with link_errors(f"broker {self.address}: cannot read queue {name}"):
            channel = await _below(self._incoming)
            message = await channel.basic_get(name, timeout=TIMEOUT_SECONDS)
        return None if isinstance(message.delivery, spec.Basic.GetEmpty) else Received.of(message)

    async def readers(self) -> list[int]:
        """How many consumers each consumed queue has, ours included; LinkError without an answer.

        This is a passive declare, which needs no right and creates nothing.
        """
        return [consumers for consumers, _ in await self._count()]

    async def is_read(self, queue: str) -> bool:
        """Whether ``queue`` exists and has a consumer; LinkError without an answer."""
        # The broker closes the channel when the queue does not exist.
        channel = self._connections[-1].channel(publisher_confirms=False)
        with link_errors(f"broker {self.address}: cannot see queue {queue}"):
            await channel.initialize(timeout=TIMEOUT_SECONDS)
            try:
                seen = await channel.declare_queue(queue, passive=True, timeout=TIMEOUT_SECONDS)
            except ChannelNotFoundEntity:
                return False
            await channel.close()
        return bool(seen.declaration_result.consumer_count)

    async def reach_broker(self) -> None:
        """Return once the broker has answered about a consumed queue; LinkError without that."""
        if not self._queues:
            raise LinkError(f"broker {self.address}: no queue is read yet")
        await self._count_of(self._queues[0])

    async def _count(self) -> list[tuple[int, int]]:
        """How many consumers each consumed queue has, and how many messages wait in it."""
        return [await self._count_of(queue) for queue in self._queues]

    async def _count_of(self, queue: str) -> tuple[int, int]:
        """The same of one queue.

        The query avoids the channel of long messages: on a slow link the answer would wait behind
        them.
        """
        with link_errors(f"broker {self.address}: cannot see queue {queue}"):
            seen = await self._posting.declare_queue(queue, passive=True, timeout=TIMEOUT_SECONDS)
        found = seen.declaration_result
        return found.consumer_count or 0, found.message_count or 0

    def _count_settled(self) -> None:
        self._unsettled -= 1

    async def ended(self) -> str:
        """Wait until this connection no longer serves, and return why.

        Heartbeats detect a dead broker. Only the queues' counts reveal a consumer that the broker
        cancelled or does not serve, so they are read every `WATCH_SECONDS`.
        """
        starved = 0  # how many counts in a row show messages that wait, though none is delivered
        while True:
            delivered = self._delivered
            await asyncio.wait([self.lost], timeout=WATCH_SECONDS)
            if self.lost.done():
                return self.lost.result()
            try:
                counts = await self._count_in_reach()
            except LinkError as error:
                return str(error)
            if any(consumers == 0 for consumers, _ in counts):
                return "the broker cancelled a consumer"
            idle = self._delivered == delivered and not self._unsettled
            starved = starved + 1 if idle and any(waiting for _, waiting in counts) else 0
            if starved == 2:
                return "messages wait, but the broker delivers none"

    async def _count_in_reach(self) -> list[tuple[int, int]]:
        """The counts; if they take long, LinkError unless the broker is reachable."""
        counting = asyncio.ensure_future(self._count())
        try:
            done, _ = await asyncio.wait([counting], timeout=REACH_SECONDS)
            if not done:
                await check_in_reach(self.address)
            return await counting
        finally:
            counting.cancel()

    async def declare(self, topology: Topology) -> None:
        """Create the missing parts of a topology; LinkError without the right to configure."""
        with link_errors(f"broker {self.address}: cannot declare a federation"):
            for exchange in topology.exchanges:
                await self._outgoing.declare_exchange(
                    exchange.name, exchange.type, durable=True, timeout=TIMEOUT_SECONDS
                )
            queues = {
                queue.name: await self._outgoing.declare_queue(
                    queue.name,
                    durable=True,
                    arguments=dict(queue.arguments),
                    timeout=TIMEOUT_SECONDS,
                )
                for queue in topology.queues
            }
            for binding in topology.bindings:
                await queues[binding.queue].bind(
                    binding.exchange, binding.routing_key, timeout=TIMEOUT_SECONDS
                )

    async def delete(self, topology: Topology) -> None:
        """Delete a topology with all messages in its queues; LinkError if the broker refuses."""
        with link_errors(f"broker {self.address}: cannot delete a federation"):
            for queue in topology.queues:
                await self._outgoing.queue_delete(queue.name, timeout=TIMEOUT_SECONDS)
            for exchange in topology.exchanges:
                await self._outgoing.exchange_delete(exchange.name, timeout=TIMEOUT_SECONDS)

    def give_up(self, reason: str) -> None:
        """Make `ended` return: another connection needs the unsettled messages of this one."""
        if not self.lost.done():
            self.lost.set_result(reason)

    async def close(self) -> None:
        """Disconnect within 3 seconds, even if the broker does not answer."""
        await _close(self._connections)

    @asynccontextmanager
    async def _in_turn(self, size: int) -> AsyncIterator[None]:
        """Context for publishing ``size`` bytes: long messages wait for scores and a window."""
        if size <= BULK_BYTES:
            yield
            return
        async with self._bulk.through(size):
            await self._priority_gate.wait()
            yield

    async def _open_channels(self) -> None:
        channels = self._outgoing, self._short, self._incoming, self._posting, self._transient
        await all_of(channel.initialize() for channel in channels)
        for channel in channels:
            channel.close_callbacks.add(self._on_end)
        for connection in self._connections:
            connection.close_callbacks.add(self._on_end)
        await self._incoming.set_qos(prefetch_count=PREFETCH)

    def _on_end(self, _sender: object, error: BaseException | None = None) -> None:
        self.give_up(str(error or "") or "the connection was closed")


@dataclass
class Received:
    """A message taken from a queue."""

    body: bytes
    message_id: str
    routing_key: str
    redelivered: bool
    death: str
    """The reason why the broker dead-lettered the message; empty otherwise."""
    sent: float | None
    """When its sender published it, in Unix seconds; None if that is unknown."""
    reply_to: str
    correlation_id: str
    _message: DeliveredMessage
    _settled: bool = False
    _on_settled: Callable[[], None] = lambda: None

    @classmethod
    def of(
        cls,
        message: DeliveredMessage,
        *,
        settled: bool = False,
        on_settled: Callable[[], None] = lambda: None,
    ) -> Self:
        """A message of the client library; ``on_settled`` is called once it is settled."""
        properties = message.header.properties
        headers = properties.headers or {}
        return cls(
            body=message.body,
            message_id=properties.message_id or "",
            routing_key=_first_routing_key(headers) or message.routing_key or "",
            redelivered=bool(message.redelivered),
            death=str(headers.get("x-first-death-reason", "")),
            sent=properties.timestamp.timestamp() if properties.timestamp else None,
            reply_to=properties.reply_to or "",
            correlation_id=properties.correlation_id or "",
            _message=message,
            _settled=settled,
            _on_settled=on_settled,
        )

    async def settle(self, *, accept: bool) -> bool:
        """Acknowledge the message, or reject it to the dead letters.

        Returns False if it was settled before, or if the connection is gone and the broker will
        redeliver the message.
        """
        if self._settled:
            return False
        # Before the first await: a second acknowledgement would end the channel.
        self._settled = True
        self._on_settled()
        channel, tag = self._message.channel, self._message.delivery_tag or 0
        try:
            with link_errors("settle"):
                async with asyncio.timeout(_SETTLE_SECONDS):
                    # Not awaited: the next message is handled while the socket drains.
                    if accept:
                        await channel.basic_ack(tag, wait=False)
                    else:
                        await channel.basic_reject(tag, requeue=False, wait=False)
        except LinkError:
            return False
        return True


def _first_routing_key(headers: Mapping[str, Any]) -> str | None:
    """The routing key under which a dead letter was published."""
    try:
        return str(headers["x-death"][-1]["routing-keys"][0])
    except (KeyError, IndexError, TypeError):
        return None


class BulkWindow:
    """Admits long messages in order: two at a time, or as many as total 4 MB."""

    def __init__(self) -> None:
        self._messages = 0
        self._bytes = 0
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def under_way(self) -> int:
        """Bytes admitted and not yet confirmed."""
        return self._bytes

    @asynccontextmanager
    async def through(self, size: int) -> AsyncIterator[None]:
        """Context for publishing ``size`` bytes."""
        await self._enter(size)
        try:
            yield
        finally:
            self._leave(size)

    async def _enter(self, size: int) -> None:
        if not self._waiting and self._fits(size):
            self._add(size)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave(size)  # it was let in just before
            else:
                self._waiting.remove((size, turn))
                self._let_in()
            raise

    def _leave(self, size: int) -> None:
        self._messages -= 1
        self._bytes -= size
        self._let_in()

    def _let_in(self) -> None:
        while self._waiting and self._fits(self._waiting[0][0]):
            size, turn = self._waiting.popleft()
            self._add(size)
            turn.set_result(None)

    def _fits(self, size: int) -> bool:
        return self._messages < _ALWAYS_MESSAGES or self._bytes + size <= _WINDOW_BYTES

    def _add(self, size: int) -> None:
        self._messages += 1
        self._bytes += size


@contextmanager
def link_errors(doing: str) -> Iterator[None]:
    """Turn exceptions of the client library into a `LinkError` that names the failed operation."""
    try:
        yield
    except TimeoutError as error:
        raise LinkError(f"{doing}: no answer in time") from error
    except asyncio.CancelledError as error:
        if being_cancelled():
            raise
        raise LinkError(f"{doing}: the connection was lost") from error
    except ChannelInvalidStateError as error:
        raise LinkError(f"{doing}: the connection was closed") from error
    except CONNECTION_EXCEPTIONS as error:
        raise LinkError(f"{doing}: {str(error) or type(error).__name__}") from error
    except Exception as error:
        # When a channel closes, aiormq raises a plain Exception from calls that are under way.
        if type(error) is not Exception:
            raise
        raise LinkError(f"{doing}: the connection was closed") from error
