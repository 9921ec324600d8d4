"""A request of somebody who is signed in, and all that a page does with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from fedmq.party.console.actions import OwnerActions
from fedmq.party.console.live import Live
from fedmq.party.console.rendering import Rendering
from fedmq.party.console.sign_in.one_time_tokens import Grant
from fedmq.party.console.sign_in.roles import is_allowed
from fedmq.party.console.sign_in.sign_ins import Notice, SignIn
from fedmq.party.services.service import PartyContext

__all__ = ["Change", "Visit"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """Somebody looks at a page of the daemon whose ``context`` this is."""

    request: Request
    sign_in: SignIn
    context: PartyContext
    actions: OwnerActions
    rendering: Rendering
    streams: Mapping[str, Live]
    """What is live, by the page that it is live on."""

    @property
    def grant(self) -> Grant:
        """Who this is, and what this person may do."""
        return self.sign_in.grant

    def parameter(self, name: str) -> str:
        """A part of the address, such as ``model`` of ``/models/{model}``."""
        return str(self.request.path_params[name])

    def may(self, command: str) -> bool:
        """Whether this person may give the owner's command ``command``."""
        return is_allowed(command, self.grant.roles)

    async def ask(self, command: str, **request: Any) -> Any:
        """The result of an owner's command, as for `OwnerActions.ask`."""
        return await self.actions.ask(self.grant, command, **request)

    def page(self, template: str, *, http_status: int = 200, **values: Any) -> Response:
        """The page that ``template`` makes of ``values``, with what was to be said on it."""
        shown = self.rendering.render(template, self, notices=self.sign_in.take_notices(), **values)
        return HTMLResponse(shown, http_status)

    def part(self, template: str, *, http_status: int = 200, **values: Any) -> Response:
        """A part of a page, which a script puts in its place."""
        return HTMLResponse(self.rendering.render(template, self, **values), http_status)

    def failed(self, error: str, http_status: int) -> Response:
        """That something went wrong: a line where a script asked, a page where a person did."""
        notice = Notice(error, is_error=True)
        if "hx-request" in self.request.headers:
            return self.part("notice.html", http_status=http_status, notice=notice)
        return self.page("failed.html", http_status=http_status, error=error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change(Visit):
    """Somebody does something, by a form of the console; that it was meant is checked."""

    form: Mapping[str, str] = field(default_factory=dict)

    def done(self, path: str, text: str) -> Response:
        """Go to the page at ``path``, which says ``text``."""
        self.sign_in.notify(Notice(text))
        return RedirectResponse(f"/console{path}", 303)
