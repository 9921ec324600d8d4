"""Reports of several labels of a row: those of each label, side by side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from fedmq.evaluation.report import Chart, ReportTable

__all__ = ["each_metric", "each_part", "target_names"]

Part = TypeVar("Part", Chart, ReportTable)

_Doubles = NDArray[np.float64]


def target_names(targets: int, columns: Sequence[str] = ()) -> tuple[str, ...]:
    """The names of so many labels: those of their ``columns``, or numbers from 0."""
    if len(columns) == targets:
        return tuple(columns)
    return tuple(f"label_{target}" for target in range(targets))


def each_metric(
    metrics: Callable[[_Doubles, _Doubles], Mapping[str, float]], names: Sequence[str], binary: bool
) -> Callable[[_Doubles, _Doubles], Mapping[str, float]]:
    """``metrics`` of every label of (rows, targets), and under its own name their mean.

    ``binary``: labels are 0 or 1; then also how many rows have every label right, where a score of
    0.5 or more stands for 1.
    """

    def found(label: _Doubles, score: _Doubles) -> Mapping[str, float]:
        each = [metrics(label[:, place], score[:, place]) for place in range(len(names))]
        means = {metric: float(np.mean([of[metric] for of in each])) for metric in each[0]}
        right = {"every label right": float(((score >= 0.5) == (label == 1)).all(axis=1).mean())}
        named = {
            f"{metric} of {name}": value
            for name, of in zip(names, each, strict=True)
            for metric, value in of.items()
        }
        return {**means, **(right if binary else {}), **named}

    return found


def each_part(
    parts: Callable[[_Doubles, _Doubles], Sequence[Part]],
    names: Sequence[str],
    label: _Doubles,
    score: _Doubles,
) -> tuple[Part, ...]:
    """The charts or tables of every label of (rows, targets), each with the label's name."""
    return tuple(
        part.model_copy(update={"name": f"{part.name}: {name}"})
        for place, name in enumerate(names)
        for part in parts(label[:, place], score[:, place])
    )
