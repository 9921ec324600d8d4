"""The prediction before the first tree, as XGBoost estimates it from labels and weights.

Sums are taken one after the other, as XGBoost does on one thread.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import DataError

__all__ = ["newton_step", "quantile", "sample_mean"]

_SMALLEST_HESSIAN = 1e-6  # XGBoost's kRtEps


def sample_mean(labels: NDArray[np.float32], weight: NDArray[np.float32] | None) -> np.float32:
    """The mean of ``labels`` (rows,), each counted ``weight`` times.

    Raises:
        DataError: all weights are 0.
    """
    wide = labels.astype(np.float64)
    if weight is None:
        return np.float32(_summed(wide / len(labels)))
    total = _summed(weight.astype(np.float64))
    if total <= 0:
        raise DataError("weight: all are 0, so there is nothing to learn")
    return np.float32(_summed(wide / total * weight))


def newton_step(gradients: NDArray[np.float32]) -> np.float32:
    """``-G / H`` of all rows (rows, 2), the weight of a tree that is a single leaf."""
    G, H = (_summed(column) for column in gradients.astype(np.float64).T)
    return np.float32(-G / max(H, _SMALLEST_HESSIAN))


def quantile(
    values: NDArray[np.float32], alpha: float, weight: NDArray[np.float32] | None
) -> np.float32:
    """The ``alpha`` quantile of ``values`` (rows,): interpolated, but with weights a step.

    ``Quantile`` and ``WeightedQuantile`` of XGBoost's ``common/stats.h``; NaN of no values.
    """
    count = len(values)
    if count == 0:
        return np.float32(np.nan)
    alpha = float(np.float32(alpha))
    order = np.argsort(values, kind="stable")
    if weight is not None:
        reached = np.cumsum(weight[order], dtype=np.float32)
        place = np.searchsorted(reached, np.float32(reached[-1] * np.float64(alpha)))
        return np.float32(values[order[min(int(place), count - 1)]])
    if alpha <= 1 / (count + 1):
        return np.float32(values[order[0]])
    if alpha >= count / (count + 1):
        return np.float32(values[order[-1]])
    rank = alpha * (count + 1)
    below = int(np.floor(rank)) - 1
    low, high = values[order[below]], values[order[below + 1]]
    return np.float32(float(low) + (rank - 1 - below) * float(high - low))


def _summed(values: NDArray[np.float64]) -> float:
    return float(np.cumsum(values)[-1]) if len(values) else 0.0
