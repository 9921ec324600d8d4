"""States and tables of giving a name a model to serve."""

from __future__ import annotations

from enum import Enum

from fedmq.messages import online
from fedmq.messages.body import SessionRefuse
from fedmq.protocol.events import ComputationFailed, PlanReturned, Start
from fedmq.protocol.table import Table, rows, session_table

__all__ = [
    "ACTIVE_DEPLOYMENT",
    "PASSIVE_DEPLOYMENT",
    "ActiveDeploymentState",
    "PassiveDeploymentState",
]


class ActiveDeploymentState(Enum):
    """Where the label holder stands in giving a name a model to serve."""

    READY = "not begun"
    PREPARING = "the passive parties load their shares"
    SWITCHING = "all are ready, the name changes its meaning everywhere"
    FINISHED = "the name means the model at every party, or it was only asked if it could"
    FAILED = "the name means what it meant before"


class PassiveDeploymentState(Enum):
    """Where a feature holder stands in making a model ready to serve."""

    READY = "not begun"
    LOADING = "share and rows are loaded"
    LOADED = "ready, waiting for the others"
    FINISHED = "the model is served, or it was only asked if it could be"
    FAILED = "what was served before is served on"


_D = ActiveDeploymentState


ACTIVE_DEPLOYMENT: Table = session_table(
    {
        **rows(_D.READY, {Start: ("_on_start", (_D.PREPARING, _D.FINISHED))}),
        **rows(
            _D.PREPARING,
            {
                online.ModelReady: ("_on_ready", (_D.PREPARING, _D.SWITCHING, _D.FINISHED)),
                SessionRefuse: ("_on_refuse", (_D.FAILED,)),
            },
        ),
        **rows(
            _D.SWITCHING,
            {online.ModelDeployed: ("_on_deployed", (_D.SWITCHING, _D.FINISHED))},
        ),
    },
    (_D.FINISHED, _D.FAILED),
    ActiveDeploymentState,
)


_H = PassiveDeploymentState


PASSIVE_DEPLOYMENT: Table = session_table(
    {
        **rows(_H.READY, {online.ModelDeploy: ("_on_deploy", (_H.LOADING, _H.FAILED))}),
        **rows(
            _H.LOADING,
            {
                PlanReturned: ("_on_returned", (_H.LOADED,)),
                ComputationFailed: ("_on_unprepared", (_H.FAILED,)),
            },
        ),
        **rows(
            _H.LOADED,
            {
                online.ModelSwitch: ("_on_switch", (_H.FINISHED,)),
                online.ModelDismiss: ("_on_dismiss", (_H.FINISHED,)),
            },
        ),
    },
    (_H.FINISHED, _H.FAILED),
    PassiveDeploymentState,
)
