"""Objectives and metrics as functions of (y_true, y_pred), as XGBoost's estimators take them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.objectives.custom import LabelledRows
from fedmq.errors import ConfigError

__all__ = ["metric_function", "named_metrics", "objective_function"]


@dataclass(frozen=True, slots=True)
class _Objective:
    """g and h of margins by ``function``, as ``xgboost.train`` asks for them."""

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
    """The function among ``eval_metric``, one metric or several; ConfigError if there are two."""
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
