"""States and tables of a training."""

from __future__ import annotations

from enum import Enum

from fedmq.messages import training
from fedmq.messages.body import SessionRefuse
from fedmq.protocol.events import ComputationFailed, Pause, PlanReturned, Resume, Start
from fedmq.protocol.table import Table, Transition, rows, session_table

__all__ = ["ACTIVE_TRAINING", "PASSIVE_TRAINING", "ActiveTrainingState", "PassiveTrainingState"]


class ActiveTrainingState(Enum):
    """Where the label holder stands in a training session."""

    READY = "not begun"
    KEYING = "the engine makes its keys"
    OPENING = "the passive parties are asked to take part"
    DERIVING = "gradients and metrics are computed from the margins"
    GROWING = "gradients are broadcast, a level of nodes is summed and scored"
    SPLITTING = "owners of winning candidates are asked who goes left"
    PAUSED = "its owner lets the session rest between two trees"
    INTERRUPTED = "a party was restarted: a new attempt goes on from the last finished tree"
    FINISHED = "the model is complete"
    FAILED = "the session ended without a model"


class PassiveTrainingState(Enum):
    """Where a feature holder stands in a training session."""

    READY = "not begun"
    PREPARING = "cuts and bins are computed, the engine sets up"
    BETWEEN_TREES = "waiting for a tree to begin"
    RECEIVING = "the gradient broadcast comes in"
    GROWING = "sums are answered and splits are made"
    INTERRUPTED = "a new attempt is awaited: a party was restarted, or cannot reach its data yet"
    FINISHED = "this party's share of the model is complete"
    FAILED = "the session ended without a model"


_A = ActiveTrainingState
_AFTER_A_TREE = (_A.DERIVING, _A.GROWING, _A.PAUSED, _A.FINISHED)

ACTIVE_TRAINING: Table = session_table(
    {
        **rows(_A.READY, {Start: ("_on_start", (_A.KEYING,))}),
        **rows(
            _A.KEYING,
            {PlanReturned: ("_on_returned", (_A.KEYING, _A.OPENING, _A.DERIVING))},
        ),
        **rows(
            _A.OPENING,
            {
                training.SessionAccept: ("_on_accept", (_A.OPENING, _A.DERIVING)),
                training.EngineSetup: ("_on_setup", (_A.OPENING, _A.DERIVING)),
                SessionRefuse: ("_on_refuse", (_A.FAILED,)),
                PlanReturned: ("_on_returned", (_A.OPENING, _A.DERIVING)),
            },
        ),
        **rows(
            _A.DERIVING,
            {
                PlanReturned: ("_on_returned", _AFTER_A_TREE),
                training.TreeSaved: ("_on_saved", _AFTER_A_TREE),
            },
        ),
        **rows(
            _A.GROWING,
            {
                training.HistogramReply: ("_on_reply", (_A.GROWING, _A.SPLITTING, _A.DERIVING)),
                training.NodeDeclined: ("_on_declined", (_A.GROWING, _A.SPLITTING, _A.DERIVING)),
                PlanReturned: ("_on_returned", (_A.GROWING, _A.SPLITTING, _A.DERIVING)),
            },
        ),
        **rows(
            _A.SPLITTING,
            {
                training.SplitOutcome: ("_on_outcome", (_A.SPLITTING, _A.GROWING, _A.DERIVING)),
                PlanReturned: ("_on_returned", (_A.SPLITTING,)),
            },
        ),
        **{
            (state, event): Transition("_on_pause", (state,))
            for state in _A
            if state not in (_A.READY, _A.PAUSED, _A.INTERRUPTED, _A.FINISHED, _A.FAILED)
            for event in (Pause, Resume)
        },
        **rows(
            _A.PAUSED,
            {
                Pause: ("_on_pause", (_A.PAUSED,)),
                Resume: ("_on_resume", (_A.GROWING,)),
                PlanReturned: ("_on_returned", (_A.PAUSED,)),
            },
        ),
    },
    (_A.FINISHED, _A.FAILED, _A.INTERRUPTED),
    ActiveTrainingState,
)


_P = PassiveTrainingState

PASSIVE_TRAINING: Table = session_table(
    {
        **rows(_P.READY, {training.TrainingOpen: ("_on_open", (_P.PREPARING, _P.FAILED))}),
        **rows(
            _P.PREPARING,
            {
                PlanReturned: ("_on_returned", (_P.PREPARING, _P.BETWEEN_TREES, _P.FAILED)),
                ComputationFailed: ("_on_unprepared", (_P.FAILED, _P.INTERRUPTED)),
            },
        ),
        **rows(
            _P.BETWEEN_TREES,
            {
                training.TreeStarted: ("_on_tree_started", (_P.RECEIVING, _P.GROWING)),
                training.SessionFinished: ("_on_finished", (_P.FINISHED,)),
            },
        ),
        **rows(
            _P.RECEIVING,
            {
                training.GradientBroadcast: ("_on_broadcast", (_P.RECEIVING, _P.GROWING)),
                PlanReturned: ("_on_returned", (_P.RECEIVING, _P.GROWING)),
                training.HistogramRequest: ("_on_request", (_P.RECEIVING,)),
                training.QueryPiece: ("_on_query_piece", (_P.RECEIVING,)),
            },
        ),
        **rows(
            _P.GROWING,
            {
                training.HistogramRequest: ("_on_request", (_P.GROWING,)),
                training.QueryPiece: ("_on_query_piece", (_P.GROWING,)),
                PlanReturned: ("_on_returned", (_P.GROWING,)),
                training.SplitDecision: ("_on_decision", (_P.GROWING,)),
                training.NodeAssignment: ("_on_assignment", (_P.GROWING,)),
                training.TreeFinished: ("_on_tree_finished", (_P.BETWEEN_TREES,)),
            },
        ),
    },
    (_P.FINISHED, _P.FAILED, _P.INTERRUPTED),
    PassiveTrainingState,
)
