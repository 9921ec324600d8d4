"""The parameters of a training, by the names of XGBoost's scikit-learn estimators.

Objectives and metrics may be functions of (y_true, y_pred), as XGBoost's estimators take them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.objectives.custom import LabelledRows
from fedmq.boosting.params import ALIASES, WITHOUT_EFFECT, TrainParams
from fedmq.errors import ConfigError

__all__ = [
    "DEFAULT_ROUNDS",
    "PARAMETERS",
    "TRAINING_PARAMETERS",
    "check_known",
    "metric_function",
    "named_metrics",
    "objective_function",
    "with_training_parameters",
]

DEFAULT_ROUNDS = 100
"""Rounds where ``n_estimators`` is left out, as in XGBoost's estimators."""

_SKLEARN_NAMES = {"eta": "learning_rate", "num_boost_round": "n_estimators", "seed": "random_state"}
_FROM_LABELS = ("num_class", "num_target")

_LEFT_OUT = {
    "use_label_encoder": "labels may be words or numbers, and need no encoder",
}
"""Older parameters of XGBoost's estimators, and why there is no need of them."""

TRAINING_PARAMETERS: Mapping[str, str] = {
    _SKLEARN_NAMES.get(field, field): field
    for field in TrainParams.model_fields
    if field not in _FROM_LABELS
}
"""The field of :class:`fedmq.TrainParams` by the estimators' name for it."""

PARAMETERS: Mapping[str, str] = {**TRAINING_PARAMETERS, **{name: name for name in WITHOUT_EFFECT}}
"""Training parameters, and those of XGBoost that change no model: estimators keep these too."""


def with_training_parameters(init: Callable[..., None]) -> Callable[..., None]:
    """``init`` whose signature shows every training parameter in place of its ``**params``.

    Each defaults to None: XGBoost's default.
    """
    signature = inspect.signature(init)
    own = [given for given in signature.parameters.values() if given.kind != given.VAR_KEYWORD]
    named = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None) for name in PARAMETERS
    ]
    shown = signature.replace(parameters=[*own, *named])
    init.__signature__ = shown  # type: ignore[attr-defined]  # inspect reads it from any function
    return init


def check_known(estimator: str, params: Mapping[str, Any]) -> None:
    """Raise `TypeError` if ``params`` names an unknown training parameter of ``estimator``."""
    for name in params:
        if name in PARAMETERS:
            continue
        if name in _FROM_LABELS:
            raise TypeError(f"{estimator}: {name} is read from the labels; leave it out")
        if name in _LEFT_OUT:
            raise TypeError(f"{estimator}: {name}: {_LEFT_OUT[name]}; leave it out")
        field = ALIASES.get(name, name)
        known = _SKLEARN_NAMES.get(field, field)
        meant = f"; it is called {known} here" if known in TRAINING_PARAMETERS else ""
        raise TypeError(f"{estimator}: unexpected parameter {name!r}{meant}")


@dataclass(frozen=True, slots=True)
class _Objective:
    """g and h of margins by ``function``, with the interface of ``xgboost.train``."""

    function: Callable[..., Any]

    def __call__(self, margins: NDArray[np.float32], rows: LabelledRows) -> Any:
        return self.function(rows.get_label(), margins, **_weighted(rows))


@dataclass(frozen=True, slots=True)
class _Metric:
    """Name and value by ``function``, such as one of ``sklearn.metrics``."""

    function: Callable[..., Any]

    def __call__(self, predictions: NDArray[np.float32], rows: LabelledRows) -> tuple[str, float]:
        value = self.function(rows.get_label(), predictions, **_weighted(rows))
        return _name(self.function), float(value)


def objective_function(objective: Any, weighted: bool = False) -> _Objective | None:
    """``objective`` if it is a function; ``weighted``: rows have weights.

    Raises:
        ConfigError: rows are weighted, and it takes no ``sample_weight``.
    """
    if not callable(objective):
        return None
    if weighted and "sample_weight" not in inspect.signature(objective).parameters:
        raise ConfigError("objective: it has no parameter sample_weight, and rows have weights")
    return _Objective(objective)


def metric_function(eval_metric: Any) -> _Metric | None:
    """The function among the metrics of ``eval_metric``; ConfigError if there are two."""
    functions = [metric for metric in _several(eval_metric) if callable(metric)]
    if len(functions) > 1:
        raise ConfigError("eval_metric: neither XGBoost nor fedmq takes several functions")
    return _Metric(functions[0]) if functions else None


def named_metrics(eval_metric: Any) -> Any:
    """``eval_metric`` without its function."""
    if callable(eval_metric):
        return ()
    if isinstance(eval_metric, str):
        return eval_metric
    return tuple(metric for metric in _several(eval_metric) if not callable(metric))


def _several(eval_metric: Any) -> Sequence[Any]:
    if eval_metric is None:
        return ()
    return eval_metric if isinstance(eval_metric, list | tuple) else (eval_metric,)


def _weighted(rows: LabelledRows) -> dict[str, NDArray[np.float32]]:
    weight = rows.get_weight()
    return {"sample_weight": weight} if len(weight) else {}


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", type(function).__name__))
