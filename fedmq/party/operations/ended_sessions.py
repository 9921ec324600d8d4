"""The sessions that ended, those before the daemon's start among them."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from fedmq.party.services.service import PartyContext

__all__ = ["ended_sessions"]


async def ended_sessions(context: PartyContext, most: int) -> list[dict[str, Any]]:
    """The last ``most``, the oldest first, as plain data; ``reason`` is empty where one finished.

    Of those before the start only trainings are remembered.
    """
    recent = context.sessions.ended
    known = {session.id for session in recent}
    before = [
        {
            "session": session.id,
            "purpose": "training",
            "model": session.model,
            "ended": datetime.fromtimestamp(at).astimezone().isoformat(timespec="seconds"),
            "reason": session.why,
        }
        for session, at in await context.session_store.ended(most)
        if session.id not in known
    ]
    after = [
        {
            "session": session.id,
            "purpose": session.purpose,
            "model": session.model,
            "ended": session.ended.isoformat(timespec="seconds"),
            "reason": session.reason,
        }
        for session in recent
    ]
    return [*before, *after][-most:]
