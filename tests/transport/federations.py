"""Two federations behind one face, so that one contract can be tested against both."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod

from fedmq.transport.backoff import Backoff
from fedmq.transport.link import Delivery, Link, LinkState, OnState
from fedmq.transport.memory import MemoryBroker, MemoryLink
from fedmq.transport.rabbitmq.address import BrokerAddress
from fedmq.transport.rabbitmq.connection import BrokerConnection, Received
from fedmq.transport.rabbitmq.link import RabbitMQLink
from fedmq.transport.rabbitmq.topology import dead_queue_name

PARTIES = ("bank", "telco", "retail")


class Inbox:
    """A handler that keeps deliveries for the test to look at, unacknowledged."""

    def __init__(self) -> None:
        self._arrived: asyncio.Queue[Delivery] = asyncio.Queue()

    async def __call__(self, delivery: Delivery) -> None:
        self._arrived.put_nowait(delivery)

    async def next(self) -> Delivery:
        """The next delivery; it is an error when none comes."""
        async with asyncio.timeout(60):
            return await self._arrived.get()

    async def acked(self) -> Delivery:
        delivery = await self.next()
        await delivery.ack()
        return delivery


class Observer:
    """Keeps the states of a link, and waits for one."""

    def __init__(self) -> None:
        self.states: list[LinkState] = []
        self._news: asyncio.Queue[LinkState] = asyncio.Queue()

    def __call__(self, state: LinkState) -> None:
        self.states.append(state)
        self._news.put_nowait(state)

    async def sees(self, *, connected: bool, reason: str = "") -> None:
        """Return at the next state of this kind; it is an error when none comes."""
        async with asyncio.timeout(90):
            while True:
                state = await self._news.get()
                if state.connected == connected and reason in state.reason:
                    return


class Federation(ABC):
    """Links to one federation of three parties, and a view of its dead letters."""

    def __init__(self) -> None:
        self._links: list[Link] = []

    def link(self, party: str, on_state: OnState | None = None) -> Link:
        link = self._make(party, on_state)
        self._links.append(link)
        return link

    async def opened(self, party: str) -> tuple[Link, Inbox]:
        link, inbox = self.link(party), Inbox()
        await link.open(inbox)
        return link, inbox

    async def close(self) -> None:
        for link in self._links:
            await link.close()

    @abstractmethod
    def _make(self, party: str, on_state: OnState | None) -> Link: ...

    @abstractmethod
    async def dead_letter(self, party: str) -> tuple[str, bytes]:
        """Message id and body of the party's only dead letter."""


class MemoryFederation(Federation):
    def __init__(self) -> None:
        super().__init__()
        self.broker = MemoryBroker()
        for party in PARTIES:
            self.broker.declare(party)

    def _make(self, party: str, on_state: OnState | None) -> Link:
        return MemoryLink(self.broker, party, on_state=on_state)

    async def dead_letter(self, party: str) -> tuple[str, bytes]:
        (letter,) = [dead for dead in self.broker.dead_letters if dead.recipient == party]
        return letter.message_id, letter.body


class RabbitFederation(Federation):
    def __init__(self, url: str, name: str) -> None:
        super().__init__()
        self.url = url
        self.name = name

    def _make(self, party: str, on_state: OnState | None) -> Link:
        return RabbitMQLink(
            self.url, self.name, party, on_state=on_state, backoff=Backoff(limit=1.0)
        )

    async def dead_letter(self, party: str) -> tuple[str, bytes]:
        letters: asyncio.Queue[Received] = asyncio.Queue()
        connection = await BrokerConnection.open(BrokerAddress.parse(self.url), "dead letters")
        try:
            await connection.consume(dead_queue_name(self.name, party), letters.put)
            async with asyncio.timeout(30):
                letter = await letters.get()
        finally:
            await connection.close()
        return letter.message_id, letter.body
