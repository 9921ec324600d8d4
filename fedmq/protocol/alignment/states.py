"""States and tables of an alignment."""

from __future__ import annotations

from enum import Enum

from fedmq.messages import alignment
from fedmq.messages.body import SessionRefuse
from fedmq.protocol.events import ComputationFailed, PlanReturned, Start
from fedmq.protocol.table import Table, rows, session_table

__all__ = ["ACTIVE_ALIGNMENT", "PASSIVE_ALIGNMENT", "ActiveAlignmentState", "PassiveAlignmentState"]


class ActiveAlignmentState(Enum):
    """Where the label holder stands in an alignment."""

    READY = "not begun"
    OPENING = "the passive parties are asked to take part"
    BLINDING = "all lists pass through all parties, each multiplies by its key"
    SHARING = "every party learns the places of its common rows"
    STORING = "the alignment is written, last by this party"
    INTERRUPTED = "a party was restarted: a new attempt begins from the start"
    FINISHED = "the alignment is stored"
    FAILED = "the session ended without an alignment"


class PassiveAlignmentState(Enum):
    """Where a feature holder stands in an alignment."""

    READY = "not begun"
    PREPARING = "the ids are read"
    WAITING = "waiting until all parties have agreed"
    BLINDING = "all lists pass through all parties, each multiplies by its key"
    COMPLETE = "the common rows are known, other parties may not know theirs yet"
    STORING = "the alignment is written"
    INTERRUPTED = "another party was restarted: a new attempt is awaited"
    FINISHED = "the alignment is stored"
    FAILED = "the session ended without an alignment"


_L = ActiveAlignmentState

ACTIVE_ALIGNMENT: Table = session_table(
    {
        **rows(_L.READY, {Start: ("_on_start", (_L.OPENING,))}),
        **rows(
            _L.OPENING,
            {
                alignment.AlignmentAccept: ("_on_accept", (_L.OPENING, _L.BLINDING)),
                SessionRefuse: ("_on_refuse", (_L.FAILED,)),
            },
        ),
        **rows(
            _L.BLINDING,
            {
                alignment.BlindedIds: ("_on_blinded", (_L.BLINDING,)),
                PlanReturned: ("_on_returned", (_L.BLINDING, _L.SHARING, _L.FAILED)),
            },
        ),
        **rows(
            _L.SHARING,
            {
                alignment.CommonRows: ("_on_common", (_L.SHARING, _L.STORING)),
                alignment.AlignmentReady: ("_on_ready", (_L.SHARING, _L.STORING)),
            },
        ),
        **rows(
            _L.STORING,
            {
                alignment.AlignmentStored: ("_on_stored", (_L.STORING,)),
                PlanReturned: ("_on_returned", (_L.FINISHED,)),
            },
        ),
    },
    (_L.FINISHED, _L.FAILED, _L.INTERRUPTED),
    ActiveAlignmentState,
)


_Q = PassiveAlignmentState

PASSIVE_ALIGNMENT: Table = session_table(
    {
        **rows(_Q.READY, {alignment.AlignmentOpen: ("_on_open", (_Q.PREPARING, _Q.FAILED))}),
        **rows(
            _Q.PREPARING,
            {
                PlanReturned: ("_on_returned", (_Q.WAITING,)),
                ComputationFailed: ("_on_unprepared", (_Q.FAILED,)),
            },
        ),
        **rows(
            _Q.WAITING,
            {
                alignment.AlignmentBegin: ("_on_begin", (_Q.BLINDING,)),
                alignment.BlindedIds: ("_on_blinded", (_Q.WAITING,)),
                PlanReturned: ("_on_returned", (_Q.WAITING,)),
            },
        ),
        **rows(
            _Q.BLINDING,
            {
                alignment.BlindedIds: ("_on_blinded", (_Q.BLINDING,)),
                PlanReturned: ("_on_returned", (_Q.BLINDING,)),
                alignment.CommonRows: ("_on_common", (_Q.BLINDING, _Q.COMPLETE, _Q.FAILED)),
            },
        ),
        **rows(
            _Q.COMPLETE,
            {
                alignment.CommonRows: ("_on_common", (_Q.COMPLETE,)),
                alignment.StoreAlignment: ("_on_store", (_Q.STORING,)),
            },
        ),
        **rows(_Q.STORING, {PlanReturned: ("_on_returned", (_Q.FINISHED,))}),
    },
    (_Q.FINISHED, _Q.FAILED, _Q.INTERRUPTED),
    PassiveAlignmentState,
)
