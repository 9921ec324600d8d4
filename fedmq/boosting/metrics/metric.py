"""What a metric is, and the mean that most of them are.

All arithmetic is float32 in the order of XGBoost 3.2's ``src/metric``, so that early stopping ends
where its own does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Metric", "Weight", "mean", "printed", "total"]

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
