"""What is legal when, in a batch of online scores?"""

from __future__ import annotations

from enum import Enum

from fedmq.messages import online
from fedmq.protocol.events import PeerLost, Start, TimerFired
from fedmq.protocol.machine import Done, When, session_table

__all__ = ["ONLINE_BATCH", "SEALED_BATCH", "OnlineBatchState", "SealedBatchState"]


class OnlineBatchState(Enum):
    """Where the active party stands with a batch of scores that somebody waits for."""

    READY = "not begun"
    WALKING = "rows walk down all trees, other parties are asked"
    FINISHED = "every request has its answer"
    FAILED = "every request was told why it has no score"


_B = OnlineBatchState

WALK = Done("walk down the trees")
SUMS = Done("sums of a request")
ALL_ANSWERED = When("every request is answered")

ONLINE_BATCH = session_table(
    {
        _B.READY: {Start: _B.WALKING},
        _B.WALKING: {
            WALK: _B.WALKING,
            SUMS: _B.WALKING,
            online.OnlineExits: _B.WALKING,
            online.OnlineBitmaps: _B.WALKING,
            online.OnlineRefusal: _B.WALKING,
            TimerFired: _B.WALKING,
            PeerLost: _B.WALKING,
            ALL_ANSWERED: _B.FINISHED,
        },
    },
    (_B.FINISHED, _B.FAILED),
    OnlineBatchState,
)


class SealedBatchState(Enum):
    """Where the active party stands with a batch of which nobody learns a direction."""

    READY = "not begun"
    ASKING = "sealed leaves go by all parties, question by question"
    FINISHED = "every request has its answer"
    FAILED = "every request was told why it has no score"


_S = SealedBatchState

SEALED = Done("sealed leaves of a question")
SEALED_AGAIN = Done("leaves sealed again")
OPENED = Done("sums of a question")
SCORED = Done("scores of a request")

SEALED_BATCH = session_table(
    {
        _S.READY: {Start: _S.ASKING},
        _S.ASKING: {
            SEALED: _S.ASKING,
            SEALED_AGAIN: _S.ASKING,
            OPENED: _S.ASKING,
            SCORED: _S.ASKING,
            online.OnlineProducts: _S.ASKING,
            online.OnlineRefusal: _S.ASKING,
            TimerFired: _S.ASKING,
            PeerLost: _S.ASKING,
            ALL_ANSWERED: _S.FINISHED,
        },
    },
    (_S.FINISHED, _S.FAILED),
    SealedBatchState,
)
