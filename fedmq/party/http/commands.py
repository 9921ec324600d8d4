"""What a daemon does for programs on other machines: ``POST /v1/commands``, as its socket does.

The answer is lines of JSON: what goes on, and last the result, or an error. A training belongs to
the daemon, and goes on where its caller hangs up.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse
from pydantic import SecretStr
from starlette.exceptions import HTTPException

from fedmq.transport.background_tasks import BackgroundTasks

__all__ = ["Answer", "commands_router"]

Answer = Callable[
    [bytes, Callable[[Mapping[str, Any]], Awaitable[None]], str, str], Awaitable[dict[str, Any]]
]
"""As `ControlServer.answer`."""

_TAKEN = (
    *("activate", "align", "cancel", "changes", "follow", "health", "overlap", "pause"),
    *("predict", "resume", "screen", "sessions", "status", "train"),
)
"""Begin, watch and end what the owner has allowed; none changes keys, policies or consent."""


def commands_router(operators: Mapping[str, SecretStr], answer: Answer) -> APIRouter:
    """The endpoint for the ``operators``, by name, with the token of each."""
    router = APIRouter(prefix="/v1", tags=["commands"])
    running = BackgroundTasks()

    @router.post("/commands", summary="Begin, watch and end sessions")
    async def commands(request: Request) -> StreamingResponse:
        who = _operator(operators, request.headers.get("authorization", ""))
        line = await request.body()
        _check(line)
        events: asyncio.Queue[Mapping[str, Any]] = asyncio.Queue()
        hung_up = asyncio.Event()

        async def tell(event: Mapping[str, Any]) -> None:
            if hung_up.is_set():
                raise ConnectionResetError
            events.put_nowait(event)

        async def run() -> None:
            with suppress(ConnectionError):  # as at the socket: what was begun goes on
                events.put_nowait(await answer(line, tell, who, "HTTP"))

        running.spawn(run(), name=f"command of {who}")
        return StreamingResponse(_lines(events, hung_up), media_type="application/x-ndjson")

    return router


async def _lines(
    events: asyncio.Queue[Mapping[str, Any]], hung_up: asyncio.Event
) -> AsyncIterator[bytes]:
    try:
        while True:
            event = await events.get()
            yield json.dumps(event).encode() + b"\n"
            if event["event"] in ("done", "error"):
                return
    finally:
        hung_up.set()


def _operator(operators: Mapping[str, SecretStr], shown: str) -> str:
    for name, token in operators.items():
        expected = f"Bearer {token.get_secret_value()}"
        if hmac.compare_digest(shown.encode("utf-8", "replace"), expected.encode()):
            return name
    raise HTTPException(403, "this takes a token of operators in [http] of the party's file")


def _check(line: bytes) -> None:
    try:
        asked = json.loads(line)["do"]
    except (ValueError, TypeError, KeyError):
        raise HTTPException(400, 'body: no request, such as {"do": "status"}') from None
    if asked not in _TAKEN:
        raise HTTPException(
            403, f"{str(asked)[:40]!r} is for the daemon's own machine; here: {', '.join(_TAKEN)}"
        )
