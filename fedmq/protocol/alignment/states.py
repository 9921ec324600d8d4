"""What is legal when, in an alignment?"""

from __future__ import annotations

from enum import Enum

from fedmq.messages import alignment
from fedmq.messages.body import ConsentPendingMessage, SessionRefuse
from fedmq.protocol.events import ComputationFailed, ConsentDecided, Start
from fedmq.protocol.machine import ASKS_OWNER, REFUSES, Done, When, session_table

__all__ = ["ACTIVE_ALIGNMENT", "PASSIVE_ALIGNMENT", "ActiveAlignmentState", "PassiveAlignmentState"]


class ActiveAlignmentState(Enum):
    """Where the active party stands in an alignment."""

    READY = "not begun"
    OPENING = "the passive parties are asked to take part"
    BLINDING = "all lists pass through all parties, each multiplies by its key"
    SHARING = "every party learns the places of its common rows"
    STORING = "the alignment is written, last by this party"
    INTERRUPTED = "a party was restarted: a new attempt begins from the start"
    FINISHED = "the alignment is stored"
    FAILED = "the session ended without an alignment"


class PassiveAlignmentState(Enum):
    """Where a passive party stands in an alignment."""

    READY = "not begun"
    ASKING = "its owner is asked whether it takes part"
    PREPARING = "the ids are read"
    WAITING = "waiting until all parties have agreed"
    BLINDING = "all lists pass through all parties, each multiplies by its key"
    COMPLETE = "the common rows are known, other parties may not know theirs yet"
    STORING = "the alignment is written"
    INTERRUPTED = "another party was restarted: a new attempt is awaited"
    FINISHED = "the alignment is stored"
    FAILED = "the session ended without an alignment"


_L = ActiveAlignmentState

OWN_BLINDED = Done("own ids under the own key")
OWN_SORTED = Done("own list in the order in which it leaves")
BURST = Done("pause between two bursts of messages")
BLINDED = Done("part of a list under the own key")
COMMON = Done("common ids")
STORED = Done("stored alignment")
ALL_AGREED = When("all parties have agreed")
ENOUGH = When("enough ids are common")
TOO_FEW = When("too few ids are common")
ALL_KNOW = When("every party knows its common rows")

ACTIVE_ALIGNMENT = session_table(
    {
        _L.READY: {Start: _L.OPENING},
        _L.OPENING: {
            ConsentPendingMessage: _L.OPENING,
            alignment.AlignmentAccept: _L.OPENING,
            ALL_AGREED: _L.BLINDING,
            SessionRefuse: _L.FAILED,
        },
        _L.BLINDING: {
            OWN_BLINDED: _L.BLINDING,
            OWN_SORTED: _L.BLINDING,
            BURST: _L.BLINDING,
            alignment.BlindedIds: _L.BLINDING,
            BLINDED: _L.BLINDING,
            COMMON: _L.BLINDING,
            ENOUGH: _L.SHARING,
            TOO_FEW: _L.FAILED,
        },
        _L.SHARING: {
            alignment.CommonRows: _L.SHARING,
            alignment.AlignmentReady: _L.SHARING,
            ALL_KNOW: _L.STORING,
        },
        _L.STORING: {
            alignment.AlignmentStored: _L.STORING,
            STORED: _L.FINISHED,
        },
    },
    (_L.FINISHED, _L.FAILED, _L.INTERRUPTED),
    ActiveAlignmentState,
)


_Q = PassiveAlignmentState

IDS = Done("own ids")
LIST_SORTED = Done("list of the active party in another order")
LIST_REFUSED = When("a list is too short or too long")
ROWS_KNOWN = When("its common rows are known")

PASSIVE_ALIGNMENT = session_table(
    {
        _Q.READY: {alignment.AlignmentOpen: _Q.PREPARING},
        _Q.ASKING: {ConsentDecided: _Q.PREPARING},
        _Q.PREPARING: {
            ASKS_OWNER: _Q.ASKING,
            IDS: _Q.WAITING,
            ComputationFailed: _Q.PREPARING,
            REFUSES: _Q.FAILED,
        },
        _Q.WAITING: {
            alignment.BlindedIds: _Q.WAITING,
            BLINDED: _Q.WAITING,
            LIST_SORTED: _Q.WAITING,
            BURST: _Q.WAITING,
            LIST_REFUSED: _Q.FAILED,
            alignment.AlignmentBegin: _Q.BLINDING,
        },
        _Q.BLINDING: {
            OWN_BLINDED: _Q.BLINDING,
            OWN_SORTED: _Q.BLINDING,
            BURST: _Q.BLINDING,
            alignment.BlindedIds: _Q.BLINDING,
            BLINDED: _Q.BLINDING,
            LIST_SORTED: _Q.BLINDING,
            LIST_REFUSED: _Q.FAILED,
            alignment.CommonRows: _Q.BLINDING,
            ROWS_KNOWN: _Q.COMPLETE,
            TOO_FEW: _Q.FAILED,
        },
        _Q.COMPLETE: {
            alignment.CommonRows: _Q.COMPLETE,
            alignment.RepeatedRows: _Q.COMPLETE,
            alignment.StoreAlignment: _Q.STORING,
        },
        _Q.STORING: {STORED: _Q.FINISHED},
    },
    (_Q.FINISHED, _Q.FAILED, _Q.INTERRUPTED),
    PassiveAlignmentState,
)
