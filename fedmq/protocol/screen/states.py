"""What is legal when, while columns are looked at?"""

from __future__ import annotations

from enum import Enum

from fedmq.messages import screen
from fedmq.messages.body import ConsentPendingMessage, SessionRefuse
from fedmq.protocol.events import ComputationFailed, ConsentDecided, Start
from fedmq.protocol.machine import ASKS_OWNER, REFUSES, Done, When, session_table

__all__ = [
    "ACTIVE_PAIR",
    "ACTIVE_SCREEN",
    "PASSIVE_PAIR",
    "PASSIVE_SCREEN",
    "ActivePairState",
    "ActiveScreenState",
    "PassivePairState",
    "PassiveScreenState",
]


class ActiveScreenState(Enum):
    """Where the active party stands while it looks at another party's columns."""

    READY = "not begun"
    ASKING = "the party is asked to show its columns"
    COUNTING = "the party adds up labels, and multiplies columns, that it cannot read"
    EVALUATING = "circuits tell, block by block, how well columns tell the label"
    FINISHED = "the columns are known"
    FAILED = "the party refused, or gave no answer"


class PassiveScreenState(Enum):
    """Where a party stands whose columns are looked at."""

    READY = "not begun"
    ASKING = "its owner is asked whether it takes part"
    PREPARING = "the columns are read"
    COUNTING = "labels and columns arrive that it cannot read; it adds up and multiplies them"
    GARBLING = "it garbles circuits, block by block, as the active party chooses"
    FINISHED = "the columns are shown"
    FAILED = "refused, or not asked any more"


ENCRYPTED = Done("encrypted labels and columns")
DECRYPTED = Done("ones of each bin, and coefficients")
DESCRIBED = When("all columns are described, without labels")
COLUMNS = Done("own columns in bins")
COUNTED = Done("encrypted ones of each bin, and inner products")
SHOWS = When("it shows descriptions alone")
SHARED = Done("shares of the ones of each bin, and coefficients")
CHOSEN = Done("labels of a block")
EVALUATED = Done("steps of a block")
ALL_EVALUATED = When("the steps of all columns are known")
MASKED_SUMS = Done("masked ones of each bin, and inner products")
GARBLED = Done("tables of a block")
ALL_GARBLED = When("all blocks are garbled")

_A = ActiveScreenState

ACTIVE_SCREEN = session_table(
    {
        _A.READY: {Start: _A.ASKING},
        _A.ASKING: {
            ConsentPendingMessage: _A.ASKING,
            screen.ScreenReady: _A.COUNTING,
            screen.ScreenColumns: _A.ASKING,
            DESCRIBED: _A.FINISHED,
            SessionRefuse: _A.FAILED,
        },
        _A.COUNTING: {
            ENCRYPTED: _A.COUNTING,
            screen.ScreenHints: _A.COUNTING,
            screen.ScreenProducts: _A.COUNTING,
            screen.ScreenTransfers: _A.COUNTING,
            screen.ScreenColumns: _A.COUNTING,
            DECRYPTED: _A.FINISHED,
            SHARED: _A.EVALUATING,
        },
        _A.EVALUATING: {
            CHOSEN: _A.EVALUATING,
            screen.ScreenTables: _A.EVALUATING,
            EVALUATED: _A.EVALUATING,
            ALL_EVALUATED: _A.FINISHED,
        },
    },
    (_A.FINISHED, _A.FAILED),
    ActiveScreenState,
)


_P = PassiveScreenState

PASSIVE_SCREEN = session_table(
    {
        _P.READY: {screen.ScreenOpen: _P.PREPARING},
        _P.ASKING: {ConsentDecided: _P.PREPARING},
        _P.PREPARING: {
            ASKS_OWNER: _P.ASKING,
            COLUMNS: _P.COUNTING,
            ComputationFailed: _P.PREPARING,
            REFUSES: _P.FAILED,
        },
        _P.COUNTING: {
            SHOWS: _P.FINISHED,
            screen.ScreenLabels: _P.COUNTING,
            screen.ScreenNumbers: _P.COUNTING,
            COUNTED: _P.FINISHED,
            MASKED_SUMS: _P.GARBLING,
        },
        _P.GARBLING: {
            screen.ScreenChoices: _P.GARBLING,
            GARBLED: _P.GARBLING,
            ALL_GARBLED: _P.FINISHED,
        },
    },
    (_P.FINISHED, _P.FAILED),
    PassiveScreenState,
)


# Two passive parties correlate their columns


class ActivePairState(Enum):
    """Where the active party stands while two others correlate their columns for it."""

    READY = "not begun"
    ASKING = "both are asked to correlate their columns"
    WAITING = "they multiply; sums arrive of which each alone looks random"
    FINISHED = "the coefficients are known"
    FAILED = "one of both refused, or gave no answer"


class PassivePairState(Enum):
    """Where one of two passive parties stands whose columns are correlated."""

    READY = "not begun"
    ASKING = "its owner is asked whether it takes part"
    PREPARING = "the columns are read"
    WAITING = "marks, columns or hints of the other party arrive"
    MULTIPLYING = "it multiplies by columns that it cannot read, or takes their masks off"
    FINISHED = "the masked sums are sent"
    FAILED = "refused, or not asked any more"


BOTH_READY = When("both agree")
BOTH_TOLD = Done("coefficients of two other parties' columns")
ENCRYPTED_PAIR = Done("encrypted own columns")
COMPLETE = When("all has arrived of the other party")
MASKED = Done("masked sums")

_B = ActivePairState

ACTIVE_PAIR = session_table(
    {
        _B.READY: {Start: _B.ASKING},
        _B.ASKING: {
            ConsentPendingMessage: _B.ASKING,
            screen.PairReady: _B.ASKING,
            BOTH_READY: _B.WAITING,
            SessionRefuse: _B.FAILED,
        },
        _B.WAITING: {screen.PairSums: _B.WAITING, BOTH_TOLD: _B.FINISHED},
    },
    (_B.FINISHED, _B.FAILED),
    ActivePairState,
)

_Q = PassivePairState

PASSIVE_PAIR = session_table(
    {
        _Q.READY: {screen.PairOpen: _Q.PREPARING},
        _Q.ASKING: {ConsentDecided: _Q.PREPARING},
        _Q.PREPARING: {
            ASKS_OWNER: _Q.ASKING,
            COLUMNS: _Q.WAITING,
            ComputationFailed: _Q.PREPARING,
            REFUSES: _Q.FAILED,
        },
        _Q.WAITING: {
            screen.PairBegin: _Q.WAITING,
            screen.PairLink: _Q.WAITING,
            screen.ScreenNumbers: _Q.WAITING,
            screen.ScreenHints: _Q.WAITING,
            ENCRYPTED_PAIR: _Q.WAITING,
            COMPLETE: _Q.MULTIPLYING,
        },
        _Q.MULTIPLYING: {MASKED: _Q.FINISHED},
    },
    (_Q.FINISHED, _Q.FAILED),
    PassivePairState,
)
