"""Metrics that are means of a loss per row: float32 (rows,) of labels and predictions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting import single_precision
from fedmq.boosting.metrics.metric import Metric, Weight, mean, printed, total

__all__ = [
    "LOSSES",
    "error",
    "logloss",
    "mean_of",
    "pinball",
    "pseudo_huber",
    "rmse",
    "tweedie",
]

_Floats = NDArray[np.float32]
_Loss = Callable[[_Floats, _Floats], _Floats]

_ONE = np.float32(1)
_SMALLEST = np.float32(1e-16)
_EPSILON = np.float32(1e-6)  # XGBoost's kRtEps


def mean_of(loss: _Loss) -> Callable[[_Floats, _Floats, Weight], float]:
    """The weighted mean of a loss, as a metric takes it."""
    return partial(_mean_of, loss)


def _mean_of(loss: _Loss, labels: _Floats, predictions: _Floats, weight: Weight) -> float:
    with np.errstate(all="ignore"):
        return printed(mean(loss(labels, predictions), weight))


def _root_of(loss: _Loss, labels: _Floats, predictions: _Floats, weight: Weight) -> float:
    with np.errstate(all="ignore"):
        return printed(np.sqrt(mean(loss(labels, predictions), weight)))


def _squared(labels: _Floats, predictions: _Floats) -> _Floats:
    z = labels - predictions
    return z * z


def _squared_log(labels: _Floats, predictions: _Floats) -> _Floats:
    z = single_precision.log1p(labels) - single_precision.log1p(predictions)
    return z * z


def _absolute(labels: _Floats, predictions: _Floats) -> _Floats:
    losses: _Floats = np.abs(labels - predictions)
    return losses


def _relative(labels: _Floats, predictions: _Floats) -> _Floats:
    losses: _Floats = np.abs((labels - predictions) / labels)
    return losses


def _log_loss(labels: _Floats, predictions: _Floats) -> _Floats:
    def weighted_log(share: _Floats, probability: _Floats) -> _Floats:
        logs = single_precision.log(np.maximum(probability, _SMALLEST))
        return np.where(share == 0, np.float32(0), share * logs)

    return weighted_log(-labels, predictions) + weighted_log(-(_ONE - labels), _ONE - predictions)


def _poisson(labels: _Floats, predictions: _Floats) -> _Floats:
    p = np.maximum(predictions, _SMALLEST)
    return single_precision.lgamma(labels + _ONE) + p - single_precision.log(p) * labels


def _gamma(labels: _Floats, predictions: _Floats) -> _Floats:
    theta = (-1.0 / np.maximum(predictions, _EPSILON).astype(np.float64)).astype(np.float32)
    return -(labels * theta + single_precision.log(-theta))


def _gamma_deviance(labels: _Floats, predictions: _Floats, weight: Weight) -> float:
    y, p = labels + _EPSILON, predictions + _EPSILON
    losses = single_precision.log(p / y) + y / p - _ONE
    weights = float(len(losses)) if weight is None else total(weight)
    sums = total(losses if weight is None else losses * weight)
    return printed(2 * sums / (weights if weights > 0 else float(_EPSILON)))


def error(threshold: float, labels: _Floats, predictions: _Floats) -> _Floats:
    """1 where a prediction lies on the wrong side of ``threshold``; labels are 0 and 1."""
    return np.where(predictions > np.float32(threshold), _ONE - labels, labels)


def pseudo_huber(slope: float, labels: _Floats, predictions: _Floats) -> _Floats:
    """``s^2 (sqrt(1 + (z/s)^2) - 1)`` of the residual z."""
    s = np.float32(slope)
    z = (labels - predictions) / s
    losses: _Floats = s * s * (np.sqrt(_ONE + z * z) - _ONE)
    return losses


def pinball(alpha: float, labels: _Floats, predictions: _Floats) -> _Floats:
    """The loss of a quantile: ``alpha z`` of a residual z above 0, else ``(alpha - 1) z``."""
    z, a = labels - predictions, np.float32(alpha)
    above = (z >= 0).astype(np.float32)
    return (a * above * z) - (_ONE - a) * (_ONE - above) * z


def tweedie(power: float, labels: _Floats, predictions: _Floats) -> _Floats:
    """Negative log likelihood of a Tweedie distribution of this variance power."""
    one, two = _ONE - np.float32(power), np.float32(2) - np.float32(power)
    logs = single_precision.log(predictions)
    return -(labels * single_precision.exp(one * logs) / one) + (
        single_precision.exp(two * logs) / two
    )


def logloss(labels: _Floats, predictions: _Floats, weight: Weight = None) -> float:
    """Mean negative log likelihood of ``labels`` under float32 probabilities; both (rows,)."""
    return _mean_of(_log_loss, labels, predictions, weight)


def rmse(labels: _Floats, predictions: _Floats, weight: Weight = None) -> float:
    """Root of the mean squared difference; both float32 (rows,)."""
    return _root_of(_squared, labels, predictions, weight)


LOSSES: Mapping[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("rmse", rmse),
        Metric("rmsle", partial(_root_of, _squared_log)),
        Metric("mae", mean_of(_absolute)),
        Metric("mape", mean_of(_relative)),
        Metric("logloss", logloss),
        Metric("error", mean_of(partial(error, 0.5))),
        Metric("poisson-nloglik", mean_of(_poisson)),
        Metric("gamma-nloglik", mean_of(_gamma)),
        Metric("gamma-deviance", _gamma_deviance),
    )
}
"""Those that take no parameter, by name."""
