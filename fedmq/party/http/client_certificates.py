"""Whose certificate did the caller show? Its common name, beside each request of a connection."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

from fastapi import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from fedmq.transport.rabbitmq.certificates import common_name

__all__ = ["certificate_name", "certified"]

_KEY = "fedmq.certificate"


def certificate_name(request: Request) -> str | None:
    """The common name in the caller's certificate, which TLS has verified; None without one."""
    name = request.scope.get(_KEY)
    return None if name is None else str(name)


def certified(protocol: type[Any]) -> type[Any]:
    """uvicorn's ``protocol``, whose requests carry the name in the connection's certificate."""

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
    """Hands requests on to ``app`` with the ``name`` of a certificate."""

    def __init__(self, app: ASGIApp, name: str) -> None:
        self._app = app
        self._name = name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app({**scope, _KEY: self._name}, receive, send)
