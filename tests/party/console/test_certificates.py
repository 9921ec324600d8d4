"""Where the server asks for certificates, whom its owner names is signed in by one."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

from fedmq.transport.rabbitmq.certificates import Authority
from tests.party.console.served_console import serve


@pytest.fixture
def authority() -> Authority:
    return Authority.create("people of the bank")


def section(authority: Authority, folder: Path) -> dict[str, Any]:
    server = authority.server(["127.0.0.1"])
    (folder / "server.pem").write_bytes(server.certificate)
    (folder / "server.key").write_bytes(server.key)
    (folder / "people.pem").write_bytes(authority.pem.certificate)
    return {
        "certificate": folder / "server.pem",
        "key": folder / "server.key",
        "client_ca": folder / "people.pem",
        "console_certificates": {"anna": ["operator"]},
    }


def shows(authority: Authority, name: str, folder: Path) -> ssl.SSLContext:
    """TLS of somebody whose certificate says ``name``."""
    own = authority.client(name)
    (folder / "own.pem").write_bytes(own.certificate + own.key)
    context = ssl.create_default_context(cafile=str(folder / "people.pem"))
    context.load_cert_chain(folder / "own.pem")
    return context


async def test_whom_the_owner_names_needs_no_token(authority: Authority, tmp_path: Path) -> None:
    settings = section(authority, tmp_path)
    tls = shows(authority, "anna", tmp_path)
    async with serve(tmp_path / "state", tls=tls, **settings) as served:
        page = await served.client.get("/console/now", follow_redirects=True)
        assert page.status_code == 200
        assert "anna" in page.text
        csrf = page.text.partition('name="csrf" value="')[2].partition('"')[0]
        await served.send("/now/12ab/cancel", csrf)
        assert served.audited() == ["sign in", "cancel"]


async def test_whom_the_owner_does_not_name_needs_one(authority: Authority, tmp_path: Path) -> None:
    settings = section(authority, tmp_path)
    tls = shows(authority, "eve", tmp_path)
    async with serve(tmp_path / "state", tls=tls, **settings) as served:
        assert (await served.client.get("/console/now")).status_code == 401
        await served.sign_in("viewer")
        assert (await served.client.get("/console/now")).status_code == 200


async def test_no_header_stands_for_a_certificate(tmp_path: Path) -> None:
    async with serve(tmp_path) as served:
        for name in ("fedmq.certificate", "X-Client-Cert", "X-SSL-Client-CN", "X-Forwarded-For"):
            answer = await served.client.get("/console/now", headers={name: "anna"})
            assert answer.status_code == 401
