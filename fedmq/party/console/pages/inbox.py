"""Inbox: requests for the owner's consent, their terms and answers."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import Response

from fedmq.errors import ConfigError
from fedmq.party.consent.terms import asked_in_words, terms_in_words
from fedmq.party.console.live import Parts
from fedmq.party.console.page_request import Change, Changes, OwnerActions, PageRequest, Shows

__all__ = ["ROUTES", "parts"]

_LONGEST_REASON = 1000


async def inbox(request: PageRequest) -> Response:
    """The page."""
    found = await request.ask("inbox")
    waiting = [_shown(request) for request in found if request["state"] == "waiting"]
    answered = [_shown(request) for request in reversed(found) if request["state"] != "waiting"]
    return request.page(
        "inbox.html",
        waiting=waiting,
        answered=answered,
        known=_ids(found),
        policy=request.context.config.policy,
    )


async def news(request: PageRequest) -> Response:
    """A line if requests wait that the page does not show."""
    now = _ids(await request.ask("inbox"))
    known = request.http.query_params.get("known", "")
    return request.part("inbox_news.html", changed=now != known, known=known)


async def events(request: PageRequest) -> Response:
    """The waiting requests, whenever they change."""
    return request.streams["inbox"].response(request.sign_in)


async def alike(request: PageRequest) -> Response:
    """The change of the party's file that would approve similar requests without asking."""
    number = request.parameter("request")
    change = await request.ask("alike", request=number)
    found = next(asked for asked in await request.ask("inbox") if asked["request"] == number)
    return request.page("inbox_alike.html", asked=_shown(found), change=change)


async def approve(change: Change) -> Response:
    """Approve; with a ``diff`` also all similar requests."""
    request = change.parameter("request")
    diff = change.form.get("diff", "").replace("\r\n", "\n")  # as a browser sends lines
    await change.ask("approve", request=request, diff=diff)
    more = " The daemon approves similar requests from now on." if diff else ""
    return change.done("/inbox", f"Request {request} is approved.{more}")


async def refuse(change: Change) -> Response:
    """Refuse, and send the other party the reason."""
    request, reason = change.parameter("request"), change.form.get("reason", "").strip()
    if len(reason) > _LONGEST_REASON:
        raise ConfigError(f"reason: at most {_LONGEST_REASON:,} characters")
    await change.ask("refuse", request=request, reason=reason)
    return change.done("/inbox", f"Request {request} is refused.")


ROUTES = (
    Shows("/inbox", inbox),
    Shows("/inbox/news", news),
    Shows("/inbox/events", events),
    Shows("/inbox/{request}/alike", alike),
    Changes("/inbox/{request}/approve", approve),
    Changes("/inbox/{request}/refuse", refuse),
)


async def parts(actions: OwnerActions) -> Parts:
    """The live part of the page: the waiting requests, for the line about new ones."""
    return {"data:news": _ids(await actions.look("inbox"))}


def _ids(found: Sequence[Mapping[str, Any]]) -> str:
    return " ".join(request["request"] for request in found if request["state"] == "waiting")


def _shown(request: Mapping[str, Any]) -> dict[str, Any]:
    return {
        **request,
        "words": asked_in_words(request),
        "lines": [
            (about, [what for _, what in found])
            for about, found in itertools.groupby(terms_in_words(request), lambda line: line[0])
        ],
    }
