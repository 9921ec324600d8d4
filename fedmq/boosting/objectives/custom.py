"""Objectives and metrics that callers bring as functions, as ``xgboost.train`` takes them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmq.boosting.objectives.objective import BaseScore, FirstMargin, Objective
from fedmq.errors import DataError, FedmqError, raised_in_words

__all__ = [
    "CustomMetric",
    "CustomObjective",
    "LabelledRows",
    "MetricFunction",
    "ObjectiveFunction",
]

_DEFAULT_SCORE = 0.5


@dataclass(frozen=True, slots=True, eq=False)
class LabelledRows:
    """The rows as a function sees them: the part of XGBoost's ``DMatrix`` that it needs."""

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

MetricFunction = Callable[[NDArray[np.float32], Any], tuple[str, float] | list[tuple[str, float]]]
"""(predictions, rows) -> name and value, or a list of such pairs."""


def _called(what: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """What ``function`` returns; its own errors as DataError."""
    try:
        return function(*arguments)
    except FedmqError:
        raise
    except Exception as error:
        raise DataError(f"{what}: {raised_in_words(error)}") from error


# XGBoost's EarlyStopping reads from a metric's name whether more of it is better.
_MAXIMIZED = ("auc", "aucpr", "pre", "map", "ndcg")


class CustomObjective(Objective):
    """g and h by ``function``; labels, first margins and predictions are those of ``base``.

    As in XGBoost, the base score is 0.5 where it is left out, and metrics take margins.
    """

    def __init__(self, function: ObjectiveFunction, base: Objective) -> None:
        self._function = function
        self._base = base

    def labels(self, values: ArrayLike, where: str) -> NDArray[np.float32]:
        """Those of the objective that parameters name; DataError as there."""
        return self._base.labels(values, where)

    def _fits(self, labels: NDArray[np.float32]) -> NDArray[np.bool_]:
        return self._base._fits(labels)

    def base_scores(
        self, labels: NDArray[np.float32], weight: NDArray[np.float32] | None
    ) -> BaseScore:
        """0.5: an unknown loss allows no estimate."""
        return _DEFAULT_SCORE

    def base_margin(self, base_score: float) -> np.float32:
        """The first margin of the objective that parameters name."""
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
        """The function's g and h: float32 (rows, 2), or (rows, classes, 2).

        Raises:
            DataError: it gives other shapes, numbers that are not finite, or an h below 0.
        """
        given = _called("obj", self._function, margins, LabelledRows(labels, weight))
        try:
            g, h = (np.asarray(part, np.float32).reshape(-1) for part in given)
        except (TypeError, ValueError):
            raise DataError("obj: it gives no pair of g and h, an array of numbers each") from None
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
    """A metric that ``function`` names and computes; ``maximize``: whether more is better.

    Left out, ``maximize`` follows from the name, as in XGBoost.
    """

    function: MetricFunction
    maximize: bool | None = None

    def of(
        self,
        labels: NDArray[np.float32],
        predictions: NDArray[np.float32],
        weight: NDArray[np.float32] | None,
    ) -> dict[str, float]:
        """Values for these rows by name, with the six decimals that XGBoost keeps of them.

        Raises:
            DataError: the function gives no names and numbers.
        """
        rows = LabelledRows(labels, weight)
        given = _called("custom_metric", self.function, predictions, rows)
        try:
            named = given if isinstance(given, list) else [given]
            return {str(name): float(f"{value:f}") for name, value in named}
        except (TypeError, ValueError):
            raise DataError("custom_metric: it gives no pair of a name and a number") from None

    def maximizes(self, name: str) -> bool:
        """Whether more of the metric ``name`` is better."""
        if self.maximize is not None:
            return self.maximize
        return name != "mape" and name.startswith(_MAXIMIZED)
