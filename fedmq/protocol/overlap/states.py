"""What is legal when, while shared people are counted?"""

from __future__ import annotations

from enum import Enum

from fedmq.messages import overlap
from fedmq.messages.body import ConsentPendingMessage, SessionRefuse
from fedmq.protocol.events import ComputationFailed, ConsentDecided, Start
from fedmq.protocol.machine import ASKS_OWNER, REFUSES, Done, When, session_table

__all__ = ["ACTIVE_OVERLAP", "PASSIVE_OVERLAP", "ActiveOverlapState", "PassiveOverlapState"]


class ActiveOverlapState(Enum):
    """Where the active party stands while shared people are counted."""

    READY = "not begun"
    OPENING = "the passive parties are asked to take part"
    PASSING = "all lists pass through all parties, each multiplies by its key and sorts anew"
    INTERRUPTED = "a party was restarted: a new attempt begins from the start"
    FINISHED = "the number is told"
    FAILED = "the session ended without a number"


class PassiveOverlapState(Enum):
    """Where a passive party stands while shared people are counted."""

    READY = "not begun"
    ASKING = "its owner is asked whether it takes part"
    PREPARING = "the ids are read"
    WAITING = "waiting until all parties have agreed"
    PASSING = "all lists pass through all parties, each multiplies by its key and sorts anew"
    INTERRUPTED = "another party was restarted: a new attempt is awaited"
    FINISHED = "its part is done"
    FAILED = "the session ended without a number"


BLINDED = Done("part of a list under the own key")
SORTED = Done("whole list in another order")
BURST = Done("pause between two bursts of messages")
COUNTED = Done("number of shared ids")
IDS = Done("own ids")
ALL_AGREED = When("all parties have agreed")
ALL_PASSED = When("all lists have left")
LIST_REFUSED = When("a list is too short or too long")

_A = ActiveOverlapState

ACTIVE_OVERLAP = session_table(
    {
        _A.READY: {Start: _A.OPENING},
        _A.OPENING: {
            ConsentPendingMessage: _A.OPENING,
            overlap.OverlapAccept: _A.OPENING,
            ALL_AGREED: _A.PASSING,
            SessionRefuse: _A.FAILED,
        },
        _A.PASSING: {
            overlap.ShuffledIds: _A.PASSING,
            BLINDED: _A.PASSING,
            SORTED: _A.PASSING,
            BURST: _A.PASSING,
            overlap.OverlapCount: _A.FINISHED,
        },
    },
    (_A.FINISHED, _A.FAILED, _A.INTERRUPTED),
    ActiveOverlapState,
)


_P = PassiveOverlapState

PASSIVE_OVERLAP = session_table(
    {
        _P.READY: {overlap.OverlapOpen: _P.PREPARING},
        _P.ASKING: {ConsentDecided: _P.PREPARING},
        _P.PREPARING: {
            ASKS_OWNER: _P.ASKING,
            IDS: _P.WAITING,
            ComputationFailed: _P.PREPARING,
            REFUSES: _P.FAILED,
        },
        _P.WAITING: {
            overlap.OverlapLimits: _P.WAITING,
            overlap.ShuffledIds: _P.WAITING,
            BLINDED: _P.WAITING,
            SORTED: _P.WAITING,
            BURST: _P.WAITING,
            LIST_REFUSED: _P.FAILED,
            overlap.OverlapBegin: _P.PASSING,
        },
        _P.PASSING: {
            overlap.OverlapLimits: _P.PASSING,
            overlap.ShuffledIds: _P.PASSING,
            BLINDED: _P.PASSING,
            SORTED: _P.PASSING,
            BURST: _P.PASSING,
            LIST_REFUSED: _P.FAILED,
            ALL_PASSED: _P.FINISHED,
            COUNTED: _P.FINISHED,
        },
    },
    (_P.FINISHED, _P.FAILED, _P.INTERRUPTED),
    PassiveOverlapState,
)
