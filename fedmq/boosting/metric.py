"""Evaluation metrics, and when they end a training early."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from fedmq.boosting.params import MetricName

__all__ = ["METRICS", "EarlyStopping", "Metric", "auc", "logloss", "rmse"]

_SMALLEST_PROBABILITY = 1e-16


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric: its value for (labels, predictions), and whether more is better."""

    name: MetricName
    of: Callable[[NDArray[np.float32], NDArray[np.float32]], float]
    maximize: bool


def logloss(labels: NDArray[np.float32], predictions: NDArray[np.float32]) -> float:
    """Mean negative log likelihood of 0/1 ``labels`` under float32 probabilities; both (rows,)."""
    likely = np.where(labels == 1, predictions, np.float32(1) - predictions)
    return _printed(_mean(-np.log(np.maximum(likely.astype(np.float64), _SMALLEST_PROBABILITY))))


def auc(labels: NDArray[np.float32], predictions: NDArray[np.float32]) -> float:
    """Area under the ROC curve by midranks (Mann-Whitney U); NaN if only one class is present."""
    _, group, counts = np.unique(predictions, return_inverse=True, return_counts=True)
    midranks = np.cumsum(counts) - (counts - 1) / 2
    positive = labels == 1
    n_positive = int(positive.sum())
    n_pairs = n_positive * (len(labels) - n_positive)
    if n_pairs == 0:
        return float("nan")
    u = midranks[group[positive]].sum() - n_positive * (n_positive + 1) / 2
    return float(u / n_pairs)


def rmse(labels: NDArray[np.float32], predictions: NDArray[np.float32]) -> float:
    """Root of the mean squared difference; both float32 (rows,)."""
    with np.errstate(over="ignore"):
        return _printed(np.sqrt(_mean(np.square(predictions - labels))))


def _mean(losses: NDArray[np.floating]) -> float:
    """The mean as XGBoost has it, so that early stopping ends where its own does.

    Losses in float32, summed in double one after the other.
    """
    summed = np.cumsum(losses.astype(np.float32).astype(np.float64))
    return float(summed[-1] / len(losses)) if len(losses) else float("nan")


def _printed(value: float) -> float:
    """XGBoost compares what it prints, with 17 decimals; and no zero is negative."""
    return round(float(value), 17) + 0.0


METRICS: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("logloss", logloss, maximize=False),
        Metric("auc", auc, maximize=True),
        Metric("rmse", rmse, maximize=False),
    )
}
"""Metrics by name."""


class EarlyStopping(BaseModel):
    """Ends a training after ``rounds`` rounds without a better score, as XGBoost does."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    rounds: int
    maximize: bool
    best_score: float | None = None
    best_iteration: int = 0
    rounds_without_gain: int = 0

    def after(self, iteration: int, score: float) -> EarlyStopping:
        """The state after round ``iteration`` (from 0) scored ``score``."""
        best = self.best_score
        if best is None or (score > best if self.maximize else score < best):
            gain = {"best_score": score, "best_iteration": iteration, "rounds_without_gain": 0}
        else:
            gain = {"rounds_without_gain": self.rounds_without_gain + 1}
        return self.model_copy(update=gain)

    @property
    def is_due(self) -> bool:
        """Whether training ends now."""
        return self.rounds_without_gain >= self.rounds
