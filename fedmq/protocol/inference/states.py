"""States and tables of scoring a batch."""

from __future__ import annotations

from enum import Enum

from fedmq.messages import inference
from fedmq.messages.body import SessionRefuse
from fedmq.protocol.events import ComputationFailed, PlanReturned, Start
from fedmq.protocol.table import Table, rows, session_table

__all__ = ["ACTIVE_INFERENCE", "PASSIVE_INFERENCE", "ActiveInferenceState", "PassiveInferenceState"]


class ActiveInferenceState(Enum):
    """Where the label holder stands in scoring a batch."""

    READY = "not begun"
    OPENING = "the passive parties look up their share and the rows"
    WALKING = "all rows walk down all trees, hop by hop"
    INTERRUPTED = "a party was restarted: a new attempt begins from the start"
    FINISHED = "every row has its score"
    FAILED = "the session ended without scores"


class PassiveInferenceState(Enum):
    """Where a feature holder stands in scoring a batch."""

    READY = "not begun"
    LISTING = "the share and the rows are loaded, the sample ids come in"
    ANSWERING = "directions are answered"
    INTERRUPTED = "the active party was restarted: its new attempt is awaited"
    FINISHED = "all rows are scored"
    FAILED = "the session ended without scores"


_S = ActiveInferenceState

ACTIVE_INFERENCE: Table = session_table(
    {
        **rows(_S.READY, {Start: ("_on_start", (_S.OPENING, _S.WALKING))}),
        **rows(
            _S.OPENING,
            {
                inference.InferenceAccept: ("_on_accept", (_S.OPENING, _S.WALKING)),
                SessionRefuse: ("_on_refuse", (_S.FAILED,)),
            },
        ),
        **rows(
            _S.WALKING,
            {
                inference.HopReply: ("_on_reply", (_S.WALKING,)),
                PlanReturned: ("_on_returned", (_S.WALKING, _S.FINISHED)),
            },
        ),
    },
    (_S.FINISHED, _S.FAILED, _S.INTERRUPTED),
    ActiveInferenceState,
)


_T = PassiveInferenceState

PASSIVE_INFERENCE: Table = session_table(
    {
        **rows(_T.READY, {inference.InferenceOpen: ("_on_open", (_T.LISTING,))}),
        **rows(
            _T.LISTING,
            {
                inference.SampleIds: ("_on_ids", (_T.LISTING, _T.ANSWERING, _T.FAILED)),
                PlanReturned: ("_on_returned", (_T.LISTING, _T.ANSWERING, _T.FAILED)),
                ComputationFailed: ("_on_unprepared", (_T.FAILED,)),
            },
        ),
        **rows(
            _T.ANSWERING,
            {
                inference.InferenceHop: ("_on_hop", (_T.ANSWERING,)),
                PlanReturned: ("_on_returned", (_T.ANSWERING,)),
                inference.InferenceFinished: ("_on_finished", (_T.FINISHED,)),
            },
        ),
    },
    (_T.FINISHED, _T.FAILED, _T.INTERRUPTED),
    PassiveInferenceState,
)
