"""The states of all machines, and the tables of what is legal in them.

Two rules: everything that decides which event is legal when, and where it may lead, is in this
file; and nothing here knows how an event is handled. The diagrams in the documentation are made
from these tables.

A table maps ``(state, event)`` to the handler's name and the states it may lead to. A message is
known by its body's class. Every state but the last ones may also lead to its machine's FAILED.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from fedmq.messages import alignment as align
from fedmq.messages import inference as say
from fedmq.messages import online as ask
from fedmq.messages import training as tell
from fedmq.messages.body import Abort, SessionRefuse, SessionUnknown
from fedmq.protocol.events import (
    Cancelled,
    ComputationFailed,
    Computed,
    Pause,
    PeerLost,
    Resume,
    Start,
    TimerFired,
)

__all__ = [
    "ACTIVE_ALIGNMENT",
    "ACTIVE_INFERENCE",
    "ACTIVE_TRAINING",
    "DEPLOYING",
    "HOSTING",
    "ONLINE_BATCH",
    "PASSIVE_ALIGNMENT",
    "PASSIVE_INFERENCE",
    "PASSIVE_TRAINING",
    "ActiveAlignmentState",
    "ActiveInferenceState",
    "ActiveTrainingState",
    "DeployingState",
    "HostingState",
    "OnlineBatchState",
    "PassiveAlignmentState",
    "PassiveInferenceState",
    "PassiveTrainingState",
    "Table",
    "Transition",
]


@dataclass(frozen=True, slots=True)
class Transition:
    """Who handles an event in a state, and where that may lead."""

    handler: str
    to: tuple[Enum, ...]


Table = Mapping[tuple[Enum, type], Transition]


class ActiveTrainingState(Enum):
    """Where the label holder stands in a training session."""

    READY = "not begun"
    KEYING = "the engine makes its keys"
    OPENING = "the passive parties are asked to take part"
    DERIVING = "gradients and metrics are computed from the margins"
    GROWING = "gradients are broadcast, a wave of nodes is summed and scored"
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
    INTERRUPTED = "the active party was restarted: its new attempt is awaited"
    FINISHED = "this party's share of the model is complete"
    FAILED = "the session ended without a model"


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


class OnlineBatchState(Enum):
    """Where the label holder stands with a batch of scores that somebody waits for."""

    READY = "not begun"
    WALKING = "rows walk down all trees, other parties are asked"
    FINISHED = "every request has its answer"
    FAILED = "every request was told why it has no score"


class DeployingState(Enum):
    """Where the label holder stands in giving a name a model to serve."""

    READY = "not begun"
    PREPARING = "the passive parties load their shares"
    SWITCHING = "all are ready, the name changes its meaning everywhere"
    FINISHED = "the name means the model at every party"
    FAILED = "the name means what it meant before"


class HostingState(Enum):
    """Where a feature holder stands in making a model ready to serve."""

    READY = "not begun"
    LOADING = "share and rows are loaded"
    LOADED = "ready, waiting for the others"
    FINISHED = "the model is served"
    FAILED = "what was served before is served on"


class ActiveAlignmentState(Enum):
    """Where the label holder stands in an alignment."""

    READY = "not begun"
    OPENING = "the passive parties are asked to take part"
    BLINDING = "all lists pass through all parties, each multiplies by its key"
    SHARING = "every party learns the places of its common rows"
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
    FINISHED = "the alignment is stored"
    FAILED = "the session ended without an alignment"


def _rows(
    state: Enum, handlers: Mapping[type, tuple[str, tuple[Enum, ...]]]
) -> dict[tuple[Enum, type], Transition]:
    return {(state, event): Transition(*step) for event, step in handlers.items()}


def _breakdowns(
    live: tuple[Enum, ...], failed: Enum, interrupted: Enum | None
) -> dict[tuple[Enum, type], Transition]:
    """What may end a session, or this attempt at it, in any live state."""
    endings: dict[type, tuple[str, tuple[Enum, ...]]] = {
        Abort: ("_on_abort", (failed,)),
        PeerLost: ("_on_peer_lost", (failed,)),
        Cancelled: ("_on_cancelled", (failed,)),
        ComputationFailed: ("_on_computation_failed", (failed,)),
        SessionUnknown: ("_on_unknown", (interrupted or failed,)),
    }
    return {key: step for state in live for key, step in _rows(state, endings).items()}


def _afterwards(over: tuple[Enum, ...], events: set[type]) -> dict[tuple[Enum, type], Transition]:
    """When a session is over, what was already under way is let pass."""
    return {(state, event): Transition("_ignore", (state,)) for state in over for event in events}


def _table(
    live: Mapping[tuple[Enum, type], Transition], over: tuple[Enum, ...], states: type[Enum]
) -> Table:
    """``over``: where it has finished, failed, and perhaps waits for another attempt."""
    _, failed, *more = over
    interrupted = more[0] if more else None
    running = tuple(state for state in states if state not in over)
    table = _breakdowns(running, failed, interrupted) | dict(live)
    table |= _afterwards(over, {event for _, event in table} - {Start})
    if interrupted is None:
        return table
    return table | _rows(
        interrupted,
        {Abort: ("_on_abort", (failed,)), Cancelled: ("_on_cancelled", (failed,))},
    )


_A = ActiveTrainingState
_AFTER_A_TREE = (_A.DERIVING, _A.GROWING, _A.PAUSED, _A.FINISHED)

ACTIVE_TRAINING: Table = _table(
    {
        **_rows(_A.READY, {Start: ("_on_start", (_A.KEYING,))}),
        **_rows(
            _A.KEYING,
            {Computed: ("_on_computed", (_A.KEYING, _A.OPENING, _A.DERIVING))},
        ),
        **_rows(
            _A.OPENING,
            {
                tell.SessionAccept: ("_on_accept", (_A.OPENING, _A.DERIVING)),
                tell.EngineSetup: ("_on_setup", (_A.OPENING, _A.DERIVING)),
                SessionRefuse: ("_on_refuse", (_A.FAILED,)),
                Computed: ("_on_computed", (_A.OPENING, _A.DERIVING)),
            },
        ),
        **_rows(
            _A.DERIVING,
            {
                Computed: ("_on_computed", _AFTER_A_TREE),
                tell.TreeSaved: ("_on_saved", _AFTER_A_TREE),
            },
        ),
        **_rows(
            _A.GROWING,
            {
                tell.HistogramReply: ("_on_reply", (_A.GROWING, _A.SPLITTING, _A.DERIVING)),
                tell.NodeDeclined: ("_on_declined", (_A.GROWING, _A.SPLITTING, _A.DERIVING)),
                Computed: ("_on_computed", (_A.GROWING, _A.SPLITTING, _A.DERIVING)),
            },
        ),
        **_rows(
            _A.SPLITTING,
            {tell.SplitOutcome: ("_on_outcome", (_A.SPLITTING, _A.GROWING, _A.DERIVING))},
        ),
        **{
            (state, event): Transition("_on_pause", (state,))
            for state in _A
            if state not in (_A.READY, _A.PAUSED, _A.INTERRUPTED, _A.FINISHED, _A.FAILED)
            for event in (Pause, Resume)
        },
        **_rows(
            _A.PAUSED, {Pause: ("_on_pause", (_A.PAUSED,)), Resume: ("_on_resume", (_A.GROWING,))}
        ),
    },
    (_A.FINISHED, _A.FAILED, _A.INTERRUPTED),
    ActiveTrainingState,
)

_P = PassiveTrainingState

PASSIVE_TRAINING: Table = _table(
    {
        **_rows(_P.READY, {tell.TrainingOpen: ("_on_open", (_P.PREPARING, _P.FAILED))}),
        **_rows(
            _P.PREPARING,
            {
                Computed: ("_on_computed", (_P.PREPARING, _P.BETWEEN_TREES, _P.FAILED)),
                ComputationFailed: ("_on_unprepared", (_P.FAILED,)),
            },
        ),
        **_rows(
            _P.BETWEEN_TREES,
            {
                tell.TreeStarted: ("_on_tree_started", (_P.RECEIVING, _P.GROWING)),
                tell.SessionFinished: ("_on_finished", (_P.FINISHED,)),
            },
        ),
        **_rows(
            _P.RECEIVING,
            {
                tell.GradientBroadcast: ("_on_broadcast", (_P.RECEIVING, _P.GROWING)),
                Computed: ("_on_computed", (_P.RECEIVING, _P.GROWING)),
                tell.HistogramRequest: ("_on_request", (_P.RECEIVING,)),
                tell.QueryPiece: ("_on_query_piece", (_P.RECEIVING,)),
            },
        ),
        **_rows(
            _P.GROWING,
            {
                tell.HistogramRequest: ("_on_request", (_P.GROWING,)),
                tell.QueryPiece: ("_on_query_piece", (_P.GROWING,)),
                Computed: ("_on_computed", (_P.GROWING,)),
                tell.SplitDecision: ("_on_decision", (_P.GROWING,)),
                tell.NodeAssignment: ("_on_assignment", (_P.GROWING,)),
                tell.TreeFinished: ("_on_tree_finished", (_P.BETWEEN_TREES,)),
            },
        ),
    },
    (_P.FINISHED, _P.FAILED, _P.INTERRUPTED),
    PassiveTrainingState,
)

_S = ActiveInferenceState

ACTIVE_INFERENCE: Table = _table(
    {
        **_rows(_S.READY, {Start: ("_on_start", (_S.OPENING, _S.WALKING))}),
        **_rows(
            _S.OPENING,
            {
                say.InferenceAccept: ("_on_accept", (_S.OPENING, _S.WALKING)),
                SessionRefuse: ("_on_refuse", (_S.FAILED,)),
            },
        ),
        **_rows(
            _S.WALKING,
            {
                say.HopReply: ("_on_reply", (_S.WALKING,)),
                Computed: ("_on_computed", (_S.WALKING, _S.FINISHED)),
            },
        ),
    },
    (_S.FINISHED, _S.FAILED, _S.INTERRUPTED),
    ActiveInferenceState,
)

_T = PassiveInferenceState

PASSIVE_INFERENCE: Table = _table(
    {
        **_rows(_T.READY, {say.InferenceOpen: ("_on_open", (_T.LISTING,))}),
        **_rows(
            _T.LISTING,
            {
                say.SampleIds: ("_on_ids", (_T.LISTING, _T.ANSWERING, _T.FAILED)),
                Computed: ("_on_computed", (_T.LISTING, _T.ANSWERING, _T.FAILED)),
                ComputationFailed: ("_on_unprepared", (_T.FAILED,)),
            },
        ),
        **_rows(
            _T.ANSWERING,
            {
                say.InferenceHop: ("_on_hop", (_T.ANSWERING,)),
                Computed: ("_on_computed", (_T.ANSWERING,)),
                say.InferenceFinished: ("_on_finished", (_T.FINISHED,)),
            },
        ),
    },
    (_T.FINISHED, _T.FAILED, _T.INTERRUPTED),
    PassiveInferenceState,
)

_B = OnlineBatchState

ONLINE_BATCH: Table = _table(
    {
        **_rows(_B.READY, {Start: ("_on_start", (_B.WALKING, _B.FINISHED))}),
        **_rows(
            _B.WALKING,
            {
                ask.OnlineExits: ("_on_exits", (_B.WALKING, _B.FINISHED)),
                ask.OnlineBitmaps: ("_on_bitmaps", (_B.WALKING, _B.FINISHED)),
                ask.OnlineRefusal: ("_on_refusal", (_B.WALKING, _B.FINISHED)),
                Computed: ("_on_computed", (_B.WALKING, _B.FINISHED)),
                TimerFired: ("_on_timer", (_B.WALKING, _B.FINISHED)),
                PeerLost: ("_on_peer_away", (_B.WALKING, _B.FINISHED)),
            },
        ),
    },
    (_B.FINISHED, _B.FAILED),
    OnlineBatchState,
)

_D = DeployingState

DEPLOYING: Table = _table(
    {
        **_rows(_D.READY, {Start: ("_on_start", (_D.PREPARING, _D.FINISHED))}),
        **_rows(
            _D.PREPARING,
            {
                ask.ModelReady: ("_on_ready", (_D.PREPARING, _D.SWITCHING)),
                SessionRefuse: ("_on_refuse", (_D.FAILED,)),
            },
        ),
        **_rows(
            _D.SWITCHING,
            {ask.ModelDeployed: ("_on_deployed", (_D.SWITCHING, _D.FINISHED))},
        ),
    },
    (_D.FINISHED, _D.FAILED),
    DeployingState,
)

_H = HostingState

HOSTING: Table = _table(
    {
        **_rows(_H.READY, {ask.ModelDeploy: ("_on_deploy", (_H.LOADING, _H.FAILED))}),
        **_rows(
            _H.LOADING,
            {
                Computed: ("_on_computed", (_H.LOADED,)),
                ComputationFailed: ("_on_unprepared", (_H.FAILED,)),
            },
        ),
        **_rows(_H.LOADED, {ask.ModelSwitch: ("_on_switch", (_H.FINISHED,))}),
    },
    (_H.FINISHED, _H.FAILED),
    HostingState,
)

_L = ActiveAlignmentState

ACTIVE_ALIGNMENT: Table = _table(
    {
        **_rows(_L.READY, {Start: ("_on_start", (_L.OPENING,))}),
        **_rows(
            _L.OPENING,
            {
                align.AlignmentAccept: ("_on_accept", (_L.OPENING, _L.BLINDING)),
                SessionRefuse: ("_on_refuse", (_L.FAILED,)),
            },
        ),
        **_rows(
            _L.BLINDING,
            {
                align.BlindedIds: ("_on_blinded", (_L.BLINDING,)),
                Computed: ("_on_computed", (_L.BLINDING, _L.SHARING, _L.FAILED)),
            },
        ),
        **_rows(
            _L.SHARING,
            {
                align.CommonRows: ("_on_common", (_L.SHARING,)),
                align.AlignmentReady: ("_on_ready", (_L.SHARING,)),
                Computed: ("_on_computed", (_L.FINISHED,)),
            },
        ),
    },
    (_L.FINISHED, _L.FAILED),
    ActiveAlignmentState,
)

_Q = PassiveAlignmentState

PASSIVE_ALIGNMENT: Table = _table(
    {
        **_rows(_Q.READY, {align.AlignmentOpen: ("_on_open", (_Q.PREPARING, _Q.FAILED))}),
        **_rows(
            _Q.PREPARING,
            {
                Computed: ("_on_computed", (_Q.WAITING,)),
                ComputationFailed: ("_on_unprepared", (_Q.FAILED,)),
            },
        ),
        **_rows(
            _Q.WAITING,
            {
                align.AlignmentBegin: ("_on_begin", (_Q.BLINDING,)),
                align.BlindedIds: ("_on_blinded", (_Q.WAITING,)),
                Computed: ("_on_computed", (_Q.WAITING,)),
            },
        ),
        **_rows(
            _Q.BLINDING,
            {
                align.BlindedIds: ("_on_blinded", (_Q.BLINDING,)),
                Computed: ("_on_computed", (_Q.BLINDING,)),
                align.CommonRows: ("_on_common", (_Q.BLINDING, _Q.COMPLETE, _Q.FAILED)),
            },
        ),
        **_rows(
            _Q.COMPLETE,
            {
                align.CommonRows: ("_on_common", (_Q.COMPLETE,)),
                align.AlignmentFinished: ("_on_finished", (_Q.STORING,)),
            },
        ),
        **_rows(_Q.STORING, {Computed: ("_on_computed", (_Q.FINISHED,))}),
    },
    (_Q.FINISHED, _Q.FAILED),
    PassiveAlignmentState,
)
