"""The HTTP server of a daemon: uvicorn inside the daemon's own event loop.

It limits the number of open connections, and the time that each may lack a whole request.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import uvicorn
from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from fedmq.errors import ConfigError, FedmqError
from fedmq.party.configuration.http import HttpSection
from fedmq.party.http.access import BodyGuard, HostGuard, TokenGuard, certified
from fedmq.party.http.docs_page import docs_router

__all__ = ["ConnectionLimits", "HttpServer", "limited"]

log = logging.getLogger(__name__)

_CLOSE_SECONDS = 2
_UNREAD_TIMES = 6
"""An answer may lie unread for so many times as a request may take: the system tells of what a slow
caller reads in steps of a megabyte."""


class HttpServer:
    """Serves ``routers`` with the settings of ``section``.

    A factory function makes a router from the parts that its endpoints need; this class knows none
    of them. ``on_close`` ends answers that run on. ``admits`` says whether the identity provider
    issued a token for this server. A fedmq error becomes ``{"error": ..., "exit_code": ...}``, with
    the HTTP status of its class.
    """

    def __init__(
        self,
        section: HttpSection,
        routers: Sequence[APIRouter],
        on_close: Callable[[], Awaitable[None]] | None = None,
        admits: Callable[[str], Awaitable[bool]] | None = None,
    ) -> None:
        self._section = section
        self._admits = admits
        self._on_close = on_close
        self._app = FastAPI(title="fedmq", docs_url=None, redoc_url=None)
        self._app.add_exception_handler(FedmqError, _as_json)
        self._app.add_exception_handler(HTTPException, _http_error_as_json)
        for router in (*routers, docs_router(self._app.openapi)):
            self._app.include_router(router)
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self.url = ""
        """The address where it listens, once started."""

    async def start(self) -> None:
        """Listen; returns when requests are answered.

        Raises:
            ConfigError: the address is taken or not ours, or a certificate cannot be read.
        """
        section = self._section
        app: ASGIApp = BodyGuard(self._app, section.body_bytes)
        if section.asks_for_tokens:
            every = (*section.tokens, *section.operators.values())
            tokens = [token.get_secret_value() for token in every]
            app = TokenGuard(app, tokens, self._admits)
        elif section.client_ca is None:
            app = HostGuard(app, section.host, *_proxied(section))
        settings = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=_CLOSE_SECONDS,
            ssl_certfile=section.certificate,
            ssl_keyfile=section.key,
            ssl_ca_certs=None if section.client_ca is None else str(section.client_ca),
            ssl_cert_reqs=section.client_certificates,
        )
        try:
            settings.load()
        except OSError as error:  # ssl.SSLError among them
            raise ConfigError(f"http: certificate or key cannot be used: {error}") from None
        listener = _listener(section)
        scheme = "http" if section.certificate is None else "https"
        host = f"[{section.host}]" if ":" in section.host else section.host
        self.url = f"{scheme}://{host}:{listener.getsockname()[1]}"
        limits = ConnectionLimits(section.connections, section.request_seconds, time.monotonic)
        protocol: type[Any] = limited(settings.http_protocol_class, limits)
        settings.http_protocol_class = (
            protocol if section.client_ca is None else certified(protocol)
        )
        self._server = _Server(settings, limits)
        self._serving = asyncio.create_task(self._server.serve([listener]), name="http")
        await self._server.listening.wait()

    async def close(self) -> None:
        """Stop listening; running requests have two seconds to end."""
        server, serving = self._server, self._serving
        if self._on_close is not None:
            await self._on_close()
        if server is not None and serving is not None:
            server.should_exit = True
            await serving
        self._server = self._serving = None


class _Server(uvicorn.Server):
    """Signals belong to the daemon; ``listening`` is set when requests are answered."""

    def __init__(self, settings: uvicorn.Config, limits: ConnectionLimits) -> None:
        super().__init__(settings)
        self.listening = asyncio.Event()
        self._limits = limits

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start like uvicorn, for one listener; uvicorn allows a TLS handshake a minute."""
        assert sockets is not None
        await self.lifespan.startup()
        encrypted = self.config.ssl is not None
        self.servers = [
            await asyncio.get_running_loop().create_server(
                self._connection,
                sock=sockets[0],
                ssl=self.config.ssl,
                ssl_handshake_timeout=self._limits.seconds if encrypted else None,
            )
        ]
        self.started = True
        self.listening.set()

    def _connection(self) -> asyncio.Protocol:
        protocol: Any = self.config.http_protocol_class  # of h11 or httptools, which differ in type
        made: asyncio.Protocol = protocol(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return made

    async def on_tick(self, counter: int) -> bool:
        self._limits.sweep()
        return await super().on_tick(counter)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _proxied(section: HttpSection) -> Iterator[str]:
    """The name of a proxy in front of this server."""
    if section.console_behind_proxy is not None:
        host = urlsplit(section.console_behind_proxy).hostname
        yield host or ""


def _listener(section: HttpSection) -> socket.socket:
    family = socket.AF_INET6 if ":" in section.host else socket.AF_INET
    try:
        listener = socket.create_server((section.host, section.port), family=family)
    except OSError as error:
        raise ConfigError(
            f"http: cannot listen on {section.host}:{section.port}: {error.strerror}"
        ) from None
    # asyncio leaves Nagle's algorithm on for sockets of this kind: 40 ms per answer.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


async def _as_json(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, FedmqError)
    body = {"error": str(error), "exit_code": error.exit_code}
    return JSONResponse(body, status_code=error.http_status)


async def _http_error_as_json(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, error.status_code, headers=error.headers)


class ConnectionLimits:
    """Closes connections whose request takes longer than ``seconds``, or that are too many.

    So are those whose caller reads nothing of its answers for six times as long. At ``limit``
    connections, a new one replaces the connection whose request has been awaited longest, or the
    one whose answers lie unread for longest. If all are being answered, the new one is closed. So
    idle connections take places from other idle ones, not from callers that ask.

    ``clock`` gives seconds.
    """

    def __init__(self, limit: int, seconds: float, clock: Callable[[], float]) -> None:
        self.closed = 0
        """Connections that were closed for a limit."""
        self._limit = limit
        self.seconds = seconds
        self._clock = clock
        self._open: set[Any] = set()
        self._awaited: dict[Any, float] = {}
        """By connection, the start of the wait for a request, the longest first."""
        self._unread: dict[Any, tuple[float, int]] = {}
        """Connections with more than the system buffers: since when nothing was read, and bytes."""

    def opened(self, connection: Any) -> None:
        """Add a connection; its first request is awaited."""
        self._open.add(connection)
        if len(self._open) > self._limit:
            # The new connection is not in line yet.
            silent = (held for held in self._awaited if held not in self._unread)
            stuck = min(self._unread, key=lambda held: self._unread[held][0], default=connection)
            self._close(next(silent, stuck), "too many are open")
        if connection in self._open:
            self._awaited[connection] = self._clock()

    def awaits(self, connection: Any) -> None:
        """Await the next part of a request: its head, or its body."""
        if connection in self._open:
            self._awaited.pop(connection, None)
            self._awaited[connection] = self._clock()

    def answers(self, connection: Any) -> None:
        """Stop awaiting: the whole request is here."""
        self._awaited.pop(connection, None)

    def unread(self, connection: Any) -> None:
        """Await that the caller reads its answers."""
        if connection in self._open:
            self._unread[connection] = self._clock(), connection.transport.get_write_buffer_size()

    def read(self, connection: Any) -> None:
        """Stop awaiting: nearly all is read."""
        self._unread.pop(connection, None)
        if connection in self._awaited:
            self.awaits(connection)

    def lost(self, connection: Any) -> None:
        """Remove a connection that has ended."""
        self._open.discard(connection)
        self._awaited.pop(connection, None)
        self._unread.pop(connection, None)

    def sweep(self) -> None:
        """Close the connections that were silent for too long."""
        last = self._clock() - self.seconds
        for connection, since in list(self._awaited.items()):
            if since > last:
                break
            if connection not in self._unread:  # else its next request follows when it has read
                self._close(connection, f"no whole request in {self.seconds:g} s")
        for connection, (since, before) in list(self._unread.items()):
            left = connection.transport.get_write_buffer_size()
            if left < before:
                self._unread[connection] = self._clock(), left
            elif since <= self._clock() - _UNREAD_TIMES * self.seconds:
                seconds = _UNREAD_TIMES * self.seconds
                self._close(connection, f"its answers are not read for {seconds:g} s")

    def _close(self, connection: Any, why: str) -> None:
        self.closed += 1
        self.lost(connection)
        log.warning("http: a connection is closed: %s", why)
        connection.transport.abort()


def limited(protocol: type[Any], limits: ConnectionLimits) -> type[asyncio.Protocol]:
    """uvicorn's ``protocol``, with any of its parsers, within ``limits``.

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

        def pause_writing(self) -> None:
            super().pause_writing()
            limits.unread(self)

        def resume_writing(self) -> None:
            limits.read(self)
            super().resume_writing()

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
