"""What is legal when, while one party is asked something about a model?"""

from __future__ import annotations

from enum import Enum

from fedmq.messages.body import SessionRefuse
from fedmq.messages.model_request import ANSWERS, ModelGroupPiece
from fedmq.protocol.events import ComputationFailed, Start
from fedmq.protocol.machine import REFUSES, Done, When, session_table

__all__ = [
    "ACTIVE_MODEL_REQUEST",
    "KNOWS",
    "PASSIVE_MODEL_REQUEST",
    "SUMS",
    "ActiveModelRequestState",
    "PassiveModelRequestState",
]


class ActiveModelRequestState(Enum):
    """Where the active party stands in asking a party about a model."""

    READY = "not begun"
    ASKING = "the party decides, and does it"
    FINISHED = "it has answered"
    FAILED = "it refused, or gave no answer"


class PassiveModelRequestState(Enum):
    """Where a party stands that is asked about a model."""

    READY = "not begun"
    DECIDED = "its owner's policy has decided, and what was allowed is done or under way"
    FINISHED = "answered"
    FAILED = "refused, or not asked any more"


_A = ActiveModelRequestState

ACTIVE_MODEL_REQUEST = session_table(
    {
        _A.READY: {Start: _A.ASKING},
        _A.ASKING: {
            **dict.fromkeys(ANSWERS.values(), _A.FINISHED),
            SessionRefuse: _A.FAILED,
        },
    },
    (_A.FINISHED, _A.FAILED),
    ActiveModelRequestState,
)


_P = PassiveModelRequestState

KNOWS = When("it knows the answer already")
SUMS = Done("sums by group")

PASSIVE_MODEL_REQUEST = session_table(
    {
        _P.READY: dict.fromkeys(ANSWERS, _P.DECIDED),
        _P.DECIDED: {
            KNOWS: _P.FINISHED,
            ModelGroupPiece: _P.DECIDED,
            SUMS: _P.FINISHED,
            ComputationFailed: _P.DECIDED,
            REFUSES: _P.FAILED,
        },
    },
    (_P.FINISHED, _P.FAILED),
    PassiveModelRequestState,
)
