"""The daemon's HTTP server: whom it lets in, and how its errors read."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator

import httpx
import pytest
from fastapi import APIRouter, Request
from pydantic import ValidationError

from fedmq.errors import ConfigError, DataError, FedmqError, PeerSilent
from fedmq.party.configuration.http import HttpSection
from fedmq.party.http.server import HttpServer

TOKEN = "a-token-of-sixteen-characters"


def router() -> APIRouter:
    made = APIRouter()

    @made.get("/health/live")
    async def live() -> dict[str, bool]:
        return {"live": True}

    @made.get("/secret")
    async def secret() -> str:
        return "for those with a token"

    @made.post("/echo")
    async def echo(request: Request) -> int:
        return len(await request.body())

    @made.get("/fail/{kind}")
    async def fail(kind: str) -> None:
        raise {"data": DataError, "silent": PeerSilent, "other": FedmqError}[kind]("no such row")

    return made


@pytest.fixture
async def guarded() -> AsyncIterator[httpx.AsyncClient]:
    section = HttpSection.model_validate({"port": 0, "tokens": [TOKEN]})
    server = HttpServer(section, [router()])
    await server.start()
    async with httpx.AsyncClient(base_url=server.url) as client:
        yield client
    await server.close()


async def test_a_token_opens_what_is_closed_without(guarded: httpx.AsyncClient) -> None:
    assert (await guarded.get("/secret")).status_code == 401
    wrong = {"Authorization": f"Bearer {TOKEN}x"}
    assert (await guarded.get("/secret", headers=wrong)).status_code == 401
    right = {"Authorization": f"Bearer {TOKEN}"}
    assert (await guarded.get("/secret", headers=right)).json() == "for those with a token"


@pytest.fixture
async def open_here() -> AsyncIterator[httpx.AsyncClient]:
    server = HttpServer(HttpSection.model_validate({"port": 0, "body_bytes": 2000}), [router()])
    await server.start()
    async with httpx.AsyncClient(base_url=server.url) as client:
        yield client
    await server.close()


@pytest.mark.parametrize("host", ["localhost:8470", "127.0.0.1", "[::1]:1"])
async def test_without_tokens_this_machine_is_called_by_its_own_name(
    open_here: httpx.AsyncClient, host: str
) -> None:
    assert (await open_here.get("/secret", headers={"Host": host})).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8470", "localhost.evil.example"])
async def test_without_tokens_a_name_that_was_pointed_here_is_refused(
    open_here: httpx.AsyncClient, host: str
) -> None:
    answer = await open_here.get("/secret", headers={"Host": host})
    assert answer.status_code == 421
    assert "http.tokens" in answer.json()["error"]


async def test_a_body_that_is_too_long_is_not_read_to_its_end(
    open_here: httpx.AsyncClient,
) -> None:
    assert (await open_here.post("/echo", content=b"x" * 2000)).json() == 2000
    answer = await open_here.post("/echo", content=b"x" * 2001)
    assert answer.status_code == 413
    assert answer.json() == {"error": "body: longer than 2000 bytes (http.body_bytes)"}


async def test_health_asks_for_no_token(guarded: httpx.AsyncClient) -> None:
    assert (await guarded.get("/health/live")).json() == {"live": True}


@pytest.mark.parametrize(
    ("kind", "status", "exit_code"), [("data", 422, 4), ("silent", 504, 6), ("other", 500, 1)]
)
async def test_an_error_reads_as_json(
    guarded: httpx.AsyncClient, kind: str, status: int, exit_code: int
) -> None:
    answer = await guarded.get(f"/fail/{kind}", headers={"Authorization": f"Bearer {TOKEN}"})
    assert answer.status_code == status
    assert answer.json() == {"error": "no such row", "exit_code": exit_code}


async def test_a_taken_port_is_a_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"cannot listen on 127.0.0.1:{port}"):
            await HttpServer(HttpSection(port=port), []).start()


async def test_a_server_that_never_started_can_be_closed() -> None:
    await HttpServer(HttpSection(), []).close()


@pytest.mark.parametrize("host", ["0.0.0.0", "192.0.2.1", "::", "bank.example"])
def test_beyond_loopback_a_guard_is_needed(host: str) -> None:
    with pytest.raises(ValidationError, match="can be reached from elsewhere"):
        HttpSection(host=host)


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"certificate": "a.pem"}, "belong together"),
        ({"client_ca": "ca.pem"}, "needs TLS"),
        ({"tokens": ["short"]}, "at least 16"),
    ],
)
def test_half_a_guard_is_none(values: dict[str, object], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        HttpSection.model_validate(values)
