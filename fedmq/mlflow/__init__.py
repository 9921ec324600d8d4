"""How does MLflow know of trainings and models? Each is logged by the party that asks for it.

``tracking``  a training by daemons becomes a run: parameters, figures, card and share
``models``    a model becomes one of MLflow's, which scores through the daemon

They need the extra ``fedmq[mlflow]``. Nothing is sent but to the tracking store.
"""

import os
import warnings

from fedmq.errors import ConfigError

# MLflow reports to its makers which functions are used, unless it is told not to.
os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # MLflow warns of its own types
        import mlflow.pyfunc  # noqa: F401  (asked for here: one line says what is missing)
except ImportError:
    raise ConfigError("mlflow is not installed; run: pip install 'fedmq[mlflow]'") from None

from fedmq.mlflow.models import load_model, log_model, save_model
from fedmq.mlflow.tracking import autolog

__all__ = ["autolog", "load_model", "log_model", "save_model"]
