"""A federation that exists on a broker for a while only, such as for a simulation."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType

from fedmq.transport.rabbitmq.address import BrokerAddress
from fedmq.transport.rabbitmq.connection import BrokerConnection
from fedmq.transport.rabbitmq.topology import topology

__all__ = ["TemporaryTopology"]


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

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # The broker may have restarted in between, so the connection is a new one.
        connection = await BrokerConnection.open(self._address, self._name)
        try:
            await connection.delete(self._topology)
        finally:
            await connection.close()
