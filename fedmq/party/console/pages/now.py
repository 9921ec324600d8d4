"""Now: what runs at this moment, how far it is, and for whom it waits."""

from __future__ import annotations

from starlette.responses import Response

from fedmq.party.console.routes import Changes, Shows
from fedmq.party.console.visit import Change, Visit

__all__ = ["ROUTES"]


async def now(visit: Visit) -> Response:
    """What runs."""
    status = await visit.ask("status")
    sessions = [session for session in status["sessions"] if session["ended"] is None]
    return visit.page("now.html", broker=status["broker"], sessions=sessions, ended=status["ended"])


async def cancel(change: Change) -> Response:
    """End a session."""
    session = change.parameter("session")
    await change.ask("cancel", session=session)
    return change.done("/now", f"Session {session} is cancelled.")


ROUTES = (Shows("/now", now), Changes("/now/{session}/cancel", cancel))
