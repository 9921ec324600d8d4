"""By how much do the predictions of some rows miss their labels on the whole?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.objectives.objective import Objective, RegressionLoss
from fedmq.boosting.objectives.regression import Poisson, Tweedie

__all__ = ["FEWEST_ROWS", "shift_to_labels"]

FEWEST_ROWS = 100
"""Of fewer rows a shift would follow chance."""

_MOST_STEPS = 50
_LARGEST_STEP = 2.0
_EXACT = 1e-6


def shift_to_labels(
    objective: Objective,
    margins: NDArray[np.float32],
    labels: NDArray[np.float32],
    weight: NDArray[np.float32] | None = None,
) -> float:
    """What is added to all ``margins`` (rows,) so that their loss is the least.

    Then the mean prediction is the mean label, where the gradient of the loss is their difference.
    0 for too few rows, for losses of more than one row or number, and where no shift is the best,
    as if all labels are 0. Newton's method on the sums of g and h.
    """
    if not isinstance(objective, RegressionLoss | Poisson | Tweedie):
        return 0.0
    if margins.ndim > 1 or len(labels) < FEWEST_ROWS:
        return 0.0
    shift = 0.0
    for _ in range(_MOST_STEPS):
        moved = margins + np.float32(shift)
        g, h = objective.gradients(moved, labels, weight).sum(axis=0, dtype=np.float64)
        if not h > 0:
            return 0.0
        step = float(np.clip(-g / h, -_LARGEST_STEP, _LARGEST_STEP))
        shift += step
        if abs(step) < _EXACT:
            return shift
    return 0.0
