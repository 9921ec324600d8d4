"""Metrics of several classes: of labels (rows,) and probabilities (rows, classes)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting import single_precision

__all__ = ["match_error", "multi_log_loss"]

_SMALLEST = np.float32(1e-16)


def multi_log_loss(
    labels: NDArray[np.float32], predictions: NDArray[np.float32]
) -> NDArray[np.float32]:
    """The negative logarithm of the label's probability: float32 (rows,)."""
    likely = predictions[np.arange(len(labels)), labels.astype(np.intp)]
    return -single_precision.log(np.maximum(likely, _SMALLEST))


def match_error(
    labels: NDArray[np.float32], predictions: NDArray[np.float32]
) -> NDArray[np.float32]:
    """1 where another class than the label is the likeliest, the first of several."""
    wrong: NDArray[np.bool_] = np.argmax(predictions, axis=1) != labels
    return wrong.astype(np.float32)
