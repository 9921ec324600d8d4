"""What is legal when, while a name is given a model to serve?"""

from __future__ import annotations

from enum import Enum

from fedmq.messages import online
from fedmq.messages.body import ConsentPendingMessage, SessionRefuse
from fedmq.protocol.events import ComputationFailed, ConsentDecided, Start
from fedmq.protocol.machine import ASKS_OWNER, REFUSES, Done, When, session_table

__all__ = [
    "ACTIVE_DEPLOYMENT",
    "PASSIVE_DEPLOYMENT",
    "ActiveDeploymentState",
    "PassiveDeploymentState",
]


class ActiveDeploymentState(Enum):
    """Where the active party stands in giving a name a model to serve."""

    READY = "not begun"
    PREPARING = "the passive parties load their shares"
    SWITCHING = "all are ready, the name changes its meaning everywhere"
    FINISHED = "the name means the model at every party, or it was only asked if it could"
    FAILED = "the name means what it meant before"


class PassiveDeploymentState(Enum):
    """Where a passive party stands in making a model ready to serve."""

    READY = "not begun"
    ASKING = "its owner is asked, nothing is loaded"
    LOADING = "share and rows are loaded"
    LOADED = "ready, waiting for the others"
    FINISHED = "the model is served, or it was only asked if it could be"
    FAILED = "what was served before is served on"


_D = ActiveDeploymentState

ALL_READY = When("every party is ready")
ALL_COULD = When("every party could, and was only asked")
ALL_SERVE = When("every party serves the model")

ACTIVE_DEPLOYMENT = session_table(
    {
        _D.READY: {Start: _D.PREPARING},
        _D.PREPARING: {
            ConsentPendingMessage: _D.PREPARING,
            online.ModelReady: _D.PREPARING,
            ALL_READY: _D.SWITCHING,
            ALL_COULD: _D.FINISHED,
            SessionRefuse: _D.FAILED,
        },
        _D.SWITCHING: {
            online.ModelDeployed: _D.SWITCHING,
            ALL_SERVE: _D.FINISHED,
        },
    },
    (_D.FINISHED, _D.FAILED),
    ActiveDeploymentState,
)


_H = PassiveDeploymentState

SHARE = Done("share and rows")

PASSIVE_DEPLOYMENT = session_table(
    {
        _H.READY: {online.ModelDeploy: _H.LOADING},
        _H.ASKING: {ConsentDecided: _H.LOADING},
        _H.LOADING: {
            ASKS_OWNER: _H.ASKING,
            SHARE: _H.LOADED,
            ComputationFailed: _H.LOADING,
            REFUSES: _H.FAILED,
        },
        _H.LOADED: {
            online.ModelSwitch: _H.FINISHED,
            online.ModelDismiss: _H.FINISHED,
            REFUSES: _H.FAILED,
        },
    },
    (_H.FINISHED, _H.FAILED),
    PassiveDeploymentState,
)
