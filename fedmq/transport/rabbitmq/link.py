"""The link to a federation on RabbitMQ: it keeps one connection up.

A simulation uses a temporary federation on a broker.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from random import Random

from fedmq.errors import LinkError, Unroutable
from fedmq.transport.background_tasks import BackgroundTasks
from fedmq.transport.backoff import Backoff
from fedmq.transport.link import (
    LANES,
    MAX_MESSAGE_BYTES,
    PASSING,
    Delivery,
    Lane,
    LaneWorkers,
    Link,
    OnDelivery,
    OnState,
)
from fedmq.transport.rabbitmq.address import BrokerAddress
from fedmq.transport.rabbitmq.connection import (
    BrokerConnection,
    Received,
    all_of,
    check_in_reach,
)
from fedmq.transport.rabbitmq.topology import (
    check_name,
    exchange_name,
    is_name,
    queue_name,
    routing_key,
    topology,
)

__all__ = ["RabbitMQLink", "TemporaryTopology"]

log = logging.getLogger(__name__)

_BACKOFF = Backoff(limit=0.75)
"""Callers wait for scores, so a restarted broker must be found within a second or two."""


class RabbitMQLink(Link):
    """A party's connection to a federation on RabbitMQ; see `Link`.

    One task supervises the connection: it waits until the connection ends, then connects again with
    back-off and jitter until that succeeds or the link is closed. Exchange and queues must exist
    (`topology`).

    Dead-lettering rejects the delivery: the broker then moves it to the party's dead queue, where
    the party's user may not publish. A rejection carries no reason, so the reason is logged with
    the message id, which the dead letter keeps. The letter is counted.
    """

    def __init__(
        self,
        url: str,
        federation: str,
        party: str,
        *,
        on_state: OnState | None = None,
        ssl_context: ssl.SSLContext | None = None,
        backoff: Backoff | None = None,
        wait: bool = False,
    ) -> None:
        """With ``wait``, `open` returns even if the broker cannot be reached yet.

        Raises:
            ConfigError: ``url`` is no AMQP URL, or the name of party or federation is wrong.
        """
        super().__init__(check_name("party", party), on_state)
        self.federation = check_name("federation", federation)
        self.address = BrokerAddress.parse(url)
        self._ssl_context = ssl_context
        self._backoff = backoff or _BACKOFF
        self._wait = wait
        self._connection: BrokerConnection | None = None
        self._lane_workers: LaneWorkers | None = None
        self._supervisor = BackgroundTasks()
        self._closing = BackgroundTasks()

    @property
    def connected(self) -> bool:
        return self._connection is not None and not self._connection.lost.done()

    async def open(self, on_delivery: OnDelivery) -> None:
        if self._lane_workers is not None:
            raise LinkError(f"{self.party}: the link is open already")
        workers = self._lane_workers = LaneWorkers(self.party, on_delivery)
        connection: BrokerConnection | None = None
        try:
            connection = await self._connect(workers, alone=True)
        except LinkError as error:
            if not self._wait:
                self._lane_workers = None
                await workers.close()
                raise
            log.warning("%s: %s; trying again", self.party, error)
            self._report(False, str(error))
        except BaseException:
            self._lane_workers = None
            await workers.close()
            raise
        self._supervisor.spawn(self._supervise(connection, workers), name=f"link {self.party}")

    async def publish(self, recipient: str, lane: Lane, body: bytes, *, message_id: str) -> None:
        if len(body) > MAX_MESSAGE_BYTES:
            raise self._oversized(recipient, body)
        connection = self._current()
        # A dot in the recipient's name would change the routing key's structure.
        if not is_name(recipient) or not await connection.publish(
            exchange_name(self.federation),
            routing_key(self.party, recipient, lane),
            body,
            message_id,
            persistent=lane not in PASSING,
        ):
            raise Unroutable(
                f"{self.party}: {recipient!r} has no {lane} queue in federation "
                f"{self.federation!r}; check the name, and the broker's definitions"
            )

    async def is_read(self, recipient: str, lane: Lane) -> bool:
        return await self._current().is_read(queue_name(self.federation, recipient, lane))

    async def reach_broker(self) -> None:
        await self._current().reach_broker()

    async def post(self, recipient: str, body: bytes, *, message_id: str, expires: float) -> None:
        if len(body) > MAX_MESSAGE_BYTES:
            raise self._oversized(recipient, body)
        connection = self._current()
        if not is_name(recipient):
            raise Unroutable(f"{self.party}: {recipient!r} is no party of {self.federation!r}")
        key = routing_key(self.party, recipient, "online")
        await connection.post(exchange_name(self.federation), key, body, message_id, expires)

    async def close(self) -> None:
        await self._supervisor.close()
        workers, self._lane_workers = self._lane_workers, None
        if workers is None:
            return
        await workers.close()
        connection, self._connection = self._connection, None
        if connection is not None:
            self._closing.spawn(connection.close())
        await asyncio.gather(*self._closing, return_exceptions=True)
        self._report(False, "closed")

    def _current(self) -> BrokerConnection:
        connection = self._connection
        if connection is None or connection.lost.done():
            raise LinkError(f"{self.party}: not connected to broker {self.address}; try again")
        return connection

    async def _connect(self, workers: LaneWorkers, *, alone: bool) -> BrokerConnection:
        """Connect and consume; with ``alone``, refuse to share the queues with another reader.

        After an outage the broker may keep our old connection for a while, so only the first
        connection insists.
        """
        name = f"fedmq {self.federation} {self.party}"
        connection = await BrokerConnection.open(
            self.address,
            name,
            self._ssl_context,
            apart=True,
            priority_gate=self.priority_gate,
        )
        # The party may answer a delivery before all lanes are consumed, so publishing comes first.
        self._connection = connection
        try:
            first, *others = LANES  # the first alone: it tells whether the federation is there
            await self._consume(connection, first, workers)
            await all_of(self._consume(connection, lane, workers) for lane in others)
            if alone and max(await connection.readers()) > 1:
                raise LinkError(
                    f"{self.party}: another connection already reads this party's queues on broker "
                    f"{self.address}; stop the other daemon of this party"
                )
        except BaseException:
            self._connection = None
            await connection.close()
            raise
        self._report(True, "connected")
        return connection

    async def _consume(
        self, connection: BrokerConnection, lane: Lane, workers: LaneWorkers
    ) -> None:
        try:
            await connection.consume(
                queue_name(self.federation, self.party, lane),
                partial(self._receive, lane, workers),
                transient=lane == "online",
                apart=lane == "bulk",
            )
        except LinkError as error:
            # Older definitions lack this lane's queue: bulk messages then arrive on other lanes.
            if lane != "bulk" or connection.lost.done():
                raise
            log.warning("%s: %s; load the broker's definitions anew", self.party, error)

    async def _supervise(self, connection: BrokerConnection | None, workers: LaneWorkers) -> None:
        if connection is None:
            connection = await self._reconnect(workers, alone=True)
        while True:
            reason = await connection.ended()
            self._connection = None
            workers.drop_waiting()
            log.warning("%s: lost broker %s: %s", self.party, self.address, reason)
            self._report(False, reason)
            # A broker that is gone answers no farewell: a new one must not wait for it.
            self._closing.spawn(connection.close())
            connection = await self._reconnect(workers)
            log.info("%s: back on broker %s", self.party, self.address)

    async def _reconnect(self, workers: LaneWorkers, *, alone: bool = False) -> BrokerConnection:
        for delay in self._backoff.delays(Random()):
            await asyncio.sleep(delay)
            try:
                # Faster than a connection, whose time-out allows for a busy broker.
                await check_in_reach(self.address)
                return await self._connect(workers, alone=alone)
            except Exception as error:  # only closing the link may end the attempts
                log.info("%s: %s", self.party, error)
                self._report(False, str(error))
        raise AssertionError("the delays have no end")

    async def _receive(self, lane: Lane, workers: LaneWorkers, message: Received) -> None:
        sender, _, _ = message.routing_key.partition(".")
        on_dead_letter = partial(self._note_refusal, lane, message.message_id, sender, message.body)
        settlement = _Settlement(message, on_dead_letter)
        workers.put(
            Delivery(
                body=message.body,
                message_id=message.message_id,
                sender=sender,
                lane=lane,
                redelivered=message.redelivered,
                ack=settlement.ack,
                dead_letter=settlement.dead_letter,
                sent=message.sent,
            )
        )


@dataclass(frozen=True)
class _Settlement:
    message: Received
    on_dead_letter: Callable[[str], None]

    async def ack(self) -> None:
        await self.message.settle(accept=True)

    async def dead_letter(self, reason: str) -> None:
        if await self.message.settle(accept=False):
            self.on_dead_letter(reason)


class TemporaryTopology:
    """Declares the topology of a federation on entry, and deletes it with its messages on exit.

    The user of ``url`` needs the right to configure, and all parties connect as this user. The
    queues of a lasting federation come from `definitions` instead.

    Raises:
        ConfigError: a wrong URL or name.
        LinkError: the broker refuses, on entry or exit.
    """

    def __init__(self, url: str, federation: str, parties: Iterable[str]) -> None:
        self._address = BrokerAddress.parse(url)
        self._name = f"fedmq {federation}"
        self._topology = topology(federation, parties)

    async def __aenter__(self) -> None:
        connection = await BrokerConnection.open(self._address, self._name)
        try:
            await connection.declare(self._topology)
        finally:
            await connection.close()

    async def __aexit__(self, *_: object) -> None:
        # The broker may have restarted meanwhile, so open a new connection.
        connection = await BrokerConnection.open(self._address, self._name)
        try:
            await connection.delete(self._topology)
        finally:
            await connection.close()
