"""A console over HTTP whose daemon is a table of commands, and a client that signs in."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx

from fedmq.party.configuration.http import HttpSection
from fedmq.party.configuration.policy import PolicySection
from fedmq.party.consent.audit_log import AuditLog
from fedmq.party.consent.person import Person
from fedmq.party.console.console import Console
from fedmq.party.http.identity_provider import IdentityProvider
from fedmq.party.http.server import HttpServer
from fedmq.party.services.service import PartyContext
from fedmq.party.sessions.sessions import OnProgress

__all__ = ["ANNA", "ServedConsole", "serve"]

STATUS: dict[str, Any] = {
    "broker": "connected",
    "connected": True,
    "sessions": [],
    "ended": [],
    "idle": [],
    "certificate_until": None,
    "sealed": True,
    "warnings": [],
    "store": "",
}


ANNA = Person("anna", behind="the daemon's user")
"""Whom `ServedConsole.sign_in` signs in."""


@dataclass
class ServedConsole:
    """What a test asks, and what the daemon was asked then."""

    console: Console
    client: httpx.AsyncClient
    audit_log: AuditLog
    asked: list[Mapping[str, Any]]

    async def address(self, *roles: str) -> str:
        """An address that signs in."""
        request = {"who": "anna", "roles": roles, "person": Person.proven(ANNA.behind)}
        opened = await self.console.invite(request, _unwatched)
        return str(opened["address"])

    async def sign_in(self, *roles: str) -> str:
        """Sign the client in; the token that its forms send."""
        answer = await self.client.get(await self.address(*roles), follow_redirects=True)
        assert answer.status_code == 200, answer.text
        return answer.text.partition('name="csrf" value="')[2].partition('"')[0]

    async def send(self, path: str, csrf: str, **fields: str) -> httpx.Response:
        """Send a form as a browser does from a page of the console."""
        return await self.client.post(
            f"/console{path}",
            data={"csrf": csrf, **fields},
            headers={"Origin": str(self.client.base_url).rstrip("/")},
        )

    def audited(self) -> list[str]:
        """What the audit log says was done."""
        return [entry["did"] for entry in self.audit_log.entries()]


@asynccontextmanager
async def serve(
    state: Path,
    answers: Mapping[str, Any] | None = None,
    is_active: bool = True,
    tls: ssl.SSLContext | None = None,
    policy: Mapping[str, Any] | None = None,
    **section: Any,
) -> AsyncIterator[ServedConsole]:
    """A console whose daemon answers commands by ``answers``, which may be errors."""
    answers = {"status": STATUS, "sessions": [], "cancel": {}, "inbox": [], **(answers or {})}
    asked: list[Mapping[str, Any]] = []
    audit_log = AuditLog(state)

    def command(name: str) -> Any:
        async def answer(request: Mapping[str, Any], _: OnProgress) -> Any:
            asked.append(request)
            if isinstance(answers[name], Exception):
                raise answers[name]
            return answers[name]

        return answer

    context = SimpleNamespace(
        party="bank",
        is_active=is_active,
        federation=SimpleNamespace(name="demo", parties=("bank", "telco")),
        config=SimpleNamespace(
            state=state,
            data=SimpleNamespace(path=Path("training.csv"), place="training.csv"),
            policy=PolicySection.model_validate(policy or {}),
        ),
        consent=SimpleNamespace(audit=SimpleNamespace(log=audit_log)),
    )
    settings = HttpSection.model_validate({"port": 0, "console": True, **section})
    provider = None if settings.openid is None else IdentityProvider(settings.openid)
    console = Console(
        settings,
        cast(PartyContext, context),
        {name: command(name) for name in answers},
        lambda: server.url,
        provider,
    )
    server = HttpServer(settings, [console.router])
    await server.start()
    try:
        async with httpx.AsyncClient(base_url=server.url, verify=tls or True) as client:
            yield ServedConsole(console, client, audit_log, asked)
    finally:
        await server.close()


async def _unwatched(_: Mapping[str, Any]) -> None:
    """No progress is shown."""
