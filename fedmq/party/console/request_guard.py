"""Where does a request to the console come from, was a change meant, and what do answers say?

A change needs a cookie that other sites cannot send (SameSite), the console's own Origin and the
token of the form. The browser runs and loads only scripts and files of the console.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from fedmq.errors import FedmqError
from fedmq.party.configuration.http import HttpSection
from fedmq.party.consent.person import Person
from fedmq.party.console.live import Live
from fedmq.party.console.page_request import (
    Change,
    Changes,
    OwnerActions,
    PageRequest,
    Rendering,
    Route,
    Shows,
)
from fedmq.party.console.sign_in import SIGN_IN_SECONDS, Grant, OneTimeTokens, SignIn, SignIns
from fedmq.party.http.access import certificate_name
from fedmq.party.services.service import PartyContext

if TYPE_CHECKING:
    from fedmq.party.console.company_sign_in import CompanySignIn

__all__ = ["Endpoint", "RequestGuard"]

log = logging.getLogger(__name__)

Endpoint = Callable[[Request], Awaitable[Response]]

_LONGEST_FORM = 256 * 1024
_MOST_FIELDS = 200
_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'; object-src 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    # With no-referrer a browser would not name the origin of a form either.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class RequestGuard:
    """Lets people in to the routes of the console."""

    def __init__(
        self,
        section: HttpSection,
        context: PartyContext,
        actions: OwnerActions,
        rendering: Rendering,
        streams: Mapping[str, Live],
        tokens: OneTimeTokens,
        sign_ins: SignIns,
        company: CompanySignIn | None,
    ) -> None:
        self._section = section
        self._context = context
        self._actions = actions
        self._rendering = rendering
        self._streams = streams
        self._tokens = tokens
        self._sign_ins = sign_ins
        self._company = company
        self._secure = section.certificate is not None or section.console_behind_proxy is not None
        # Cookies ignore ports: daemons on one machine must not overwrite each other's cookies.
        name = f"{context.federation.name}/{context.party}/{context.config.state}"
        self._cookie = f"fedmq_console_{hashlib.sha256(name.encode()).hexdigest()[:12]}"

    def endpoint(self, route: Route) -> Endpoint:
        """The endpoint of ``route``."""
        match route:
            case Shows(answer=show):

                async def look(request: Request) -> Response:
                    return await self._looked(request, show)

                return look
            case Changes(answer=change):

                async def act(request: Request) -> Response:
                    return await self._changed(request, change)

                return act

    def open(self, answer: Endpoint) -> Endpoint:
        """Answer any caller, signed in or not."""

        async def answered(request: Request) -> Response:
            return _guarded(await answer(request))

        return answered

    async def sign_in(self, request: Request) -> Response:
        """Take a one-time token; an invalid token gets a page that explains how to get one."""
        grant = self._tokens.redeem(request.query_params.get("token", ""))
        if grant is None:
            return self._stranger(401)
        return await self._begin(grant)

    async def leave(self, _: Request) -> Response:
        """Send a person to the company's identity provider, if people sign in there."""
        if self._company is None:
            return self._stranger(404)
        try:
            return await self._company.leave(f"{self._cookie}_openid", self._secure)
        except FedmqError as error:
            return self._stranger(error.http_status, str(error))

    async def come_back(self, request: Request) -> Response:
        """Sign in a person whom the identity provider sent back."""
        if self._company is None:
            return self._stranger(404)
        try:
            grant = await self._company.come_back(f"{self._cookie}_openid", request)
        except FedmqError as error:
            log.warning("console: %s", error)
            return self._stranger(error.http_status, str(error))
        # A redirection would still come from the provider's site, and bring no cookie.
        return await self._begin(grant, HTMLResponse(self._rendering.render("signed_in.html")))

    async def sign_out(self, change: Change) -> Response:
        """End the sign-in of the cookie."""
        await self._actions.record(change.grant, "sign out")
        self._sign_ins.end(change.sign_in)
        response = self._stranger(200, "You are signed out.")
        response.delete_cookie(self._cookie, path="/console")
        return response

    def _certified(self, request: Request) -> Grant | None:
        """The grant of the party's file to the name in the caller's certificate."""
        name = certificate_name(request)
        roles = self._section.console_certificates.get(name or "")
        return None if name is None or roles is None else Grant(Person.proven(name), roles)

    async def _begin(self, grant: Grant, response: Response | None = None) -> Response:
        try:
            await self._actions.record(grant, "sign in", behind=grant.person.behind)
        except FedmqError as error:
            return self._stranger(error.http_status, str(error))
        _, cookie = self._sign_ins.begin(grant)
        response = response or RedirectResponse("/console/now", 303)
        response.set_cookie(
            self._cookie,
            cookie,
            max_age=SIGN_IN_SECONDS,
            path="/console",
            secure=self._secure,
            httponly=True,
            samesite="strict",
        )
        return response

    async def _looked(
        self, request: Request, answer: Callable[[PageRequest], Awaitable[Response]]
    ) -> Response:
        sign_in = self._sign_ins.of(request.cookies.get(self._cookie, ""))
        if sign_in is None:
            grant = self._certified(request)
            known = None if grant is None else await self._begin(grant)
            return _guarded(known or self._stranger(401))
        return await self._done(answer, self._page_request(request, sign_in))

    async def _changed(
        self, request: Request, answer: Callable[[Change], Awaitable[Response]]
    ) -> Response:
        sign_in = self._sign_ins.of(request.cookies.get(self._cookie, ""))
        if sign_in is None:
            return _guarded(self._stranger(401))
        asked = self._page_request(request, sign_in)
        form = await _form(request)
        if form is None:
            return _guarded(asked.failed("the form cannot be read", 400))
        sent = form.pop("csrf", "").encode("utf-8", "replace")
        if not self._is_own(request) or not hmac.compare_digest(sent, sign_in.csrf.encode()):
            log.warning("console: refused a change that did not come from a page of the console")
            why = (
                "the request did not come from a page of the console; go back, load the "
                "page again and repeat"
            )
            return _guarded(asked.failed(why, 403))
        change = Change(
            http=request,
            sign_in=sign_in,
            context=self._context,
            actions=self._actions,
            rendering=self._rendering,
            streams=self._streams,
            form=form,
        )
        return await self._done(answer, change)

    async def _done(
        self, answer: Callable[..., Awaitable[Response]], asked: PageRequest
    ) -> Response:
        try:
            response = await answer(asked)
        except FedmqError as error:
            response = asked.failed(str(error), error.http_status)
        except Exception as error:
            log.exception("console: %s failed", asked.http.url.path)
            why = f"internal error: {type(error).__name__}; see the daemon's log"
            response = asked.failed(why, 500)
        return _guarded(response)

    def _page_request(self, request: Request, sign_in: SignIn) -> PageRequest:
        return PageRequest(
            http=request,
            sign_in=sign_in,
            context=self._context,
            actions=self._actions,
            rendering=self._rendering,
            streams=self._streams,
        )

    def _is_own(self, request: Request) -> bool:
        """Whether a page of this console sent the request."""
        proxied = self._section.console_behind_proxy
        own = proxied or f"{request.url.scheme}://{request.headers.get('host', '')}"
        origin = request.headers.get("origin")
        if origin is None:
            return request.headers.get("sec-fetch-site") == "same-origin"
        return origin == own

    def _stranger(self, status: int, said: str = "") -> Response:
        shown = self._rendering.render("sign_in.html", said=said, company=self._company is not None)
        return HTMLResponse(shown, status)


def _guarded(response: Response) -> Response:
    for name, value in _HEADERS.items():
        response.headers[name] = value
    response.headers.setdefault("Cache-Control", "no-store")
    return response


async def _form(request: Request) -> dict[str, str] | None:
    """The fields of a form; None if it is none."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        return None
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _LONGEST_FORM:
            return None
    try:
        fields = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, max_num_fields=_MOST_FIELDS
        )
    except ValueError:
        return None
    return dict(fields)
