"""Areas under curves, and the largest distance between two: AUC, AUCPR and KS."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.metrics.metric import Weight

__all__ = ["auc", "aucpr", "ks", "prevalence_mean"]

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
    # The precision of a class counts like that of any other: XGBoost gives each one of weight 1.
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
