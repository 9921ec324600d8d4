"""The states of all machines, and the tables of what is legal in them.

Two rules: everything that decides which event is legal when, and where it may lead, is in these
files; and nothing here knows how an event is handled. The diagrams in the documentation are made
from these tables.

A table maps ``(state, event)`` to the handler's name and the states it may lead to. A message is
known by its body's class. Every state but the last ones may also lead to its machine's FAILED.
"""

from fedmq.protocol.states.alignment import (
    ACTIVE_ALIGNMENT,
    PASSIVE_ALIGNMENT,
    ActiveAlignmentState,
    PassiveAlignmentState,
)
from fedmq.protocol.states.inference import (
    ACTIVE_INFERENCE,
    PASSIVE_INFERENCE,
    ActiveInferenceState,
    PassiveInferenceState,
)
from fedmq.protocol.states.online import (
    DEPLOYING,
    HOSTING,
    ONLINE_BATCH,
    DeployingState,
    HostingState,
    OnlineBatchState,
)
from fedmq.protocol.states.table import (
    Table,
    Transition,
)
from fedmq.protocol.states.training import (
    ACTIVE_TRAINING,
    PASSIVE_TRAINING,
    ActiveTrainingState,
    PassiveTrainingState,
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
