"""How many connections may be open, and for how long without a whole request?"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

__all__ = ["ConnectionLimits", "limited"]

log = logging.getLogger(__name__)


class ConnectionLimits:
    """Closes connections whose request takes longer than ``seconds``, or which are too many.

    At ``most`` connections a new one takes the place of the one whose request has been awaited
    for longest. If all are being answered, the new one is closed. So whoever holds connections
    open takes places from others like him, not from those who ask.

    ``clock`` gives seconds.
    """

    def __init__(self, most: int, seconds: float, clock: Callable[[], float]) -> None:
        self.closed = 0
        """Connections that were closed for a limit."""
        self._most = most
        self.seconds = seconds
        self._clock = clock
        self._open: set[Any] = set()
        self._awaited: dict[Any, float] = {}
        """Since when a request is awaited, by connection, the longest first."""

    def opened(self, connection: Any) -> None:
        """A connection was made; its first request is awaited."""
        self._open.add(connection)
        if len(self._open) > self._most:
            # The new one is not in the line yet.
            self._close(next(iter(self._awaited), connection), "too many are open")
        if connection in self._open:
            self._awaited[connection] = self._clock()

    def awaits(self, connection: Any) -> None:
        """The next part of a request is awaited: its head, or its body."""
        if connection in self._open:
            self._awaited.pop(connection, None)
            self._awaited[connection] = self._clock()

    def answers(self, connection: Any) -> None:
        """The whole request is here."""
        self._awaited.pop(connection, None)

    def lost(self, connection: Any) -> None:
        """The connection has ended."""
        self._open.discard(connection)
        self._awaited.pop(connection, None)

    def sweep(self) -> None:
        """Close the connections that have been silent for too long."""
        last = self._clock() - self.seconds
        for connection, since in list(self._awaited.items()):
            if since > last:
                break
            self._close(connection, f"no whole request in {self.seconds:g} s")

    def _close(self, connection: Any, why: str) -> None:
        self.closed += 1
        self.lost(connection)
        log.warning("http: a connection is closed: %s", why)
        connection.transport.abort()


def limited(protocol: type[Any], limits: ConnectionLimits) -> type[asyncio.Protocol]:
    """uvicorn's ``protocol``, whichever of its parsers that is, within ``limits``.

    Bytes alone do not extend the time: a new part of the request has to begin.
    """

    class Limited(protocol):  # type: ignore[misc]  # a base that is known at run time only
        _part: object = None
        """The request whose body is awaited; None while a head is."""

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            limits.opened(self)

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            self._look()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._look()

        def connection_lost(self, error: Exception | None) -> None:
            limits.lost(self)
            super().connection_lost(error)

        def _look(self) -> None:
            request = self.cycle
            if request is None or request.response_complete:
                if self._part is not None:
                    self._part = None
                    limits.awaits(self)
            elif not request.more_body:
                self._part = request
                limits.answers(self)
            elif self._part is not request:
                self._part = request
                limits.awaits(self)

    return Limited
