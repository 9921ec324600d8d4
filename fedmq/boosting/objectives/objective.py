"""The interface of objectives, and the estimate of the prediction before the first tree.

All arithmetic is float32 in the order of XGBoost 3.2's ``src/objective``. Sums are taken one after
the other, as XGBoost does on one thread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmq.errors import ConfigError, DataError

__all__ = [
    "BaseScore",
    "FirstMargin",
    "FromZero",
    "GradientBounds",
    "LinkFunction",
    "Objective",
    "RegressionLoss",
    "newton_step",
    "pairs",
    "quantile",
    "sample_mean",
]


def pairs(
    g: NDArray[np.float32], h: NDArray[np.float32], weight: NDArray[np.float32] | None
) -> NDArray[np.float32]:
    """g and h (rows,) side by side, each times the weight of its row: float32 (rows, 2)."""
    both: NDArray[np.float32] = np.stack((g, h), axis=1)
    return both if weight is None else both * weight[:, None]


_SCALED = 1e-6  # XGBoost's kRtEps


BaseScore = float | tuple[float, ...]
"""The prediction before the first tree; one for each class where there are several."""

FirstMargin = np.float32 | NDArray[np.float32]
"""The margin that rows start from: a number, or float32 (classes,)."""


class GradientBounds(NamedTuple):
    """The range of g and h of a row: the largest |g|, None without a bound; the range of h."""

    g: float | None
    h: tuple[float, float]


class LinkFunction:
    """The map between predictions and margins; here the identity."""

    def check(self, score: float, objective: str) -> None:
        """Raise ConfigError where ``objective`` cannot begin at the prediction ``score``."""

    def reached(self, score: np.float32) -> np.float32:
        """An estimated prediction, moved away from limits where the margin is infinite."""
        return score

    def margin(self, score: float) -> np.float32:
        """The margin of a prediction: ``score`` itself."""
        return np.float32(score)

    def predictions(self, margins: NDArray[np.float32]) -> NDArray[np.float32]:
        """The margins themselves, of any shape."""
        return margins


# Metrics with an argument, as in tweedie-nloglik@1.5: least and most of it, and whether it must be
# given.
_ARGUMENTS: Mapping[str, tuple[float, float, bool]] = {
    "error": (0.0, 1.0, False),
    "tweedie-nloglik": (1.0, 2.0, True),
}


class Objective(ABC):
    """A loss to minimise. Rows come as ``margins`` and ``labels`` (rows,), float32.

    ``weight`` float32 (rows,) says how often a row counts; None where all count once. A class
    declares its parameters, metrics and the bounds of its gradients.
    """

    name: ClassVar[str]
    """XGBoost's name of it."""
    wanted: ClassVar[str]
    """Which labels fit, in words."""
    own_parameters: ClassVar[tuple[str, ...]] = ()
    """Training parameters of this objective, but not of all: its fields, in order."""
    parameter_defaults: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """Defaults of parameters that differ from the general ones."""
    link: ClassVar[LinkFunction] = LinkFunction()
    """The map between predictions and margins; by default the identity."""
    default_metric: ClassVar[str]
    """XGBoost's default metric, with own parameters in braces."""
    metrics: ClassVar[tuple[str, ...]] = (
        "rmse",
        "rmsle",
        "mae",
        "mape",
        "mphe",
        "quantile",
        "expectile",
        "poisson-nloglik",
        "gamma-nloglik",
        "gamma-deviance",
        "tweedie-nloglik",
    )
    """The metrics that fit it."""
    export_section: ClassVar[str | None] = None
    """The key of its parameters in XGBoost's JSON model; None without parameters."""
    takes_targets: ClassVar[bool] = True
    """Whether rows may have several labels, each with a margin of its own."""
    leaf_quantile: float | None = None
    """The quantile of a leaf's residuals that is its weight; None if sums of g and h give it."""

    @classmethod
    def of(cls, params: Any) -> Objective:
        """The objective of training parameters."""
        return cls(*(getattr(params, name) for name in cls.own_parameters))

    @classmethod
    def parts_of(cls, params: Any) -> tuple[Objective, ...]:
        """The objective of each target, or of the one label."""
        return (cls.of(params),) * (params.num_target or 1)

    @property
    def leaf_quantiles(self) -> tuple[float, ...]:
        """The ``leaf_quantile`` of each margin; empty if sums of g and h give the weights."""
        return () if self.leaf_quantile is None else (self.leaf_quantile,)

    @classmethod
    def exported(cls, params: Any) -> Mapping[str, str]:
        """The parameters in ``export_section``, as XGBoost's ``LoadConfig`` reads them."""
        return {name: str(getattr(params, name)) for name in cls.own_parameters}

    @classmethod
    def check_base_score(cls, score: float) -> None:
        """Raise ConfigError if training cannot begin at this prediction."""
        cls.link.check(score, cls.name)

    @classmethod
    def check_metric(cls, metric: str) -> None:
        """Raise ConfigError if ``metric`` is unknown, or does not fit."""
        name, at, argument = metric.partition("@")
        if name not in cls.metrics or (at and name not in _ARGUMENTS):
            raise ConfigError(
                f"eval_metric = {metric!r} does not fit {cls.name}; use {', '.join(cls.metrics)}"
            )
        if name not in _ARGUMENTS or not (at or _ARGUMENTS[name][2]):
            return
        least, most, _ = _ARGUMENTS[name]
        try:
            fits = least <= float(argument) <= most and float(argument) != 2
        except ValueError:
            fits = False
        if not fits or (name == "tweedie-nloglik" and float(argument) == 1):
            raise ConfigError(f"eval_metric = {metric!r}: write {name}@{(least + most) / 2:g}, say")

    @property
    def ldp_bounds(self) -> GradientBounds | None:
        """The range that the noise of local differential privacy covers; None if h has no bound."""
        return None

    def labels(self, values: ArrayLike, where: str) -> NDArray[np.float32]:
        """``values`` (rows,) as labels: float32 (rows,).

        Raises:
            DataError: a label does not fit; the text names its row, counted from 1.
        """
        with np.errstate(over="ignore"):
            labels = np.array(values, dtype=np.float32)
        wrong = ~self._fits(labels)
        if wrong.any():
            row = int(np.argmax(wrong))
            raise DataError(f"{where}: label in row {row + 1} is {labels[row]:g}; {self.wanted}")
        return labels

    @abstractmethod
    def _fits(self, labels: NDArray[np.float32]) -> NDArray[np.bool_]: ...

    def base_score(
        self, labels: NDArray[np.float32], weight: NDArray[np.float32] | None
    ) -> np.float32:
        """XGBoost's default prediction before the first tree.

        Raises:
            DataError: the labels give a prediction without a margin.
        """
        return self.link.reached(self._estimate(labels, weight))

    def _estimate(
        self, labels: NDArray[np.float32], weight: NDArray[np.float32] | None
    ) -> np.float32:
        """The mean label."""
        return sample_mean(labels, weight)

    def base_scores(
        self, labels: NDArray[np.float32], weight: NDArray[np.float32] | None
    ) -> BaseScore:
        """The base score, or those of all classes."""
        return float(self.base_score(labels, weight))

    def first_margin(self, base_score: BaseScore) -> FirstMargin:
        """The margin, or those of all classes, that every row starts from."""
        assert not isinstance(base_score, tuple)
        return self.base_margin(base_score)

    def base_margin(self, base_score: float) -> np.float32:
        """The margin that every row starts from."""
        return self.link.margin(base_score)

    def predictions(self, margins: NDArray[np.float32]) -> NDArray[np.float32]:
        """Margins as predictions, float32 of the same shape."""
        return self.link.predictions(margins)

    def evaluated(self, margins: NDArray[np.float32]) -> NDArray[np.float32]:
        """Margins as metrics take them: predictions by default."""
        return self.predictions(margins)

    @abstractmethod
    def gradients(
        self,
        margins: NDArray[np.float32],
        labels: NDArray[np.float32],
        weight: NDArray[np.float32] | None = None,
    ) -> NDArray[np.float32]:
        """First and second derivatives g, h of the loss per row; float32 (rows, 2)."""

    def _newton_score(
        self, labels: NDArray[np.float32], weight: NDArray[np.float32] | None
    ) -> np.float32:
        """The prediction after one step of Newton's method from margin 0."""
        gradients = self.gradients(np.zeros(len(labels), np.float32), labels, weight)
        step = np.full(1, newton_step(gradients), np.float32)
        return np.float32(self.predictions(step)[0])


