"""How good is a model so far? XGBoost's evaluation metrics, by the names that parameters give them.

All arithmetic is float32 in the order of XGBoost 3.2's ``src/metric``, so that early stopping ends
at the same round. In the order of the file: means of a loss per row, metrics of classes, areas
under curves, metrics of survival, and which metric a name means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting import single_precision
from fedmq.boosting.objectives.custom import CustomMetric
from fedmq.boosting.objectives.ranking import RANKING_METRICS, ranking_metric
from fedmq.boosting.objectives.survival import cox_loss, survival_loss
from fedmq.boosting.params import TrainParams

__all__ = [
    "LOSSES",
    "Metric",
    "Weight",
    "auc",
    "aucpr",
    "error",
    "ks",
    "logloss",
    "lopsided",
    "match_error",
    "mean",
    "mean_of",
    "metric_of",
    "multi_log_loss",
    "pinball",
    "prevalence_mean",
    "printed",
    "pseudo_huber",
    "rmse",
    "total",
    "tweedie",
    "watched_maximizes",
]

Weight = NDArray[np.float32] | None
"""How often each row counts; float32 (rows,), or None where all count once."""

_BLOCK = 2048


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric: its value for (labels, predictions, weight), and whether more is better."""

    name: str
    of: Callable[[NDArray[np.float32], NDArray[np.float32], Weight], float]
    maximize: bool = False


def mean(losses: NDArray[np.floating], weight: Weight) -> float:
    """The weighted mean of float32 ``losses`` (rows,); NaN without rows, as nothing is known."""
    if not len(losses):
        return float("nan")
    if weight is None:
        return total(losses.astype(np.float32)) / len(losses)
    weights, products = total(weight), total(losses.astype(np.float32) * weight)
    return products if weights == 0 else products / weights


