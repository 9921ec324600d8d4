"""Try a score: from an id to the score, its reasons and each party's time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from fedmq.errors import ConfigError
from fedmq.party.console.page_request import Change, Changes, PageRequest, Shows

__all__ = ["ROUTES"]

_REASONS = 10
_COLUMN = "column:"


async def form(request: PageRequest) -> Response:
    """The form."""
    served = (await request.ask("serving"))["scored"] if request.context.is_active else {}
    chosen = request.http.query_params.get("name", "")
    name = chosen if chosen in served else next(iter(served), "")
    return request.page("score.html", served=served, name=name)


async def score(change: Change) -> Response:
    """The score of the person with the submitted id."""
    name, person = change.form.get("name", ""), change.form.get("id", "").strip()
    if not person:
        raise ConfigError("id: write the id of the person to score")
    served = (await change.ask("serving"))["scored"]
    if name not in served:
        raise ConfigError(f"{name[:64]!r} is served under no such name; see: fedmq serving")
    explain = None if served[name]["unexplained"] else _REASONS
    features = _features(change.form)
    result = await change.ask(
        "score", name=name, ids=[person], features=features and [features], explain=explain
    )
    [scored] = result["scores"]
    reasons = scored.get("reasons") or []
    degraded, unknown_at = result.get("degraded", {}), scored.get("unknown_at", [])
    fallback = scored.get("fallback", "")
    return change.part(
        "score_result.html",
        result=result,
        scored=scored,
        guessed=[party for party in degraded if party not in unknown_at and not fallback],
        unknown_at=unknown_at,
        fallback=fallback,
        without=sorted({*degraded, *unknown_at}) if fallback else [],
        reasons=reasons,
        strongest=max((abs(reason["value"]) for reason in reasons), default=0.0),
        unexplained=served[name]["unexplained"],
    )


ROUTES = (Shows("/score", form), Changes("/score", score))


def _features(sent: Mapping[str, str]) -> dict[str, Any] | None:
    """The filled-in columns: a number if it reads as a number, otherwise a category."""
    given = {
        field.removeprefix(_COLUMN): text.strip()
        for field, text in sent.items()
        if field.startswith(_COLUMN) and text.strip()
    }
    return {name: _value(text) for name, text in given.items()} or None


def _value(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
