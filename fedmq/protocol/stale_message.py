"""What becomes of a message of an attempt that does not run here: one function decides."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from fedmq.messages.body import Abort, Acknowledge, Body, SessionUnknown
from fedmq.messages.envelope import Header

__all__ = ["Decision", "StoredState", "decide"]


class Decision(Enum):
    """What to do about such a message."""

    DROP = "an older attempt, or nothing that anybody waits for"
    JOIN = "a session, or a new attempt at one, opens here"
    GO_ON = "a party was restarted: the session needs a new attempt"
    END = "the active party has given the session up"
    REFUSE = "the session has failed here: its sender is told, with the reason"
    REPLY_UNKNOWN = "the sender is told that its attempt is unknown here"


@dataclass(frozen=True, slots=True)
class StoredState:
    """What this party's store knows of the session."""

    attempt: int
    failed: bool


def decide(
    header: Header, body: Body, standing: StoredState | None, *, opens: bool, drives: bool
) -> Decision:
    """What becomes of a message that no running session takes.

    ``standing`` is None for a session that the store does not know. ``opens``: the body opens
    sessions here, and the active party sends it. ``drives``: this party is the active one.
    """
    attempt = standing.attempt if standing is not None else 0
    if header.attempt < attempt:
        return Decision.DROP
    failed = standing is not None and standing.failed
    if opens and header.attempt > attempt:
        return Decision.REFUSE if failed else Decision.JOIN
    match body:
        case Acknowledge():
            return Decision.DROP
        case Abort():
            return Decision.DROP if drives or standing is None or failed else Decision.END
        case SessionUnknown():
            if not drives:
                return Decision.DROP
            return Decision.REFUSE if standing is None or failed else Decision.GO_ON
    return Decision.REPLY_UNKNOWN
