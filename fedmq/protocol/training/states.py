"""What is legal when, in a training?"""

from __future__ import annotations

from enum import Enum

from fedmq.messages import training
from fedmq.messages.body import ConsentPendingMessage, SessionRefuse
from fedmq.messages.inference import HopReply, InferenceHop
from fedmq.protocol.events import ComputationFailed, ConsentDecided, Pause, Resume, Start
from fedmq.protocol.machine import ASKS_OWNER, REFUSES, Done, When, Yields, session_table

__all__ = ["ACTIVE_TRAINING", "PASSIVE_TRAINING", "ActiveTrainingState", "PassiveTrainingState"]


class ActiveTrainingState(Enum):
    """Where the active party stands in a training session."""

    READY = "not begun"
    KEYING = "the engine makes its keys"
    OPENING = "the passive parties are asked to take part"
    WALKING = "rows walk down the trees of an earlier model, to be continued or refreshed"
    DERIVING = "gradients and metrics are computed from the margins"
    GROWING = "gradients are broadcast, a level of nodes is summed and scored"
    SPLITTING = "owners of winning candidates are asked who goes left"
    PAUSED = "its owner lets the session rest between two trees"
    INTERRUPTED = "a party was restarted: a new attempt goes on from the last finished tree"
    FINISHED = "the model is complete"
    FAILED = "the session ended without a model"


class PassiveTrainingState(Enum):
    """Where a passive party stands in a training session."""

    READY = "not begun"
    ASKING = "its owner is asked whether it takes part"
    PREPARING = "cuts and bins are computed, the engine sets up"
    BETWEEN_TREES = "waiting for a tree to begin"
    RECEIVING = "the gradient broadcast comes in"
    GROWING = "sums are answered and splits are made"
    INTERRUPTED = "a new attempt is awaited: a party was restarted, or cannot reach its data yet"
    FINISHED = "this party's share of the model is complete"
    FAILED = "the session ended without a model"


_A = ActiveTrainingState

KEYS = Done("bins and keys")
PEER_SETUP = Done("engine of a peer")
ALL_READY = When("every party is ready")
CONTINUES = When("every party is ready, and trees of an earlier model come first")
WALK = Done("walk down earlier trees")
EARLIER_MARGINS = Done("margins of an earlier model")
REFRESHED = Done("leaves of an earlier model weighed anew")
GRADIENTS = Done("gradients")
TREE_BEGINS = When("the tree before is on every disk")
RESTS = When("its owner wants it to rest")
MODEL_COMPLETE = When("the last tree has grown")
BROADCAST = Done("broadcast")
NEXT_TREE = Done("work for the next tree")
OWN_OFFERS = Done("own candidates")
QUESTION = Done("question about nodes")
OFFER = Done("candidates of a peer")
OFFER_EXCHANGE = Yields("candidates of a peer")
WINNERS = Done("winners among hidden sums")
WINNERS_EXCHANGE = Yields("winners among hidden sums")
DIRECTIONS = Done("directions of a split")
DIRECTIONS_EXCHANGE = Yields("directions of a split")
LEVEL_SCORED = When("every candidate of the level is scored")
NEXT_LEVEL = When("every split of the level is made")
TREE_COMPLETE = When("no node can be split further")

