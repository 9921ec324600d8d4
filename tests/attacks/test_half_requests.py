"""A stranger without a token opens connections and sends half a request on each."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
from fastapi import APIRouter, Request
from pydantic import SecretStr

from fedmq.cli.run import RepeatedWarnings
from fedmq.party.configuration.http import HttpSection
from fedmq.party.http.server import ConnectionLimits, HttpServer
from fedmq.transport.rabbitmq.certificates import Authority

TOKEN = "a-token-of-sixteen-characters"
HALF_A_HEAD = b"POST /echo HTTP/1.1\r\nHost: x\r\nX-a: "
HALF_A_BODY = (
    b"POST /echo HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + TOKEN.encode()
    + b"\r\nContent-Length: 100\r\n\r\nabc"
)  # fmt: skip

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def router() -> APIRouter:
    made = APIRouter()

    @made.post("/echo")
    async def echo(request: Request) -> int:
        return len(await request.body())

    return made


@pytest.fixture
async def server() -> AsyncIterator[HttpServer]:
    section = HttpSection.model_validate(
        {"port": 0, "tokens": [TOKEN], "connections": 20, "request_seconds": 0.5}
    )
    served = HttpServer(section, [router()])
    await served.start()
    yield served
    await served.close()


async def opened(server: HttpServer, sent: bytes) -> Connection:
    reader, writer = await asyncio.open_connection("127.0.0.1", int(server.url.rsplit(":", 1)[1]))
    writer.write(sent)
    await writer.drain()
    return reader, writer


async def was_closed(connection: Connection) -> bool:
    """Whether the server hangs up soon."""
    try:
        async with asyncio.timeout(3.0):
            return await connection[0].read() == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False
    finally:
        connection[1].close()


@pytest.mark.parametrize("sent", [b"", HALF_A_HEAD, HALF_A_BODY])
async def test_half_a_request_does_not_hold_a_connection(server: HttpServer, sent: bytes) -> None:
    assert await was_closed(await opened(server, sent))


async def test_a_byte_now_and_then_does_not_either(server: HttpServer) -> None:
    reader, writer = await opened(server, HALF_A_HEAD)

    async def drip() -> None:
        while True:
            writer.write(b"a")
            await asyncio.sleep(0.05)

    dripping = asyncio.create_task(drip())
    assert await was_closed((reader, writer))
    dripping.cancel()


async def test_who_asks_is_answered_while_strangers_hold_all_connections(
    server: HttpServer,
) -> None:
    held = [await opened(server, HALF_A_HEAD) for _ in range(60)]
    async with httpx.AsyncClient(base_url=server.url, timeout=2.0) as client:
        answer = await client.post(
            "/echo", content=b"abc", headers={"Authorization": f"Bearer {TOKEN}"}
        )
    assert answer.json() == 3
    for connection in held:
        assert await was_closed(connection)


async def test_a_tls_handshake_that_never_comes_holds_no_connection(tmp_path: Path) -> None:
    pem = Authority.create("test").server(["127.0.0.1"])
    (tmp_path / "certificate.pem").write_bytes(pem.certificate)
    (tmp_path / "key.pem").write_bytes(pem.key)
    section = HttpSection(
        port=0,
        tokens=(SecretStr(TOKEN),),
        request_seconds=0.5,
        certificate=tmp_path / "certificate.pem",
        key=tmp_path / "key.pem",
    )
    served = HttpServer(section, [router()])
    await served.start()
    try:
        assert await was_closed(await opened(served, b""))
        context = ssl.create_default_context(cadata=pem.certificate.decode())
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        async with httpx.AsyncClient(base_url=served.url, verify=context) as client:
            headers = {"Authorization": f"Bearer {TOKEN}"}
            assert (await client.post("/echo", content=b"abc", headers=headers)).json() == 3
    finally:
        await served.close()


async def test_requests_one_after_the_other_keep_their_connection(server: HttpServer) -> None:
    limits = httpx.Limits(max_connections=1)
    async with httpx.AsyncClient(base_url=server.url, limits=limits) as client:
        for _ in range(10):
            headers = {"Authorization": f"Bearer {TOKEN}"}
            assert (await client.post("/echo", content=b"abc", headers=headers)).json() == 3
            await asyncio.sleep(0.1)


class Connected:
    """A connection as far as its limits see it."""

    def __init__(self) -> None:
        self.transport = self
        self.aborted = False

    def abort(self) -> None:
        self.aborted = True


def test_what_is_being_answered_gives_no_place() -> None:
    limits = ConnectionLimits(2, 10.0, lambda: 0.0)
    answered, late = [Connected(), Connected()], Connected()
    for connection in answered:
        limits.opened(connection)
        limits.answers(connection)
    limits.opened(late)
    assert late.aborted
    assert not any(connection.aborted for connection in answered)
    assert limits.closed == 1


def test_a_warning_that_a_stranger_causes_is_written_at_a_rate() -> None:
    seconds = 0.0
    rate = RepeatedWarnings(lambda: seconds)

    def written(text: str, *values: object) -> str:
        record = logging.LogRecord("asyncio", logging.WARNING, "", 0, text, values, None)
        return record.getMessage() if rate.filter(record) else ""

    assert [bool(written("no files are left: %s", n)) for n in range(100_000)].count(True) == 20
    assert written("another warning")
    seconds = 61.0
    assert written("no files are left: %s", 1) == (
        "no files are left: 1 (and 99980 more like it before)"
    )
