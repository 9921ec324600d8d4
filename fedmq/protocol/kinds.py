"""Which kinds of session are there? Each is one entry, which says all that others need to know.

The lanes on which sessions publish, the policy that allows them, whether they go on after a crash,
and the diagrams follow from the entries. `register` adds a kind from outside.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Literal

from fedmq.errors import ConfigError
from fedmq.messages import (
    alignment,
    codec,
    inference,
    model_request,
    online,
    overlap,
    screen,
    training,
)
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
from fedmq.protocol.online.states import (
    ONLINE_BATCH,
    SEALED_BATCH,
    OnlineBatchState,
    SealedBatchState,
)
from fedmq.protocol.overlap.states import (
    ACTIVE_OVERLAP,
    PASSIVE_OVERLAP,
    ActiveOverlapState,
    PassiveOverlapState,
)
from fedmq.protocol.screen.states import (
    ACTIVE_PAIR,
    ACTIVE_SCREEN,
    PASSIVE_PAIR,
    PASSIVE_SCREEN,
    ActivePairState,
    ActiveScreenState,
    PassivePairState,
    PassiveScreenState,
)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionKind:
    """A kind of session between the parties."""

    name: str
    """Its name in status, logs and metrics."""
    bodies: Sequence[type[Body]]
    """The bodies that its machines send, besides those of every session."""
    lane: Literal["training", "inference", "online"]
    """The lane on which its messages travel."""
    policy: str | None
    """The word in ``sessions`` of a party's [policy] that allows it; None: no word is needed."""
    outlives_crash: bool
    """Whether a new attempt continues it after a party's restart; otherwise it ends with one."""
    sides: tuple[Side, ...]
    """The machines of the parties."""


SESSION_KINDS: dict[str, SessionKind] = {
    kind.name: kind
    for kind in (
        SessionKind(
            name="alignment",
            bodies=alignment.BODIES,
            lane="training",
            policy="alignment",
            outlives_crash=False,
            sides=(
                Side("Alignment: the active party", ACTIVE_ALIGNMENT, ActiveAlignmentState),
                Side("Alignment: a passive party", PASSIVE_ALIGNMENT, PassiveAlignmentState),
            ),
        ),
        SessionKind(
            name="overlap",
            bodies=overlap.BODIES,
            lane="training",
            policy="alignment",
            outlives_crash=False,
            sides=(
                Side("Overlap: the active party", ACTIVE_OVERLAP, ActiveOverlapState),
                Side("Overlap: a passive party", PASSIVE_OVERLAP, PassiveOverlapState),
            ),
        ),
        SessionKind(
            name="screen",
            bodies=screen.BODIES,
            lane="training",
            policy="training",
            outlives_crash=False,
            sides=(
                Side("Screen: the active party", ACTIVE_SCREEN, ActiveScreenState),
                Side("Screen: a passive party", PASSIVE_SCREEN, PassiveScreenState),
                Side("Two others' columns: the active party", ACTIVE_PAIR, ActivePairState),
                Side("Two others' columns: one of both", PASSIVE_PAIR, PassivePairState),
            ),
        ),
        SessionKind(
            name="training",
            bodies=training.BODIES,
            lane="training",
            policy="training",
            outlives_crash=True,
            sides=(
                Side("Training: the active party", ACTIVE_TRAINING, ActiveTrainingState),
                Side("Training: a passive party", PASSIVE_TRAINING, PassiveTrainingState),
            ),
        ),
        SessionKind(
            name="inference",
            bodies=inference.BODIES,
            lane="inference",
            policy="inference",
            outlives_crash=False,
            sides=(
                Side("Inference: the active party", ACTIVE_INFERENCE, ActiveInferenceState),
                Side("Inference: a passive party", PASSIVE_INFERENCE, PassiveInferenceState),
            ),
        ),
        SessionKind(  # its batches are not sessions: each lives for a few milliseconds
            name="online scores",
            bodies=online.BODIES,
            lane="online",
            policy="inference",
            outlives_crash=False,
            sides=(
                Side("Online scores: a batch at the active party", ONLINE_BATCH, OnlineBatchState),
                Side(
                    "Online scores: a sealed batch at the active party",
                    SEALED_BATCH,
                    SealedBatchState,
                ),
            ),
        ),
        SessionKind(
            name="activation",
            bodies=online.BODIES,
            lane="inference",
            policy="inference",
            outlives_crash=False,
            sides=(
                Side("Serving a model: the active party", ACTIVE_DEPLOYMENT, ActiveDeploymentState),
                Side(
                    "Serving a model: a passive party", PASSIVE_DEPLOYMENT, PassiveDeploymentState
                ),
            ),
        ),
        SessionKind(
            name="model request",
            bodies=model_request.BODIES,
            lane="inference",
            policy=None,  # a key of its own allows each question
            outlives_crash=False,
            sides=(
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
        raise ConfigError(f"session kind {kind.name!r} exists already")
    for body in kind.bodies:
        if codec.KINDS.get(body.kind, body) is not body:
            raise ConfigError(f"message kind {body.kind!r} exists already")
    SESSION_KINDS[kind.name] = kind
    codec.KINDS.update({body.kind: body for body in kind.bodies})
