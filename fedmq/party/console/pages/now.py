"""Now: what runs at this moment, how far it is, and for whom it waits."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import Response

from fedmq.errors import ConfigError
from fedmq.party.console.drawings import curves
from fedmq.party.console.live import Parts
from fedmq.party.console.visit import Change, Changes, OwnerActions, Rendering, Shows, Visit

__all__ = ["ROUTES", "parts"]

_PARTS = ("state", "facts", "bar", "waits", "traffic", "activity")


async def now(visit: Visit) -> Response:
    """The page."""
    return visit.page("now.html", **await _shown(visit))


async def sessions(visit: Visit) -> Response:
    """The list of what runs and what has ended, when either has changed."""
    return visit.part("now_sessions.html", **await _shown(visit))


async def events(visit: Visit) -> Response:
    """What changes on the page, as it changes."""
    return visit.streams["now"].response(visit.sign_in)


async def rest(change: Change) -> Response:
    """Let a training rest, or go on."""
    session, wanted = change.parameter("session"), change.form.get("paused")
    if wanted not in ("true", "false"):
        raise ConfigError("paused: true or false is taken")
    if wanted == "true":
        await change.ask("pause", session=session)
        return change.done("/now", f"Session {session} rests after this tree.")
    await change.ask("resume", session=session)
    return change.done("/now", f"Session {session} goes on.")


async def cancel(change: Change) -> Response:
    """End a session."""
    session = change.parameter("session")
    await change.ask("cancel", session=session)
    return change.done("/now", f"Session {session} is cancelled; every party is told.")


ROUTES = (
    Shows("/now", now),
    Shows("/now/sessions", sessions),
    Shows("/now/events", events),
    Changes("/now/{session}/rest", rest),
    Changes("/now/{session}/cancel", cancel),
)


async def parts(actions: OwnerActions, rendering: Rendering) -> Parts:
    """What is live on the page: the parts of each session, and which sessions there are."""
    found = await actions.look("sessions")
    made = {"data:sessions": _which(found)}
    for session in _running(found):
        name = session["session"]
        made |= {
            f"{part}-{name}": rendering.render("now_part.html", part=part, session=session)
            for part in _PARTS
        }
        made[f"data:curves-{name}"] = json.dumps(_curves(session))
    return made


async def _shown(visit: Visit) -> dict[str, Any]:
    status, found = await visit.ask("status"), await visit.ask("sessions")
    running = _running(found)
    return {
        "status": status,
        "which": _which(found),
        "sessions": running,
        "curves": {session["session"]: json.dumps(_curves(session)) for session in running},
    }


def _running(found: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [session for session in found if session["ended"] is None]


def _which(found: Sequence[Mapping[str, Any]]) -> str:
    """Changes when a session begins, ends, rests or goes on, and not otherwise."""
    keys = ("session", "ended", "paused")
    return json.dumps([[session[key] for key in keys] for session in found])


def _curves(session: Mapping[str, Any]) -> list[dict[str, Any]]:
    curve = dict(session["curve"])
    return curves(curve.pop("done"), curve)
