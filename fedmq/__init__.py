"""fedmq: vertical federated gradient boosting over a message broker.

Several organisations hold different columns about the same people, one of them the label. They
train one XGBoost-style model together, and nobody shows its table.

This file is the public API: all names are in `PUBLIC`, by what they are for. A name is imported
when it is first used, so ``import fedmq`` itself costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

PUBLIC = {
    "Before a training": {
        "screen": "fedmq.simulation.screen",
        "Screen": "fedmq.evaluation.screening",
    },
    "Train": {
        "simulate": "fedmq.simulation.simulate",
        "cv": "fedmq.simulation.cross_validation",
        "TrainParams": "fedmq.boosting.params",
        "TrainingCallback": "fedmq.boosting.callbacks",
        "compare_with_xgboost": "fedmq.simulation.comparison",
    },
    "With scikit-learn": {
        "FederatedClassifier": "fedmq.estimators.estimator",
        "FederatedRegressor": "fedmq.estimators.estimator",
        "FederatedRanker": "fedmq.estimators.ranker",
        "ScreenSelector": "fedmq.estimators.selector",
    },
    "Models": {
        "SimulatedModel": "fedmq.simulation.model",
        "XGBoostComparison": "fedmq.simulation.comparison",
    },
    "Drive daemons": {
        "connect": "fedmq.workbench.connection",
    },
    "Scores from a daemon": {
        "Client": "fedmq.client",
        "AsyncClient": "fedmq.client",
    },
    "What a party saw": {
        "audit": "fedmq.leakage.audit",
        "AuditReport": "fedmq.leakage.audit",
        "Recording": "fedmq.party.sessions.observe",
        "encrypted_gradients": "fedmq.leakage.view",
    },
    "Errors": {
        "FedmqError": "fedmq.errors",
    },
}
"""The public names, and the module that defines each."""

_ELSEWHERE = {
    "Booster": "fedmq.SimulatedModel is the model",
    "DMatrix": "tables are given as they are",
    "XGBClassifier": "it is called FederatedClassifier",
    "XGBRanker": "it is called FederatedRanker",
    "XGBRegressor": "it is called FederatedRegressor",
    "train": "it is called simulate",
}
"""XGBoost's names, and what to use here."""

__all__ = [
    "AsyncClient",
    "AuditReport",
    "Client",
    "FedmqError",
    "Recording",
    "Screen",
    "SimulatedModel",
    "TrainParams",
    "TrainingCallback",
    "XGBoostComparison",
    "audit",
    "compare_with_xgboost",
    "connect",
    "cv",
    "encrypted_gradients",
    "screen",
    "simulate",
]  # without the estimators: ``from fedmq import *`` works without scikit-learn

if TYPE_CHECKING:
    from fedmq import client as client
    from fedmq import errors as errors
    from fedmq import mlflow as mlflow
    from fedmq.boosting.callbacks import TrainingCallback
    from fedmq.boosting.params import TrainParams
    from fedmq.client import AsyncClient, Client
    from fedmq.errors import FedmqError
    from fedmq.estimators.estimator import FederatedClassifier as FederatedClassifier
    from fedmq.estimators.estimator import FederatedRegressor as FederatedRegressor
    from fedmq.estimators.ranker import FederatedRanker as FederatedRanker
    from fedmq.estimators.selector import ScreenSelector as ScreenSelector
    from fedmq.evaluation.screening import Screen
    from fedmq.leakage.audit import AuditReport, audit
    from fedmq.leakage.view import encrypted_gradients
    from fedmq.party.sessions.observe import Recording
    from fedmq.simulation.comparison import XGBoostComparison, compare_with_xgboost
    from fedmq.simulation.cross_validation import cv
    from fedmq.simulation.model import SimulatedModel
    from fedmq.simulation.screen import screen
    from fedmq.simulation.simulate import simulate
    from fedmq.workbench.connection import connect
else:  # hidden from type checkers, for which every name would exist otherwise

    def __getattr__(name: str) -> object:
        """Import a public name, or one of the modules beside them, at its first use."""
        if name in ("client", "errors", "mlflow"):
            return import_module(f"fedmq.{name}")
        for modules in PUBLIC.values():
            if name in modules:
                value = globals()[name] = getattr(import_module(modules[name]), name)
                return value
        hint = f": {_ELSEWHERE[name]}" if name in _ELSEWHERE else ""
        raise AttributeError(f"module 'fedmq' has no attribute {name!r}{hint}")


def __dir__() -> list[str]:
    return sorted(["__version__", *(name for names in PUBLIC.values() for name in names)])
