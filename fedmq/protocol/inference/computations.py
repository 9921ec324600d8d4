"""The arithmetic that inference machines order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.forest import Forest
from fedmq.boosting.objectives.registry import objective_of
from fedmq.boosting.params import TrainParams

__all__ = ["Scores", "SumLeaves"]


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """What the rows of a batch came to: float32 (rows,) each, NaN for a row without a score.

    Of several classes, margins and probabilities are (rows, classes).

    ``unknown`` by party: which rows' ids it does not know, bool (rows,).
    """

    margins: NDArray[np.float32]
    predictions: NDArray[np.float32]
    unknown: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class SumLeaves:
    """Margins and predictions from the leaves (rows, trees) that all pairs arrived at.

    ``unknown`` is the one of :class:`Scores`; such rows get no score.
    """

    label: ClassVar[str] = "SumLeaves"
    forest: Forest
    leaves: NDArray[np.int32]
    params: TrainParams
    unknown: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)

    def run(self) -> Scores:
        objective = objective_of(self.params)
        assert self.params.base_score is not None  # of a finished model
        base = objective.first_margin(self.params.base_score)
        margins = self.forest.margins(self.leaves, base)
        predictions = objective.predictions(margins)
        for rows in self.unknown.values():
            margins[rows] = predictions[rows] = np.nan
        return Scores(margins, predictions, self.unknown)
