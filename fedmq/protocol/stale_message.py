"""What becomes of a message of an attempt that does not run here: one function decides."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from fedmq.messages.body import Abort, Acknowledge, Body, SessionUnknown
from fedmq.messages.envelope import Header

__all__ = ["Fate", "Standing", "fate"]


class Fate(Enum):
    """What to do about such a message."""

    DROP = "an older attempt, or nothing that anybody waits for"
    JOIN = "a session, or a new attempt at one, opens here"
    GO_ON = "a party was restarted: the session needs a new attempt"
    END = "the active party has given the session up"
    REFUSE = "the session has failed here: its sender is told, with the reason"
    DISOWN = "the sender is told that its attempt is unknown here"


@dataclass(frozen=True, slots=True)
class Standing:
    """What this party's store knows of the session."""

    attempt: int
    failed: bool


def fate(
    header: Header, body: Body, standing: Standing | None, *, opens: bool, drives: bool
) -> Fate:
    """What becomes of a message that no running session takes.

    ``standing`` is None for a session that the store does not know. ``opens``: the body opens
    sessions here, and the active party says it. ``drives``: this party is the active one.
    """
    attempt = standing.attempt if standing is not None else 0
    if header.attempt < attempt:
        return Fate.DROP
    failed = standing is not None and standing.failed
    if opens and header.attempt > attempt:
        return Fate.REFUSE if failed else Fate.JOIN
    match body:
        case Acknowledge():
            return Fate.DROP
        case Abort():
            return Fate.DROP if drives or standing is None or failed else Fate.END
        case SessionUnknown():
            if not drives:
                return Fate.DROP
            return Fate.REFUSE if standing is None or failed else Fate.GO_ON
    return Fate.DISOWN
