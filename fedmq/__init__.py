"""fedmq: vertical federated gradient boosting over a message broker.

Several organisations hold different columns about the same people, one of them the label. They
train one XGBoost-style model together, and nobody shows its table.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fedmq.boosting.callbacks import TrainingCallback
from fedmq.boosting.params import TrainParams
from fedmq.client import AsyncClient, Client
from fedmq.errors import FedmqError
from fedmq.leakage.audit import AuditReport, audit
from fedmq.leakage.encrypted_gradients import encrypted_gradients
from fedmq.party.sessions.observe import Recording
from fedmq.simulation.comparison import XGBoostComparison, compare_with_xgboost
from fedmq.simulation.cross_validation import cv
from fedmq.simulation.model import SimulatedModel
from fedmq.simulation.simulate import simulate

if TYPE_CHECKING:
    from fedmq.estimators.classifier import FederatedClassifier as FederatedClassifier
    from fedmq.estimators.regressor import FederatedRegressor as FederatedRegressor

__version__ = "0.1.0"

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
    "cv",
    "encrypted_gradients",
    "simulate",
]

_ESTIMATORS = {
    "FederatedClassifier": "fedmq.estimators.classifier",
    "FederatedRegressor": "fedmq.estimators.regressor",
}
"""Of scikit-learn, which is imported when one of them is asked for."""


def __getattr__(name: str) -> Any:
    if name in _ESTIMATORS:
        return getattr(import_module(_ESTIMATORS[name]), name)
    raise AttributeError(f"module 'fedmq' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted((*globals(), *_ESTIMATORS))
