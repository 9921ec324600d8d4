"""Which kinds of session are there? Each is one entry: its name, messages, lane and machines.

The codec, the lanes on which sessions publish, and the diagrams follow from the entries. `register`
adds a kind from outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from fedmq.errors import ConfigError
from fedmq.messages import alignment, codec, inference, model_request, online, training
from fedmq.messages.body import Body
from fedmq.protocol.alignment.states import (
    ACTIVE_ALIGNMENT,
    PASSIVE_ALIGNMENT,
    ActiveAlignmentState,
    PassiveAlignmentState,
)
from fedmq.protocol.deployment.states import (
    ACTIVE_DEPLOYMENT,
    PASSIVE_DEPLOYMENT,
    ActiveDeploymentState,
    PassiveDeploymentState,
)
from fedmq.protocol.inference.states import (
    ACTIVE_INFERENCE,
    PASSIVE_INFERENCE,
    ActiveInferenceState,
    PassiveInferenceState,
)
from fedmq.protocol.machine import Table
from fedmq.protocol.model_request.states import (
    ACTIVE_MODEL_REQUEST,
    PASSIVE_MODEL_REQUEST,
    ActiveModelRequestState,
    PassiveModelRequestState,
)
from fedmq.protocol.online.states import ONLINE_BATCH, OnlineBatchState
from fedmq.protocol.training.states import (
    ACTIVE_TRAINING,
    PASSIVE_TRAINING,
    ActiveTrainingState,
    PassiveTrainingState,
)

__all__ = ["SESSION_KINDS", "SessionKind", "Side", "register"]


@dataclass(frozen=True, slots=True)
class Side:
    """The machine of one side: its display ``name``, its table, and its states."""

    name: str
    table: Table
    states: type[Enum]


@dataclass(frozen=True, slots=True)
class SessionKind:
    """A kind of session between the parties.

    ``name``: its name in status, logs and metrics. ``bodies``: the bodies that its machines send,
    besides those of every session. Its messages travel on ``lane``.
    """

    name: str
    bodies: Sequence[type[Body]]
    lane: Literal["training", "inference", "online"]
    sides: tuple[Side, ...]


SESSION_KINDS: dict[str, SessionKind] = {
    kind.name: kind
    for kind in (
        SessionKind(
            "alignment",
            alignment.BODIES,
            "training",
            (
                Side("Alignment: the active party", ACTIVE_ALIGNMENT, ActiveAlignmentState),
                Side("Alignment: a passive party", PASSIVE_ALIGNMENT, PassiveAlignmentState),
            ),
        ),
        SessionKind(
            "training",
            training.BODIES,
            "training",
            (
                Side("Training: the active party", ACTIVE_TRAINING, ActiveTrainingState),
                Side("Training: a passive party", PASSIVE_TRAINING, PassiveTrainingState),
            ),
        ),
        SessionKind(
            "inference",
            inference.BODIES,
            "inference",
            (
                Side("Inference: the active party", ACTIVE_INFERENCE, ActiveInferenceState),
                Side("Inference: a passive party", PASSIVE_INFERENCE, PassiveInferenceState),
            ),
        ),
        SessionKind(  # its batches are not sessions: each lives for a few milliseconds
            "online scores",
            online.BODIES,
            "online",
            (Side("Online scores: a batch at the active party", ONLINE_BATCH, OnlineBatchState),),
        ),
        SessionKind(
            "activation",
            online.BODIES,
            "inference",
            (
                Side("Serving a model: the active party", ACTIVE_DEPLOYMENT, ActiveDeploymentState),
                Side(
                    "Serving a model: a passive party", PASSIVE_DEPLOYMENT, PassiveDeploymentState
                ),
            ),
        ),
        SessionKind(
            "model request",
            model_request.BODIES,
            "inference",
            (
                Side(
                    "A request about a model: the active party",
                    ACTIVE_MODEL_REQUEST,
                    ActiveModelRequestState,
                ),
                Side(
                    "A request about a model: a passive party",
                    PASSIVE_MODEL_REQUEST,
                    PassiveModelRequestState,
                ),
            ),
        ),
    )
}
"""Every kind by its name."""


def register(kind: SessionKind) -> None:
    """Add a kind. All parties of a session must have added it.

    Raises:
        ConfigError: a kind of this name exists, or a message of another kind has the name of one of
            its bodies.
    """
    if SESSION_KINDS.get(kind.name, kind) is not kind:
        raise ConfigError(f"there is a session kind {kind.name!r} already")
    for body in kind.bodies:
        if codec.KINDS.get(body.kind, body) is not body:
            raise ConfigError(f"there is a message {body.kind!r} already")
    SESSION_KINDS[kind.name] = kind
    codec.KINDS.update({body.kind: body for body in kind.bodies})
