"""Now: running sessions, their progress, and the parties they wait for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import Response

from fedmq.errors import ConfigError
from fedmq.party.console.drawings import curves
from fedmq.party.console.live import Parts
from fedmq.party.console.page_request import (
    Change,
    Changes,
    OwnerActions,
    PageRequest,
    Rendering,
    Shows,
)

__all__ = ["ROUTES", "parts"]

_PARTS = ("state", "facts", "bar", "waits", "traffic", "activity")


async def now(request: PageRequest) -> Response:
    """The page."""
    return request.page("now.html", **await _shown(request))


async def sessions(request: PageRequest) -> Response:
    """The list of running and ended sessions, whenever it changes."""
    return request.part("now_sessions.html", **await _shown(request))


async def events(request: PageRequest) -> Response:
    """The stream of changes of the page."""
    return request.streams["now"].response(request.sign_in)


async def rest(change: Change) -> Response:
    """Pause or resume a training."""
    session, wanted = change.parameter("session"), change.form.get("paused")
    if wanted not in ("true", "false"):
        raise ConfigError("paused: write true or false")
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
    """The live parts of the page: those of each session, and the list of sessions."""
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


async def _shown(request: PageRequest) -> dict[str, Any]:
    status, found = await request.ask("status"), await request.ask("sessions")
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
    """A value that changes only when a session begins, ends, pauses or resumes."""
    keys = ("session", "ended", "paused")
    return json.dumps([[session[key] for key in keys] for session in found])


def _curves(session: Mapping[str, Any]) -> list[dict[str, Any]]:
    curve = dict(session["curve"])
    return curves(curve.pop("done"), curve)