ACTIVE_TRAINING = session_table(
    {
        _A.READY: {Start: _A.KEYING},
        _A.KEYING: {
            KEYS: _A.OPENING,
            Pause: _A.KEYING,
            Resume: _A.KEYING,
        },
        _A.OPENING: {
            ConsentPendingMessage: _A.OPENING,
            training.SessionAccept: _A.OPENING,
            training.EngineSetup: _A.OPENING,
            PEER_SETUP: _A.OPENING,
            ALL_READY: _A.DERIVING,
            CONTINUES: _A.WALKING,
            SessionRefuse: _A.FAILED,
            Pause: _A.OPENING,
            Resume: _A.OPENING,
        },
        _A.WALKING: {
            WALK: _A.WALKING,
            HopReply: _A.WALKING,
            EARLIER_MARGINS: _A.DERIVING,
            REFRESHED: _A.FINISHED,
            Pause: _A.WALKING,
            Resume: _A.WALKING,
        },
        _A.DERIVING: {
            GRADIENTS: _A.DERIVING,
            NEXT_TREE: _A.DERIVING,
            training.TreeSaved: _A.DERIVING,
            TREE_BEGINS: _A.GROWING,
            RESTS: _A.PAUSED,
            MODEL_COMPLETE: _A.FINISHED,
            Pause: _A.DERIVING,
            Resume: _A.DERIVING,
        },
        _A.GROWING: {
            BROADCAST: _A.GROWING,
            NEXT_TREE: _A.GROWING,
            OWN_OFFERS: _A.GROWING,
            QUESTION: _A.GROWING,
            OFFER_EXCHANGE: _A.GROWING,
            training.HistogramReply: _A.GROWING,
            training.NodeDeclined: _A.GROWING,
            OFFER: _A.GROWING,
            WINNERS_EXCHANGE: _A.GROWING,
            training.CircuitPiece: _A.GROWING,
            WINNERS: _A.GROWING,
            LEVEL_SCORED: _A.SPLITTING,
            Pause: _A.GROWING,
            Resume: _A.GROWING,
        },
        _A.SPLITTING: {
            NEXT_TREE: _A.SPLITTING,
            DIRECTIONS_EXCHANGE: _A.SPLITTING,
            training.SplitOutcome: _A.SPLITTING,
            DIRECTIONS: _A.SPLITTING,
            NEXT_LEVEL: _A.GROWING,
            TREE_COMPLETE: _A.DERIVING,
            Pause: _A.SPLITTING,
            Resume: _A.SPLITTING,
        },
        _A.PAUSED: {
            NEXT_TREE: _A.PAUSED,
            Pause: _A.PAUSED,
            Resume: _A.PAUSED,
            TREE_BEGINS: _A.GROWING,
        },
    },
    (_A.FINISHED, _A.FAILED, _A.INTERRUPTED),
    ActiveTrainingState,
)


_P = PassiveTrainingState

PREPARED = Done("table, bins and engine")
OUT_OF_REACH = When("its data is out of reach")
EARLIER_DIRECTIONS = Done("directions of earlier trees")
RECEIVED = Done("piece of the broadcast")
GRADIENTS_HERE = When("all gradients are here")
PIECE_TAKEN = Done("piece of a question")
SUMS = Done("sums")
SUMS_REPLY = Yields("sums")
SHOWN = Done("directions as shown")

PASSIVE_TRAINING = session_table(
    {
        _P.READY: {training.TrainingOpen: _P.PREPARING},
        _P.ASKING: {ConsentDecided: _P.PREPARING},
        _P.PREPARING: {
            ASKS_OWNER: _P.ASKING,
            PREPARED: _P.BETWEEN_TREES,
            ComputationFailed: _P.PREPARING,
            REFUSES: _P.FAILED,
            OUT_OF_REACH: _P.INTERRUPTED,
        },
        _P.BETWEEN_TREES: {
            InferenceHop: _P.BETWEEN_TREES,
            EARLIER_DIRECTIONS: _P.BETWEEN_TREES,
            training.TreeStarted: _P.RECEIVING,
            training.SessionFinished: _P.FINISHED,
        },
        _P.RECEIVING: {
            training.GradientBroadcast: _P.RECEIVING,
            RECEIVED: _P.RECEIVING,
            training.HistogramRequest: _P.RECEIVING,
            training.QueryPiece: _P.RECEIVING,
            GRADIENTS_HERE: _P.GROWING,
        },
        _P.GROWING: {
            training.HistogramRequest: _P.GROWING,
            training.QueryPiece: _P.GROWING,
            PIECE_TAKEN: _P.GROWING,
            SUMS_REPLY: _P.GROWING,
            SUMS: _P.GROWING,
            training.CircuitPiece: _P.GROWING,
            training.BestSoFar: _P.GROWING,
            WINNERS_EXCHANGE: _P.GROWING,
            WINNERS: _P.GROWING,
            training.DirectionsQuery: _P.GROWING,
            training.SplitDecision: _P.GROWING,
            SHOWN: _P.GROWING,
            training.NodeAssignment: _P.GROWING,
            training.TreeFinished: _P.BETWEEN_TREES,
        },
    },
    (_P.FINISHED, _P.FAILED, _P.INTERRUPTED),
    PassiveTrainingState,
)
