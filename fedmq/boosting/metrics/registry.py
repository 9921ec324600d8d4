"""Which metrics do parameters name?"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.metrics.classes import match_error, multi_log_loss
from fedmq.boosting.metrics.curves import auc, aucpr, ks, prevalence_mean
from fedmq.boosting.metrics.losses import LOSSES, error, mean_of, pinball, pseudo_huber, tweedie
from fedmq.boosting.metrics.metric import Metric, Weight, mean, printed
from fedmq.boosting.objectives.custom import CustomMetric
from fedmq.boosting.objectives.survival import survival_loss
from fedmq.boosting.params import TrainParams

__all__ = ["metric_of", "watched_maximizes"]

_CURVES = {
    metric.name: metric
    for metric in (
        Metric("auc", auc, maximize=True),
        Metric("aucpr", aucpr, maximize=True),
        Metric("ks", ks, maximize=True),
    )
}
_OF_CLASSES = {
    "mlogloss": Metric("mlogloss", mean_of(multi_log_loss)),
    "merror": Metric("merror", mean_of(match_error)),
}


def metric_of(name: str, params: TrainParams) -> Metric:
    """The metric ``name``, one of ``params.eval_metric``."""
    kind, _, argument = name.partition("@")
    if argument and kind == "error":
        return Metric(name, mean_of(partial(error, float(argument))))
    if kind == "tweedie-nloglik":
        return Metric(name, mean_of(partial(tweedie, float(argument))))
    if params.outputs > 1 and name in _CURVES:
        return Metric(name, partial(prevalence_mean, _CURVES[name].of), maximize=True)
    if name == "mphe":
        return Metric(name, mean_of(partial(pseudo_huber, params.huber_slope)))
    if name == "quantile" and params.quantile_alpha is not None:
        return Metric(name, mean_of(partial(pinball, params.quantile_alpha)))
    if name == "aft-nloglik":
        return Metric(
            name,
            partial(_survival, params.aft_loss_distribution, params.aft_loss_distribution_scale),
        )
    if name == "interval-regression-accuracy":
        return Metric(name, _interval_accuracy, maximize=False)
    return {**LOSSES, **_CURVES, **_OF_CLASSES}[name]


def watched_maximizes(name: str, params: TrainParams, custom: CustomMetric | None) -> bool:
    """Whether more is better of ``name``, which early stopping watches: the last one there is.

    That is a caller's own where there is one, and otherwise the last of ``eval_metric``.
    """
    if custom is not None:
        return custom.maximizes(name)
    return metric_of(params.eval_metric[-1], params).maximize


def _survival(
    distribution: str,
    scale: float,
    labels: NDArray[np.float32],
    margins: NDArray[np.float32],
    weight: Weight,
) -> float:
    losses = survival_loss(margins, labels, distribution, scale)  # type: ignore[arg-type]
    return _double_mean(losses, weight)


def _interval_accuracy(
    labels: NDArray[np.float32], margins: NDArray[np.float32], weight: Weight
) -> float:
    times = np.exp(margins.astype(np.float64))
    held = (times >= labels[:, 0]) & (times <= labels[:, 1])
    return _double_mean(held.astype(np.float64), weight)


def _double_mean(losses: NDArray[np.float64], weight: Weight) -> float:
    if weight is None:
        return (
            printed(float(np.cumsum(losses)[-1]) / len(losses))
            if len(losses)
            else mean(losses, None)
        )
    weights = float(np.cumsum(weight.astype(np.float64))[-1])
    return printed(float(np.cumsum(losses * weight)[-1]) / (weights or 1.0))
