"""A passive party averages the perturbed gradients of all trees, and looks at the sign."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["label_scores_from_noise"]


def label_scores_from_noise(
    rows: int, broadcasts: Sequence[tuple[NDArray[np.integer], NDArray[np.number]]]
) -> NDArray[np.float64]:
    """A score per row (rows,), larger for label 1: minus the mean g that was disclosed.

    ``broadcasts``: per tree the rows and their perturbed g. A positive score reads as label 1.
    """
    total, times = np.zeros(rows), np.zeros(rows)
    for carried, gradients in broadcasts:
        total[carried] -= gradients
        times[carried] += 1
    return total / np.maximum(times, 1)
