"""What is legal when, while one party is asked something about a model?"""

from __future__ import annotations

from enum import Enum

from fedmq.messages import model_request
from fedmq.messages.body import SessionRefuse
from fedmq.protocol.events import ComputationFailed, Start
from fedmq.protocol.machine import REFUSES, Done, When, session_table

__all__ = [
    "ACTIVE_MODEL_REQUEST",
    "ANSWERS",
    "PASSIVE_GROUPS",
    "PASSIVE_MODEL_REQUEST",
    "SUMS",
    "ActiveModelRequestState",
    "PassiveGroupsState",
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
    DECIDED = "its owner's policy has decided, and what was allowed is done"
    FINISHED = "answered"
    FAILED = "refused, or not asked any more"


_A = ActiveModelRequestState

ACTIVE_MODEL_REQUEST = session_table(
    {
        _A.READY: {Start: _A.ASKING},
        _A.ASKING: {
            model_request.ModelCardSigned: _A.FINISHED,
            model_request.ModelDeleted: _A.FINISHED,
            model_request.ModelColumnNames: _A.FINISHED,
            model_request.ModelGroupSums: _A.FINISHED,
            SessionRefuse: _A.FAILED,
        },
    },
    (_A.FINISHED, _A.FAILED),
    ActiveModelRequestState,
)


_P = PassiveModelRequestState

ANSWERS = When("it answers")

PASSIVE_MODEL_REQUEST = session_table(
    {
        _P.READY: {
            model_request.ModelCardOffer: _P.DECIDED,
            model_request.ModelDelete: _P.DECIDED,
            model_request.ModelColumns: _P.DECIDED,
        },
        _P.DECIDED: {ANSWERS: _P.FINISHED, REFUSES: _P.FAILED},
    },
    (_P.FINISHED, _P.FAILED),
    PassiveModelRequestState,
)


class PassiveGroupsState(Enum):
    """Where a party stands that adds up by groups of its column."""

    READY = "not begun"
    GATHERING = "ids and ciphertexts come in, then they are added"
    FINISHED = "answered"
    FAILED = "refused, or not asked any more"


_G = PassiveGroupsState

SUMS = Done("sums by group")

PASSIVE_GROUPS = session_table(
    {
        _G.READY: {model_request.ModelGroups: _G.GATHERING},
        _G.GATHERING: {
            model_request.ModelGroupPiece: _G.GATHERING,
            SUMS: _G.FINISHED,
            ComputationFailed: _G.GATHERING,
            REFUSES: _G.FAILED,
        },
    },
    (_G.FINISHED, _G.FAILED),
    PassiveGroupsState,
)
