"""How the parts of the console are put together."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response

from fedmq.errors import ConfigError
from fedmq.party.configuration.http import ConsoleRole, HttpSection
from fedmq.party.consent.person import Person
from fedmq.party.console.live import Live
from fedmq.party.console.page_request import Changes, OwnerActions, Rendering, Route, StaticFiles
from fedmq.party.console.pages import data, inbox, models, now, people, records, score
from fedmq.party.console.request_guard import RequestGuard
from fedmq.party.console.sign_in import TOKEN_SECONDS, Grant, OneTimeTokens, SignIns
from fedmq.party.services.service import Command, PartyContext, person_of
from fedmq.party.sessions.sessions import OnProgress

if TYPE_CHECKING:
    from fedmq.party.console.company_sign_in import CompanySignIn
    from fedmq.party.http.identity_provider import IdentityProvider

__all__ = ["Console"]

ROUTES: tuple[Route, ...] = (
    *now.ROUTES,
    *inbox.ROUTES,
    *models.ROUTES,
    *data.ROUTES,
    *people.ROUTES,
    *records.ROUTES,
    *score.ROUTES,
)

_ROLES = get_args(ConsoleRole)
_LONGEST_NAME = 64


class Console:
    """The console of the party whose ``context`` this is.

    ``commands`` are the owner's; ``url`` says where the HTTP server listens, once it does.
    ``provider`` is the company's identity provider, if people sign in there.
    """

    def __init__(
        self,
        section: HttpSection,
        context: PartyContext,
        commands: Mapping[str, Command],
        url: Callable[[], str],
        provider: IdentityProvider | None = None,
    ) -> None:
        self._section = section
        self._url = url
        self._tokens = OneTimeTokens(time.monotonic)
        self._static_files = StaticFiles()
        rendering = Rendering(context, self._static_files)
        actions = OwnerActions(context.party, commands, context.consent.audit.log)
        self._streams = {
            "now": Live(partial(now.parts, actions, rendering)),
            "inbox": Live(partial(inbox.parts, actions)),
        }
        self._guard = RequestGuard(
            section,
            context,
            actions,
            rendering,
            self._streams,
            self._tokens,
            SignIns(time.monotonic),
            self._company_sign_in(provider),
        )

    @property
    def router(self) -> APIRouter:
        """All addresses of the console."""
        guard = self._guard
        router = APIRouter()
        for route in (*ROUTES, Changes("/sign-out", guard.sign_out)):
            method = "POST" if isinstance(route, Changes) else "GET"
            router.add_route(
                f"/console{route.path}",
                guard.endpoint(route),
                methods=[method],
                include_in_schema=False,
            )
        for path, answer in (
            ("", _to_now),
            ("/sign-in", guard.sign_in),
            ("/openid", guard.leave),
            ("/openid/back", guard.come_back),
            ("/static/{name:path}", self._static),
        ):
            router.add_route(
                f"/console{path}", guard.open(answer), methods=["GET"], include_in_schema=False
            )
        return router

    async def close(self) -> None:
        """End all streams."""
        for live in self._streams.values():
            await live.close()

    async def invite(self, request: Mapping[str, Any], _: OnProgress) -> dict[str, Any]:
        """The owner's command ``console``: a short-lived address that signs one person in, once."""
        who = str(request.get("who", ""))
        roles = tuple(request.get("roles", ()))
        if not who or len(who) > _LONGEST_NAME or not who.isprintable():
            raise ConfigError(f"--who {who!r}: write a name of up to {_LONGEST_NAME} letters")
        if not set(roles) <= set(_ROLES):
            raise ConfigError(f"--role {', '.join(roles)}: choose from {', '.join(_ROLES)}")
        person = Person(who, behind=person_of(request).behind)
        token = self._tokens.issue(Grant(person, tuple(role for role in _ROLES if role in roles)))
        return {
            "address": f"{self._place()}/console/sign-in?token={token}",
            "who": who,
            "roles": list(roles),
            "seconds": TOKEN_SECONDS,
        }

    def _place(self) -> str:
        """The address of the server for people, without a path."""
        return self._section.console_behind_proxy or self._url()

    def _company_sign_in(self, provider: IdentityProvider | None) -> CompanySignIn | None:
        openid = self._section.openid
        if provider is None or openid is None or not openid.roles:
            return None
        from fedmq.party.console.company_sign_in import CompanySignIn

        return CompanySignIn(openid, provider, self._place, time.monotonic)

    async def _static(self, request: Request) -> Response:
        found = self._static_files.find(request.path_params["name"])
        if found is None:
            return PlainTextResponse("there is no such file\n", 404)
        headers = {"Cache-Control": "public, max-age=31536000, immutable"}
        return Response(found.content, media_type=found.media_type, headers=headers)


async def _to_now(_: Request) -> Response:
    return RedirectResponse("/console/now", 303)