class FromZero(Objective):
    """A loss whose first prediction is one step of Newton's method from margin 0."""

    def _estimate(
        self, labels: NDArray[np.float32], weight: NDArray[np.float32] | None
    ) -> np.float32:
        """One step of Newton's method from 0."""
        return self._newton_score(labels, weight)


@dataclass(frozen=True)
class RegressionLoss(Objective):
    """One of XGBoost's ``RegLossObj``: rows of label 1 count ``scale_pos_weight`` times."""

    scale_pos_weight: float = 1.0

    own_parameters = ("scale_pos_weight",)
    export_section = "reg_loss_param"

    def _estimate(
        self, labels: NDArray[np.float32], weight: NDArray[np.float32] | None
    ) -> np.float32:
        """The mean label; one step of Newton's method where label 1 has a scale of its own."""
        if abs(np.float32(self.scale_pos_weight) - np.float32(1)) > _SCALED:
            return self._newton_score(labels, weight)
        return sample_mean(labels, weight)

    def gradients(
        self,
        margins: NDArray[np.float32],
        labels: NDArray[np.float32],
        weight: NDArray[np.float32] | None = None,
    ) -> NDArray[np.float32]:
        """g and h of the loss, times the weight of the row."""
        derivatives, scale = self._derivatives(margins, labels), np.float32(self.scale_pos_weight)
        if weight is None and scale == 1:
            return derivatives
        rows = np.ones_like(labels) if weight is None else weight
        scaled = np.where(labels == 1, rows * scale, rows)
        return derivatives * scaled[:, None]

    @abstractmethod
    def _derivatives(
        self, margins: NDArray[np.float32], labels: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """g and h of a row that counts once: float32 (rows, 2)."""


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
