"""Somebody asks again and again on each connection, and reads no answer."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator

import httpx
import pytest
from fastapi import APIRouter, Response

from fedmq.party.configuration.http import HttpSection
from fedmq.party.http.server import ConnectionLimits, HttpServer

TOKEN = "a-token-of-sixteen-characters"
SECONDS = 0.2
LONG = 3_000_000


def router() -> APIRouter:
    made = APIRouter()

    @made.get("/long")
    async def long() -> Response:
        return Response(bytes(LONG))

    return made


@pytest.fixture
async def server() -> AsyncIterator[HttpServer]:
    section = HttpSection.model_validate(
        {"port": 0, "tokens": [TOKEN], "connections": 4, "request_seconds": SECONDS}
    )
    served = HttpServer(section, [router()])
    await served.start()
    yield served
    await served.close()


def asked(path: str, token: str = "") -> bytes:
    about = f"Authorization: Bearer {token}\r\n" if token else ""
    return f"GET {path} HTTP/1.1\r\nHost: x\r\n{about}\r\n".encode()


async def asking(server: HttpServer, sent: bytes) -> socket.socket:
    """A connection of a small window, on which all of ``sent`` is written and nothing read."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(made, ("127.0.0.1", int(server.url.rsplit(":", 1)[1])))
    await loop.sock_sendall(made, sent)
    return made


async def was_reset(made: socket.socket) -> bool:
    """Whether the server hangs up, though much is left to read."""
    loop = asyncio.get_running_loop()
    await asyncio.sleep(12 * SECONDS)
    read = 0
    try:
        async with asyncio.timeout(5):
            while found := await loop.sock_recv(made, 65536):
                read += len(found)
        return read < LONG  # not even the first answer is whole
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False
    finally:
        made.close()


async def test_answers_that_nobody_reads_hold_no_connection(server: HttpServer) -> None:
    assert await was_reset(await asking(server, asked("/long", TOKEN)))


async def test_neither_do_those_to_questions_that_wait_behind_each_other(
    server: HttpServer,
) -> None:
    assert await was_reset(await asking(server, asked("/long", TOKEN) * 5))


async def test_who_asks_is_answered_while_others_read_nothing(server: HttpServer) -> None:
    held = [await asking(server, asked("/long", TOKEN)) for _ in range(4)]
    await asyncio.sleep(SECONDS / 5)
    async with httpx.AsyncClient(base_url=server.url, timeout=2.0) as client:
        answer = await client.get("/long", headers={"Authorization": f"Bearer {TOKEN}"})
    assert len(answer.content) == LONG
    for made in held:
        made.close()


async def test_who_reads_slowly_gets_it_all(server: HttpServer) -> None:
    port = int(server.url.rsplit(":", 1)[1])
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=65536)
    writer.write(asked("/long", TOKEN))
    read = 0
    while read < LONG:
        found = await reader.read(65536)
        assert found
        read += len(found)
        await asyncio.sleep(SECONDS / 10)
    writer.close()


def test_the_connection_whose_answers_lie_for_longest_gives_way() -> None:
    class Connection:
        def __init__(self) -> None:
            self.aborted = False
            self.transport = self

        def get_write_buffer_size(self) -> int:
            return 100_000

        def abort(self) -> None:
            self.aborted = True

    limits = ConnectionLimits(2, 10.0, lambda: 0.0)
    first, second, third = Connection(), Connection(), Connection()
    for connection in (first, second):
        limits.opened(connection)
        limits.answers(connection)
    limits.unread(second)
    limits.opened(third)
    assert (first.aborted, second.aborted, third.aborted) == (False, True, False)
