"""Which callers does the HTTP server let in, and with how long a body?

Plain ASGI, so that a prediction costs nothing extra.
"""

from __future__ import annotations

import asyncio
import hmac
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fedmq.transport.rabbitmq.certificates import common_name

__all__ = ["BodyGuard", "HostGuard", "TokenGuard", "certificate_name", "certified", "is_stranger"]

_OPEN = ("/docs", "/openapi.json")
"""Answered without a token, as browsers send none. They show nothing of data, models or peers."""

_OPEN_BELOW = ("/health/", "/console/")
"""Health tells strangers only yes or no; the console asks people to sign in."""

_BEARER = b"Bearer "
_STRANGER = "fedmq.stranger"
_CERTIFICATE = "fedmq.certificate"


def is_stranger(request: Request) -> bool:
    """Whether the caller of an open path needs a token to learn more."""
    return bool(request.scope.get(_STRANGER, False))


class TokenGuard:
    """Admits callers with one of ``tokens``, and all others to the open paths.

    ``admits`` knows of further tokens.
    """

    def __init__(
        self,
        app: ASGIApp,
        tokens: Sequence[str],
        admits: Callable[[str], Awaitable[bool]] | None = None,
    ) -> None:
        self._app = app
        self._expected = [f"Bearer {token}".encode() for token in tokens]
        self._admits = admits

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        shown = _header(scope, b"authorization")
        known = any(hmac.compare_digest(shown, header) for header in self._expected)
        if not known and self._admits is not None and shown.startswith(_BEARER):
            known = await self._admits(shown.removeprefix(_BEARER).decode("latin-1"))
        if scope["type"] != "http" or known or path in _OPEN or path.startswith(_OPEN_BELOW):
            await self._app({**scope, _STRANGER: not known}, receive, send)
            return
        refusal = _refusal(401, "show a token: Authorization: Bearer TOKEN")
        refusal.headers["WWW-Authenticate"] = "Bearer"
        await refusal(scope, receive, send)


class HostGuard:
    """Admits callers that call this machine by its own name; for servers without tokens.

    A web page whose name points to this machine (DNS rebinding) calls it by the page's name.
    """

    def __init__(self, app: ASGIApp, *hosts: str) -> None:
        self._app = app
        self._own = {b"localhost", b"127.0.0.1", b"[::1]", *(host.encode() for host in hosts)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        host = _header(scope, b"host")
        name, _, port = host.rpartition(b":")
        if (name if port.isdigit() else host) in self._own:
            await self._app(scope, receive, send)
            return
        await _refusal(421, "Host: call this server as localhost, or set http.tokens")(
            scope, receive, send
        )


class BodyGuard:
    """Reads no body longer than ``limit`` bytes."""

    def __init__(self, app: ASGIApp, limit: int) -> None:
        self._app = app
        self._limit = limit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        read = 0

        async def counted() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > self._limit:
                raise HTTPException(413, f"body: longer than {self._limit} bytes (http.body_bytes)")
            return message

        await self._app(scope, counted, send)


def _header(scope: Scope, name: bytes) -> bytes:
    value: bytes = dict(scope.get("headers", ())).get(name, b"")
    return value


def _refusal(status: int, reason: str) -> JSONResponse:
    return JSONResponse({"error": reason}, status_code=status)


def certificate_name(request: Request) -> str | None:
    """The common name in the caller's TLS-verified certificate; None without one."""
    name = request.scope.get(_CERTIFICATE)
    return None if name is None else str(name)


def certified(protocol: type[Any]) -> type[Any]:
    """uvicorn's ``protocol``, with the name in the connection's certificate on each request."""

    class Certified(protocol):  # type: ignore[misc]  # a base that is known at run time only
        app: ASGIApp

        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            super().connection_made(transport)
            encryption = transport.get_extra_info("ssl_object")
            shown = None if encryption is None else encryption.getpeercert(binary_form=True)
            name = None if shown is None else common_name(ssl.DER_cert_to_PEM_cert(shown).encode())
            if name is not None:
                self.app = _Named(self.app, name)

    return Certified


class _Named:
    """Passes requests to ``app`` with the ``name`` of a certificate."""

    def __init__(self, app: ASGIApp, name: str) -> None:
        self._app = app
        self._name = name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app({**scope, _CERTIFICATE: self._name}, receive, send)