def total(values: NDArray[np.floating]) -> float:
    """The sum in float64, one after the other in blocks of 2,048, as XGBoost's threads add."""
    blocks = np.zeros((-(-len(values) // _BLOCK), _BLOCK))
    blocks.reshape(-1)[: len(values)] = values
    return float(np.cumsum(np.cumsum(blocks, axis=1)[:, -1])[-1]) if len(values) else 0.0


def printed(value: float) -> float:
    """XGBoost compares what it prints, with 17 decimals; and no zero is negative."""
    return round(float(value), 17) + 0.0


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
    if ((labels == 0) | (labels == 1)).all():
        # Half the logarithms: those of the label's own probability, exact for 0 and 1.
        likely = np.abs(_ONE - labels - predictions)
        return -single_precision.log(np.maximum(likely, _SMALLEST))

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


def pinball(alphas: Sequence[float], labels: _Floats, predictions: _Floats) -> _Floats:
    """The loss of a quantile: ``alpha z`` of a residual z above 0, else ``(alpha - 1) z``.

    All are (rows * alphas,), those of a row beside each other.
    """
    z = labels - predictions
    a: _Floats = np.resize(np.array(alphas, np.float32), len(labels))
    above = (z >= 0).astype(np.float32)
    losses: _Floats = (a * above * z) - (_ONE - a) * (_ONE - above) * z
    return losses


def lopsided(alphas: Sequence[float], labels: _Floats, predictions: _Floats) -> _Floats:
    """The loss of an expectile: squares count ``1 - alpha`` above the label, and ``alpha`` below.

    All are (rows * alphas,), those of a row beside each other.
    """
    z = predictions - labels
    a: _Floats = np.resize(np.array(alphas, np.float32), len(labels))
    losses: _Floats = np.where(z >= 0, _ONE - a, a) * z * z
    return losses


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
"""Losses without parameters, by name."""


def multi_log_loss(
    labels: NDArray[np.float32], predictions: NDArray[np.float32]
) -> NDArray[np.float32]:
    """The negative logarithm of the label's probability: float32 (rows,)."""
    likely = predictions[np.arange(len(labels)), labels.astype(np.intp)]
    return -single_precision.log(np.maximum(likely, _SMALLEST))


def match_error(
    labels: NDArray[np.float32], predictions: NDArray[np.float32]
) -> NDArray[np.float32]:
    """1 where the likeliest class is not the label; among ties the first class counts."""
    wrong: NDArray[np.bool_] = np.argmax(predictions, axis=1) != labels
    return wrong.astype(np.float32)


_Doubles = NDArray[np.float64]


def auc(
    labels: NDArray[np.float32], predictions: NDArray[np.float32], weight: Weight = None
) -> float:
    """Area under the ROC curve, ties by midranks; NaN if only one class is present."""
    fp, tp = _reached(labels, predictions, weight)
    if fp[-1] <= 0 or tp[-1] <= 0:
        return float("nan")
    area = float(np.sum(np.diff(fp) * (tp[1:] + tp[:-1])) * 0.5)
    return min(area / float(fp[-1] * tp[-1]), 1.0)


def aucpr(
    labels: NDArray[np.float32], predictions: NDArray[np.float32], weight: Weight = None
) -> float:
    """Area under the curve of precision and recall (doi:10.1371/journal.pone.0092209).

    NaN if only one class is present.
    """
    fp, tp = _reached(labels, predictions, weight)
    positive = float(tp[-1])
    if fp[-1] <= 0 or positive <= 0:
        return float("nan")
    recall = tp / positive
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.diff(fp) / np.diff(tp)
        flat = np.diff(tp) == 0
        a = np.where(flat, 1.0, slope + 1)
        b = np.where(flat, 0.0, (fp[:-1] - slope * tp[:-1]) / positive)
        bent = b / a * (np.log(a * recall[1:] + b) - np.log(a * recall[:-1] + b))
        areas = (np.diff(recall) - np.where(b == 0, 0.0, bent)) / a
    return min(float(areas.sum()), 1.0)


def ks(
    labels: NDArray[np.float32], predictions: NDArray[np.float32], weight: Weight = None
) -> float:
    """Kolmogorov-Smirnov: the most by which the classes' shares above a threshold differ.

    NaN if only one class is present.
    """
    fp, tp = _reached(labels, predictions, weight)
    if fp[-1] <= 0 or tp[-1] <= 0:
        return float("nan")
    return float(np.abs(tp / tp[-1] - fp / fp[-1]).max())


def prevalence_mean(
    curve: Callable[[NDArray[np.float32], NDArray[np.float32], Weight], float],
    labels: NDArray[np.float32],
    predictions: NDArray[np.float32],
    weight: Weight,
) -> float:
    """The mean over classes of a curve of one class against the rest, by the classes' weights.

    ``predictions`` (rows, classes); NaN if a class is absent.
    """
    rows = np.ones_like(labels) if weight is None else weight
    shares, areas = [], []
    for name in range(predictions.shape[1]):
        held = (labels == name).astype(np.float32)
        areas.append(curve(held, predictions[:, name], weight))
        shares.append(float(np.sum(held * rows, dtype=np.float64)))
    # XGBoost gives each class's precision the weight 1.
    counted = np.ones(len(areas)) if curve is aucpr else np.array(shares)
    return float(np.dot(areas, counted) / counted.sum())


def _reached(
    labels: NDArray[np.float32], predictions: NDArray[np.float32], weight: Weight
) -> tuple[_Doubles, _Doubles]:
    """Weights of both classes at or above each distinct prediction, descending from nothing."""
    order = np.argsort(-predictions, kind="stable")
    rows = np.ones_like(labels) if weight is None else weight
    ends = np.flatnonzero(np.append(np.diff(predictions[order]) != 0, True))
    negative = np.cumsum(((np.float32(1) - labels) * rows)[order].astype(np.float64))[ends]
    positive = np.cumsum((labels * rows)[order].astype(np.float64))[ends]
    return np.append(0.0, negative), np.append(0.0, positive)


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
    """The metric ``name``, one of ``params.eval_metric``.

    Several targets, quantiles or expectiles of a row count alike.
    """
    metric = _named(name, params)
    if params.output_kind in ("target", "quantile", "expectile"):
        return replace(metric, of=partial(_over_margins, metric.of))
    return metric


def _over_margins(
    of: Callable[[_Floats, _Floats, Weight], float],
    labels: _Floats,
    predictions: _Floats,
    weight: Weight,
) -> float:
    """``of`` all ``predictions`` (rows, margins); ``labels`` (rows,), or (rows, margins)."""
    margins = predictions.shape[1]
    each = labels.ravel() if labels.ndim > 1 else np.repeat(labels, margins)
    return of(each, predictions.ravel(), None if weight is None else np.repeat(weight, margins))


def _named(name: str, params: TrainParams) -> Metric:
    kind, _, argument = name.partition("@")
    if argument and kind == "error":
        return Metric(name, mean_of(partial(error, float(argument))))
    if kind == "tweedie-nloglik":
        return Metric(name, mean_of(partial(tweedie, float(argument))))
    if params.num_class is not None and name in _CURVES:
        return Metric(name, partial(prevalence_mean, _CURVES[name].of), maximize=True)
    if name == "mphe":
        return Metric(name, mean_of(partial(pseudo_huber, params.huber_slope)))
    if name == "quantile":
        return Metric(name, mean_of(partial(pinball, params.quantiles)))
    if name == "expectile":
        return Metric(name, mean_of(partial(lopsided, params.expectiles)))
    if name == "aft-nloglik":
        return Metric(
            name,
            partial(_survival, params.aft_loss_distribution, params.aft_loss_distribution_scale),
        )
    if kind in RANKING_METRICS:
        return Metric(name, partial(ranking_metric, name, params.ndcg_exp_gain), maximize=True)
    if name == "cox-nloglik":
        return Metric(name, _proportional)
    if name == "interval-regression-accuracy":
        return Metric(name, _interval_accuracy, maximize=False)
    return {**LOSSES, **_CURVES, **_OF_CLASSES}[name]


def watched_maximizes(name: str, params: TrainParams, custom: CustomMetric | None) -> bool:
    """Whether more is better of the metric ``name``, which early stopping watches.

    Early stopping watches a caller's own metric, or else the last of ``eval_metric``.
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


def _proportional(
    labels: NDArray[np.float32], hazards: NDArray[np.float32], _weight: Weight
) -> float:
    """XGBoost does not weigh the rows of this one."""
    return printed(cox_loss(labels, hazards))


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
