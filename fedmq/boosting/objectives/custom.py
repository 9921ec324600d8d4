"""Objectives and metrics that callers bring as functions, as ``xgboost.train`` takes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmq.boosting.objectives.objective import BaseScore, FirstMargin, Objective
from fedmq.errors import DataError

__all__ = ["CustomMetric", "CustomObjective", "LabelledRows", "MetricFunction", "ObjectiveFunction"]

_DEFAULT_SCORE = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class LabelledRows:
    """What a function learns of the rows: as much of XGBoost's ``DMatrix`` as it needs."""

    label: NDArray[np.float32]
    weight: NDArray[np.float32] | None

    def get_label(self) -> NDArray[np.float32]:
        """The labels: float32 (rows,)."""
        return self.label

    def get_weight(self) -> NDArray[np.float32]:
        """How often each row counts: float32 (rows,), empty where all count once."""
        return np.empty(0, np.float32) if self.weight is None else self.weight

    def num_row(self) -> int:
        """Number of rows."""
        return len(self.label)


ObjectiveFunction = Callable[[NDArray[np.float32], Any], tuple[ArrayLike, ArrayLike]]
"""(margins, rows) -> g and h, of the margins' shape; the function weights them itself."""

MetricFunction = Callable[[NDArray[np.float32], Any], tuple[str, float]]
"""(predictions, rows) -> name and value."""


class CustomObjective(Objective):
    """g and h by ``function``; labels, first margins and predictions are those of ``base``.

    As in XGBoost, the base score is 0.5 where it is left out, and metrics take margins.
    """

    def __init__(self, function: ObjectiveFunction, base: Objective) -> None:
        self._function = function
        self._base = base
        self.wanted = base.wanted  # type: ignore[misc]  # an objective's own, but for this one

    def _fits(self, labels: NDArray[np.float32]) -> NDArray[np.bool_]:
        return self._base._fits(labels)

    def base_scores(
        self, labels: NDArray[np.float32], weight: NDArray[np.float32] | None
    ) -> BaseScore:
        """0.5, which nothing estimates where the loss is not known."""
        return _DEFAULT_SCORE

    def base_margin(self, base_score: float) -> np.float32:
        """That of the objective that parameters name."""
        return self._base.base_margin(base_score)

    def first_margin(self, base_score: BaseScore) -> FirstMargin:
        """Those of the objective that parameters name."""
        return self._base.first_margin(base_score)

    def predictions(self, margins: NDArray[np.float32]) -> NDArray[np.float32]:
        """Those of the objective that parameters name."""
        return self._base.predictions(margins)

    def gradients(
        self,
        margins: NDArray[np.float32],
        labels: NDArray[np.float32],
        weight: NDArray[np.float32] | None = None,
    ) -> NDArray[np.float32]:
        """What the function gives: float32 (rows, 2), or (rows, classes, 2).

        Raises:
            DataError: it gives other shapes, numbers that are not finite, or an h below 0.
        """
        g, h = (
            np.asarray(part, np.float32).reshape(-1)
            for part in self._function(margins, LabelledRows(labels, weight))
        )
        if len(g) != margins.size or len(h) != margins.size:
            raise DataError(
                f"obj: {len(g)} values of g and {len(h)} of h; {margins.size} of each are needed"
            )
        if not (np.isfinite(g).all() and np.isfinite(h).all()):
            raise DataError("obj: g or h is not finite")
        if (h < 0).any():
            raise DataError("obj: an h lies below 0, which encrypted sums cannot carry")
        both: NDArray[np.float32] = np.stack((g, h), axis=1)
        return both.reshape(*margins.shape, 2)


@dataclass(frozen=True, slots=True, eq=False)
class CustomMetric:
    """A metric that ``function`` names and computes."""

    function: MetricFunction

    def of(
        self,
        labels: NDArray[np.float32],
        predictions: NDArray[np.float32],
        weight: NDArray[np.float32] | None,
    ) -> tuple[str, float]:
        """Name and value for these rows."""
        name, value = self.function(predictions, LabelledRows(labels, weight))
        return str(name), float(value)
