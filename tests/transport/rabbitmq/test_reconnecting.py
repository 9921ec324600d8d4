"""How soon a link logs in again once its network, or its broker, is back."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any, Literal
from unittest.mock import Mock

import pytest

from fedmq.transport.rabbitmq.link import RabbitMQLink
from tests.transport.federations import Inbox
from tests.virtual_clock import in_virtual_time


class Network:
    """Between a link and its broker; it is out until ``back``."""

    def __init__(self, broken: Literal["swallows packets", "refuses"]) -> None:
        self.back = 0.0
        self._broken = broken

    @property
    def is_out(self) -> bool:
        return asyncio.get_running_loop().time() < self.back

    async def open_connection(self, *_: Any) -> tuple[None, Mock]:
        for wait in (1.0, 2.0, 4.0, 8.0):  # between the first packets, as kernels send them
            if not self.is_out:
                return None, Mock()
            if self._broken == "refuses":
                raise ConnectionRefusedError("Connection refused")
            await asyncio.sleep(wait)
        raise TimeoutError


class Connected:
    """Stands for a login at the broker."""

    def __init__(self) -> None:
        self.lost = asyncio.get_running_loop().create_future()

    async def ended(self) -> str:
        return str(await self.lost)

    async def close(self) -> None:
        await asyncio.sleep(3.0)  # in vain: a network that is out carries no farewell


@pytest.mark.parametrize("broken", ["swallows packets", "refuses"])
def test_a_link_logs_in_within_a_second_of_the_networks_return(
    broken: Literal["swallows packets", "refuses"], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        clock = asyncio.get_running_loop().time
        network, logins = Network(broken), asyncio.Queue[Connected]()
        monkeypatch.setattr(asyncio, "open_connection", network.open_connection)

        async def log_in(*_: Any, **__: Any) -> Connected:
            connected = Connected()
            logins.put_nowait(connected)
            return connected

        monkeypatch.setattr(RabbitMQLink, "_connect", log_in)
        link = RabbitMQLink("amqp://bank@broker.example/", "demo", "bank")
        await link.open(Inbox())
        for tenths in itertools.chain(range(1, 60), range(100, 400, 7)):
            connected = await logins.get()
            network.back = clock() + tenths / 10
            connected.lost.set_result("the network is out")
            logins.put_nowait(await logins.get())
            assert network.back <= clock() <= network.back + 1.001
        await link.close()

    in_virtual_time(scenario())
