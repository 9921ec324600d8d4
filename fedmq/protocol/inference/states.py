"""What is legal when, while a file of ids is scored?"""

from __future__ import annotations

from enum import Enum

from fedmq.messages import inference
from fedmq.messages.body import SessionRefuse
from fedmq.protocol.events import ComputationFailed, Start
from fedmq.protocol.machine import REFUSES, Done, When, session_table

__all__ = ["ACTIVE_INFERENCE", "PASSIVE_INFERENCE", "ActiveInferenceState", "PassiveInferenceState"]


class ActiveInferenceState(Enum):
    """Where the active party stands in scoring a batch."""

    READY = "not begun"
    OPENING = "the passive parties look up their share and the rows"
    PREPARING = "slots of leaves are laid out, and a key is made"
    WALKING = "all rows walk down all trees, hop by hop"
    CHANGING = "owners say what the chosen changes of their columns are"
    SUMMING = "sealed leaves go by all parties, question by question"
    INTERRUPTED = "a party was restarted: a new attempt begins from the start"
    FINISHED = "every row has its score"
    FAILED = "the session ended without scores"


class PassiveInferenceState(Enum):
    """Where a passive party stands in scoring a batch."""

    READY = "not begun"
    LISTING = "the share and the rows are loaded, the sample ids come in"
    ANSWERING = "directions are answered, or sealed leaves multiplied"
    INTERRUPTED = "the active party was restarted: its new attempt is awaited"
    FINISHED = "all rows are scored"
    FAILED = "the session ended without scores"


_S = ActiveInferenceState

WALK = Done("walk down the trees")
SCORES = Done("scores")
ALL_ACCEPTED = When("all parties have accepted")
IS_SEALED = When("scores are to be sealed")
PREPARED = Done("slots and key")
SUMS = When("all parties have accepted, and scores are sealed")
SEALED = Done("sealed leaves")
SEALED_AGAIN = Done("leaves sealed again")
SUMMED = Done("sums of rows")
CHANGES = Done("smallest changes")
ALL_TOLD = When("all chosen changes are told")

ACTIVE_INFERENCE = session_table(
    {
        _S.READY: {Start: _S.OPENING},
        _S.PREPARING: {PREPARED: _S.OPENING},
        _S.OPENING: {
            IS_SEALED: _S.PREPARING,
            inference.InferenceAccept: _S.OPENING,
            ALL_ACCEPTED: _S.WALKING,
            SUMS: _S.SUMMING,
            SessionRefuse: _S.FAILED,
        },
        _S.WALKING: {
            WALK: _S.WALKING,
            inference.HopReply: _S.WALKING,
            SCORES: _S.FINISHED,
            CHANGES: _S.CHANGING,
        },
        _S.CHANGING: {inference.ChangeTold: _S.CHANGING, ALL_TOLD: _S.FINISHED},
        _S.SUMMING: {
            SEALED: _S.SUMMING,
            inference.SealedAnswer: _S.SUMMING,
            SEALED_AGAIN: _S.SUMMING,
            SUMMED: _S.SUMMING,
            SCORES: _S.FINISHED,
        },
    },
    (_S.FINISHED, _S.FAILED, _S.INTERRUPTED),
    ActiveInferenceState,
)


_T = PassiveInferenceState

ROWS = Done("share and rows")
OFFERED = Done("own changes")
DIRECTIONS = Done("directions")
MULTIPLIED = Done("sealed answer")
ROWS_FOUND = When("the row of every id is found")

PASSIVE_INFERENCE = session_table(
    {
        _T.READY: {inference.InferenceOpen: _T.LISTING},
        _T.LISTING: {
            inference.SampleIds: _T.LISTING,
            ROWS: _T.LISTING,
            OFFERED: _T.LISTING,
            ROWS_FOUND: _T.ANSWERING,
            ComputationFailed: _T.LISTING,
            REFUSES: _T.FAILED,
        },
        _T.ANSWERING: {
            inference.InferenceHop: _T.ANSWERING,
            inference.InferenceRows: _T.ANSWERING,
            DIRECTIONS: _T.ANSWERING,
            inference.ChangeChosen: _T.ANSWERING,
            inference.SealedLink: _T.ANSWERING,
            inference.SealedQuery: _T.ANSWERING,
            MULTIPLIED: _T.ANSWERING,
            inference.InferenceFinished: _T.FINISHED,
        },
    },
    (_T.FINISHED, _T.FAILED, _T.INTERRUPTED),
    PassiveInferenceState,
)
