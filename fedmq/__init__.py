"""fedmq: vertical federated gradient boosting over a message broker.

Several organisations hold different columns about the same people, one of them the label. They
train one XGBoost-style model together, and nobody shows its table.
"""

from fedmq.boosting.callbacks import TrainingCallback
from fedmq.boosting.params import TrainParams
from fedmq.client import AsyncClient, Client
from fedmq.errors import FedmqError
from fedmq.leakage.audit import AuditReport, audit
from fedmq.leakage.encrypted_gradients import encrypted_gradients
from fedmq.party.sessions.recording import Recording
from fedmq.simulation.comparison import XGBoostComparison, compare_with_xgboost
from fedmq.simulation.model import SimulatedModel
from fedmq.simulation.simulate import simulate

__all__ = [
    "AsyncClient",
    "AuditReport",
    "Client",
    "FedmqError",
    "Recording",
    "SimulatedModel",
    "TrainParams",
    "TrainingCallback",
    "XGBoostComparison",
    "audit",
    "compare_with_xgboost",
    "encrypted_gradients",
    "simulate",
]
