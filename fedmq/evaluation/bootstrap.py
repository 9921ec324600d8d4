"""How sure is a figure? Percentiles of it over rows drawn with replacement.

B. Efron, R. J. Tibshirani, "An Introduction to the Bootstrap" (1993), chapter 13.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from fedmq.evaluation.report import Figure

__all__ = ["Metrics", "with_intervals"]

Metrics = Callable[[NDArray[np.float64], NDArray[np.float64]], Mapping[str, float]]
"""(label, score) -> metrics by name; scores are (rows,) or (rows, classes)."""


def with_intervals(
    metrics: Metrics,
    label: NDArray[np.float64],
    score: NDArray[np.float64],
    samples: int,
    seed: int = 0,
) -> dict[str, Figure]:
    """The metrics of all rows, and between which values the middle 95 % of ``samples`` lie.

    A sample in which only one class was drawn counts for nothing. 0 samples: no intervals.
    """
    random = np.random.default_rng(seed)
    drawn: dict[str, list[float]] = {}
    for _ in range(samples):
        rows = random.integers(0, len(label), len(label))
        if np.ptp(label[rows]) == 0:
            continue
        for name, value in metrics(label[rows], score[rows]).items():
            drawn.setdefault(name, []).append(value)
    figures = {}
    for name, value in metrics(label, score).items():
        values = drawn.get(name)
        low, high = (None, None) if not values else np.percentile(values, [2.5, 97.5]).tolist()
        figures[name] = Figure(value=value, low=low, high=high)
    return figures
