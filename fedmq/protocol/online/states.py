"""States and tables of online scores, and of giving a name a model to serve."""

from __future__ import annotations

from enum import Enum

from fedmq.messages import online
from fedmq.protocol.events import PeerLost, PlanReturned, Start, TimerFired
from fedmq.protocol.table import Table, rows, session_table

__all__ = ["ONLINE_BATCH", "OnlineBatchState"]


class OnlineBatchState(Enum):
    """Where the label holder stands with a batch of scores that somebody waits for."""

    READY = "not begun"
    WALKING = "rows walk down all trees, other parties are asked"
    FINISHED = "every request has its answer"
    FAILED = "every request was told why it has no score"


_B = OnlineBatchState

ONLINE_BATCH: Table = session_table(
    {
        **rows(_B.READY, {Start: ("_on_start", (_B.WALKING, _B.FINISHED))}),
        **rows(
            _B.WALKING,
            {
                online.OnlineExits: ("_on_exits", (_B.WALKING, _B.FINISHED)),
                online.OnlineBitmaps: ("_on_bitmaps", (_B.WALKING, _B.FINISHED)),
                online.OnlineRefusal: ("_on_refusal", (_B.WALKING, _B.FINISHED)),
                PlanReturned: ("_on_returned", (_B.WALKING, _B.FINISHED)),
                TimerFired: ("_on_timer", (_B.WALKING, _B.FINISHED)),
                PeerLost: ("_on_peer_away", (_B.WALKING, _B.FINISHED)),
            },
        ),
    },
    (_B.FINISHED, _B.FAILED),
    OnlineBatchState,
)
