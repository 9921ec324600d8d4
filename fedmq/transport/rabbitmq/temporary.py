"""A federation that lives on a broker only for a while."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType

from fedmq.transport.rabbitmq.address import BrokerAddress
from fedmq.transport.rabbitmq.connection import BrokerConnection
from fedmq.transport.rabbitmq.topology import topology

__all__ = ["TemporaryTopology"]


class TemporaryTopology:
    """Declares the topology of a federation on entry, and deletes it with its messages on exit.

    For a user with the right to configure, such as in a simulation on a broker of one's own: all
    its parties then connect under that one URL. Lasting federations come from `definitions`.

    Raises `ConfigError` for a wrong URL or name, `LinkError` when the broker refuses.
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
