"""Objectives of one number a row: squared errors, logistic links, hinge, exponents, quantiles."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting import single_precision
from fedmq.boosting.objectives.objective import (
    FromZero,
    GradientBounds,
    LinkFunction,
    Objective,
    RegressionLoss,
    newton_step,
    pairs,
    quantile,
    sample_mean,
)
from fedmq.errors import ConfigError, DataError

__all__ = [
    "AbsoluteError",
    "BinaryLogistic",
    "Gamma",
    "Hinge",
    "LogLink",
    "LogitRaw",
    "Poisson",
    "PseudoHuberError",
    "QuantileError",
    "RegLogistic",
    "SmoothAbsoluteError",
    "SmoothQuantileError",
    "SquaredError",
    "SquaredLogError",
    "Tweedie",
]

_ONE = np.float32(1)
_LEAST_PREDICTION = np.float32(-1 + 1e-6)
_LEAST_HESSIAN = np.float32(1e-6)


@dataclass(frozen=True)
class SquaredError(RegressionLoss):
    """Half the squared error of real labels; predictions are the margins."""

    name = "reg:squarederror"
    wanted = "reg:squarederror takes finite numbers"
    default_metric = "rmse"
    ldp_bounds = GradientBounds(None, (1.0, 1.0))

    def _fits(self, labels: NDArray[np.float32]) -> NDArray[np.bool_]:
        return np.isfinite(labels)

    def _derivatives(
        self, margins: NDArray[np.float32], labels: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """g = p - y and h = 1."""
        return np.stack((margins - labels, np.ones_like(margins)), axis=1)


@dataclass(frozen=True)
class SquaredLogError(FromZero):
    """Half the squared error of ``log(1 + y)``."""

    name = "reg:squaredlogerror"
    wanted = "reg:squaredlogerror takes finite numbers above -1"
    default_metric = "rmsle"

    def _fits(self, labels: NDArray[np.float32]) -> NDArray[np.bool_]:
        return np.isfinite(labels) & (labels > -1)

    def gradients(
        self,
        margins: NDArray[np.float32],
        labels: NDArray[np.float32],
        weight: NDArray[np.float32] | None = None,
    ) -> NDArray[np.float32]:
        """g = (log(1+p) - log(1+y)) / (1+p), h = max((1 - log(1+p) + log(1+y)) / (1+p)^2, 1e-6).

        The square of h is taken in float64, as C++ takes ``pow(float, int)``.
        """
        p: NDArray[np.float32] = np.maximum(margins, _LEAST_PREDICTION)
        predicted, true = single_precision.log1p(p), single_precision.log1p(labels)
        g = (predicted - true) / (p + _ONE)
        squares = (p + _ONE).astype(np.float64) ** 2
        h = (-predicted + true + _ONE).astype(np.float64) / squares
        return pairs(g, np.maximum(h.astype(np.float32), _LEAST_HESSIAN), weight)


@dataclass(frozen=True)
class PseudoHuberError(FromZero):
    """Squared near 0, absolute beyond ``slope`` (XGBoost's ``huber_slope``)."""

    slope: float = 1.0

    name = "reg:pseudohubererror"
    wanted = "reg:pseudohubererror takes finite numbers"
    default_metric = "mphe"
    own_parameters = ("huber_slope",)
    export_section = "pseudo_huber_param"

    @property
    def ldp_bounds(self) -> GradientBounds:
        """|g| is below the slope."""
        return GradientBounds(self.slope, (0.0, 1.0))

    def _fits(self, labels: NDArray[np.float32]) -> NDArray[np.bool_]:
        return np.isfinite(labels)

    def gradients(
        self,
        margins: NDArray[np.float32],
        labels: NDArray[np.float32],
        weight: NDArray[np.float32] | None = None,
    ) -> NDArray[np.float32]:
        """With z = p - y and r = sqrt(1 + z^2/s^2): g = z / r and h = s^2 / ((s^2 + z^2) r)."""
        z = margins - labels
        squared = np.float32(self.slope) * np.float32(self.slope)
        root = np.sqrt(_ONE + np.square(z) / squared)
        h = squared / ((squared + np.square(z)) * root)
        return pairs(z / root, h, weight)


_SMALLEST_HESSIAN = np.float32(1e-16)
_LEAST_PROBABILITY = np.float32(1e-6)  # XGBoost's kRtEps


class _LogitLink(LinkFunction):
    """Predictions are probabilities."""

    def check(self, score: float, objective: str) -> None:
        if not 0 < score < 1:
            raise ConfigError(
                f"base_score = {score}: a probability strictly between 0 and 1 "
                f"is needed for {objective}"
            )

    def reached(self, score: np.float32) -> np.float32:
        """At least 1e-6 away from 0 and 1, as XGBoost has it."""
        return np.float32(np.clip(score, _LEAST_PROBABILITY, _ONE - _LEAST_PROBABILITY))

    def margin(self, score: float) -> np.float32:
        """``logit(score)``."""
        return -single_precision.log_of(_ONE / self.reached(np.float32(score)) - _ONE)

    def predictions(self, margins: NDArray[np.float32]) -> NDArray[np.float32]:
        """``1 / (1 + exp(-margin))``."""
        return single_precision.sigmoid(margins)


class _LogLoss:
    """The common part of the log losses, whatever their labels and predictions."""

    metrics: ClassVar[tuple[str, ...]] = ("logloss", "auc", "error", "aucpr", "ks", "rmse", "mae")
    ldp_bounds = GradientBounds(1.0, (0.0, 0.25))  # p (1 - p) is no larger

    def _derivatives(
        self, margins: NDArray[np.float32], labels: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """g = p - y and h = max(p (1 - p), 1e-16), of the probability p."""
        p = single_precision.sigmoid(margins)
        return np.stack((p - labels, np.maximum(p * (_ONE - p), _SMALLEST_HESSIAN)), axis=1)


@dataclass(frozen=True)
class RegLogistic(_LogLoss, RegressionLoss):
    """Log loss of shares between 0 and 1; predictions are probabilities."""

    name = "reg:logistic"
    wanted = "reg:logistic takes shares from 0 to 1"
    link = _LogitLink()
    default_metric = "rmse"

    def _fits(self, labels: NDArray[np.float32]) -> NDArray[np.bool_]:
        return (labels >= 0) & (labels <= 1)


@dataclass(frozen=True)
class BinaryLogistic(_LogLoss, RegressionLoss):
    """Log loss of labels 0 and 1; predictions are probabilities."""

    name = "binary:logistic"
    wanted = "binary:logistic takes 0 and 1"
    link = _LogitLink()
    default_metric = "logloss"

    def _fits(self, labels: NDArray[np.float32]) -> NDArray[np.bool_]:
        return np.isin(labels, (0, 1))


@dataclass(frozen=True)
class LogitRaw(_LogLoss, RegressionLoss):
    """Log loss of labels 0 and 1; predictions are the margins, and so is the base score.

    The mean label is taken for a margin, as XGBoost takes it.
    """

    name = "binary:logitraw"
    wanted = "binary:logitraw takes 0 and 1"
    default_metric = "logloss"

    def _fits(self, labels: NDArray[np.float32]) -> NDArray[np.bool_]:
        return np.isin(labels, (0, 1))


class _Sign(LinkFunction):
    """Predictions are classes."""

    def predictions(self, margins: NDArray[np.float32]) -> NDArray[np.float32]:
        """1 for a margin above 0, else 0."""
        return (margins > 0).astype(np.float32)


@dataclass(frozen=True)
class Hinge(FromZero):
    """The hinge loss of labels 0 and 1; predictions are 0 and 1."""

    name = "binary:hinge"
    wanted = "binary:hinge takes 0 and 1"
    link = _Sign()
    default_metric = "error"
    metrics = ("error", "auc", "aucpr", "ks", "rmse", "mae")
    ldp_bounds = GradientBounds(1.0, (0.0, 1.0))

    def _fits(self, labels: NDArray[np.float32]) -> NDArray[np.bool_]:
        return np.isin(labels, (0, 1))

    def gradients(
        self,
        margins: NDArray[np.float32],
        labels: NDArray[np.float32],
        weight: NDArray[np.float32] | None = None,
    ) -> NDArray[np.float32]:
        """With y of -1 and 1: g = -y and h = 1 where p y < 1, else 0 and the smallest float."""
        rows = _counts(labels, weight)
        signs = labels * np.float32(2) - _ONE
        near = margins * signs < 1
        g = np.where(near, -signs * rows, np.float32(0))
        h = np.where(near, rows, np.finfo(np.float32).tiny)
        return np.stack((g, h), axis=1)


class LogLink(LinkFunction):
    """Predictions are positive numbers."""

    def check(self, score: float, objective: str) -> None:
        if np.float32(score) <= 0:
            raise ConfigError(f"base_score = {score}: {objective} predicts positive numbers")

    def reached(self, score: np.float32) -> np.float32:
        """``score``.

        Raises:
            DataError: all labels are 0, which has no logarithm.
        """
        if not score > 0:
            raise DataError("label: all are 0, so there is nothing to learn")
        return score

    def margin(self, score: float) -> np.float32:
        """``log(score)``."""
        return single_precision.log_of(score)

    def predictions(self, margins: NDArray[np.float32]) -> NDArray[np.float32]:
        """``exp(margin)``."""
        return single_precision.exp(margins)


@dataclass(frozen=True)
class Poisson(Objective):
    """Negative log likelihood of counts; ``max_delta_step`` makes h larger, and steps smaller."""

    max_delta_step: float = 0.7

    name = "count:poisson"
    wanted = "count:poisson takes finite numbers from 0 on"
    link = LogLink()
    default_metric = "poisson-nloglik"
    parameter_defaults = MappingProxyType({"max_delta_step": 0.7})
    export_section = "poisson_regression_param"

    @classmethod
    def of(cls, params: Any) -> Objective:
        """With a parameter that all objectives have."""
        return cls(params.max_delta_step)

    @classmethod
    def exported(cls, params: Any) -> Mapping[str, str]:
        """With a parameter that all objectives have."""
        return {"max_delta_step": str(params.max_delta_step)}

    def _fits(self, labels: NDArray[np.float32]) -> NDArray[np.bool_]:
        return np.isfinite(labels) & (labels >= 0)

    def gradients(
        self,
        margins: NDArray[np.float32],
        labels: NDArray[np.float32],
        weight: NDArray[np.float32] | None = None,
    ) -> NDArray[np.float32]:
        """g = exp(p) - y and h = exp(p + max_delta_step)."""
        h = single_precision.exp(margins + np.float32(self.max_delta_step))
        return pairs(single_precision.exp(margins) - labels, h, weight)


@dataclass(frozen=True)
class Gamma(RegressionLoss):
    """Deviance of the gamma distribution."""

    name = "reg:gamma"
    wanted = "reg:gamma takes finite numbers above 0"
    link = LogLink()
    default_metric = "gamma-deviance"

    def _fits(self, labels: NDArray[np.float32]) -> NDArray[np.bool_]:
        return np.isfinite(labels) & (labels > 0)

    def _derivatives(
        self, margins: NDArray[np.float32], labels: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """g = 1 - y/p and h = y/p, of the prediction p."""
        h = labels / single_precision.exp(margins)
        return np.stack((_ONE - h, h), axis=1)


@dataclass(frozen=True)
class Tweedie(Objective):
    """Negative log likelihood of a Tweedie distribution of this ``variance_power``, 1 to 2."""

    variance_power: float = 1.5

    name = "reg:tweedie"
    wanted = "reg:tweedie takes finite numbers from 0 on"
    link = LogLink()
    default_metric = "tweedie-nloglik@{tweedie_variance_power:g}"
    own_parameters = ("tweedie_variance_power",)
    export_section = "tweedie_regression_param"

    def _fits(self, labels: NDArray[np.float32]) -> NDArray[np.bool_]:
        return np.isfinite(labels) & (labels >= 0)

    def gradients(
        self,
        margins: NDArray[np.float32],
        labels: NDArray[np.float32],
        weight: NDArray[np.float32] | None = None,
    ) -> NDArray[np.float32]:
        """With power r: g = -y exp((1-r) p) + exp((2-r) p), and h is its derivative."""
        one, two = _ONE - np.float32(self.variance_power), 2 - np.float32(self.variance_power)
        below, above = single_precision.exp(one * margins), single_precision.exp(two * margins)
        g = -labels * below + above
        h = -labels * one * below + two * above
        return pairs(g, h, weight)


_MEDIAN = 0.5


class _Adaptive(Objective):
    """Absolute and quantile errors of XGBoost 3.2, whose leaves are quantiles of residuals.

    h is constant here, so sums of g and h would give poor leaf weights. XGBoost refreshes
    the leaves of each tree with a quantile of the residuals in them ("adaptive trees"). The active
    party does so alone: it knows labels, margins and which rows stand in which leaf.
    """

    leaf_quantile: float

    def _fits(self, labels: NDArray[np.float32]) -> NDArray[np.bool_]:
        return np.isfinite(labels)

    def _estimate(
        self, labels: NDArray[np.float32], weight: NDArray[np.float32] | None
    ) -> np.float32:
        """The quantile of the labels."""
        return quantile(labels, self.leaf_quantile, weight)


@dataclass(frozen=True)
class AbsoluteError(_Adaptive):
    """The absolute error of real labels."""

    leaf_quantile: float = field(default=_MEDIAN, init=False)

    name = "reg:absoluteerror"
    wanted = "reg:absoluteerror takes finite numbers"
    default_metric = "mae"
    ldp_bounds = GradientBounds(1.0, (1.0, 1.0))

    @classmethod
    def of(cls, params: Any) -> Objective:
        """The objective of XGBoost 3.2, or the smooth one of 3.4."""
        return (
            super().of(params)
            if params.xgboost_arithmetic == "3.2"
            else SmoothAbsoluteError.of(params)
        )

    def _estimate(
        self, labels: NDArray[np.float32], weight: NDArray[np.float32] | None
    ) -> np.float32:
        """The median label, times the sum of weights and divided by it, in float32 each."""
        total = float(len(labels)) if weight is None else float(np.sum(weight, dtype=np.float64))
        median = float(super()._estimate(labels, weight))
        return np.float32(float(np.float32(median * total)) * (1.0 / total))

    def gradients(
        self,
        margins: NDArray[np.float32],
        labels: NDArray[np.float32],
        weight: NDArray[np.float32] | None = None,
    ) -> NDArray[np.float32]:
        """g is the sign of p - y, and h = 1."""
        return pairs(np.sign(margins - labels), np.ones_like(labels), weight)


@dataclass(frozen=True)
class QuantileError(_Adaptive):
    """The pinball loss of one quantile (of XGBoost's ``quantile_alpha``)."""

    leaf_quantile: float = _MEDIAN

    name = "reg:quantileerror"
    wanted = "reg:quantileerror takes finite numbers"
    default_metric = "quantile"
    own_parameters = ("quantile_alpha",)
    takes_targets = False
    export_section = "quantile_loss_param"
    ldp_bounds = GradientBounds(1.0, (1.0, 1.0))

    @classmethod
    def of(cls, params: Any) -> Objective:
        """The objective of XGBoost 3.2, or the smooth one of 3.4."""
        return (
            super().of(params)
            if params.xgboost_arithmetic == "3.2"
            else SmoothQuantileError.of(params)
        )

    @classmethod
    def parts_of(cls, params: Any) -> tuple[Objective, ...]:
        """The objective of each quantile."""
        return tuple(
            cls.of(params.model_copy(update={"quantile_alpha": alpha}))
            for alpha in params.quantiles
        )

    @classmethod
    def exported(cls, params: Any) -> Mapping[str, str]:
        """XGBoost has a list of quantiles."""
        return {"quantile_alpha": json.dumps(params.quantiles)}

    def gradients(
        self,
        margins: NDArray[np.float32],
        labels: NDArray[np.float32],
        weight: NDArray[np.float32] | None = None,
    ) -> NDArray[np.float32]:
        """g = 1 - alpha where p >= y, else -alpha; h = 1."""
        alpha = np.float32(self.leaf_quantile)
        g = np.where(margins - labels >= 0, np.float32(1) - alpha, -alpha)
        return pairs(g, np.ones_like(labels), weight)


_HALF, _ONE = np.float32(0.5), np.float32(1)
_WIDTH = np.float32(0.04)  # XGBoost's kSmoothingScale
_LEAST_RATIO = np.float32(3e-4)  # XGBoost's kMinSurrogateRatio
_NO_WEIGHT = 1e-6  # XGBoost's kRtEps


class _Smoothed(Objective):
    """Absolute and quantile errors of XGBoost 3.4: smooth, so that g and h make the leaves.

    The width of both is the squared mean root of the residuals' magnitudes, over all rows and anew
    in each round. h is that of a parabola above the loss, so that no step goes too far.
    """

    def _fits(self, labels: NDArray[np.float32]) -> NDArray[np.bool_]:
        return np.isfinite(labels)


@dataclass(frozen=True)
class SmoothAbsoluteError(_Smoothed):
    """The absolute error of real labels, as a hyperbola that is round near 0."""

    name = "reg:absoluteerror"
    wanted = "reg:absoluteerror takes finite numbers"
    default_metric = "mae"
    ldp_bounds = GradientBounds(None, (0.0, 1.0))

    def _estimate(
        self, labels: NDArray[np.float32], weight: NDArray[np.float32] | None
    ) -> np.float32:
        """One step of Newton's method from the mean label."""
        mean = sample_mean(labels, weight)
        gradients = self.gradients(np.full_like(labels, mean), labels, weight)
        return np.float32(newton_step(gradients) + mean)

    def gradients(
        self,
        margins: NDArray[np.float32],
        labels: NDArray[np.float32],
        weight: NDArray[np.float32] | None = None,
    ) -> NDArray[np.float32]:
        """With r = p - y and the width d: h = d / sqrt(d^2 + r^2), which is 1 at 0, and g = r h."""
        residuals = margins - labels
        width = _width(residuals, weight)
        norm = single_precision.hypot(np.full_like(residuals, width), residuals)
        h = np.where(norm > 0, width / np.where(norm > 0, norm, _ONE), _ONE)
        rows = _counts(labels, weight)
        return np.stack((rows * residuals * h, rows * h), axis=1)


@dataclass(frozen=True)
class SmoothQuantileError(_Smoothed):
    """The pinball loss of one quantile, smoothed by a logistic."""

    alpha: float

    name = "reg:quantileerror"
    wanted = "reg:quantileerror takes finite numbers"
    default_metric = "quantile"
    own_parameters = ("quantile_alpha",)
    export_section = "quantile_loss_param"
    ldp_bounds = GradientBounds(None, (0.00375, 12.5))

    def _estimate(
        self, labels: NDArray[np.float32], weight: NDArray[np.float32] | None
    ) -> np.float32:
        """The quantile of the labels."""
        return quantile(labels, self.alpha, weight)

    def predictions(self, margins: NDArray[np.float32]) -> NDArray[np.float32]:
        """The margins; several of a row in ascending order, so that quantiles do not cross."""
        return np.sort(margins, axis=1) if margins.ndim > 1 else margins

    def gradients(
        self,
        margins: NDArray[np.float32],
        labels: NDArray[np.float32],
        weight: NDArray[np.float32] | None = None,
    ) -> NDArray[np.float32]:
        """With the width s and x = (p - y) / 0.04 s: g = s/2 (tanh x + 1 - 2 alpha).

        h = tanh(x) / 0.08 x, no less than 0.0003 of its value at 0; both are 0 where s is.
        """
        residuals = margins - labels
        rows = _counts(labels, weight)
        width = _width(residuals, weight)
        if width <= 0:
            return np.zeros((len(labels), 2), np.float32)
        x = residuals / (_WIDTH * width)
        tanh = single_precision.tanh(x)
        ratio = np.where(x == 0, _ONE, tanh / np.where(x == 0, _ONE, x))
        alpha = np.float32(self.alpha)
        g = _HALF * width * (tanh + _ONE - np.float32(2) * alpha)
        h = _HALF / _WIDTH * np.maximum(ratio, _LEAST_RATIO)
        return np.stack((rows * g, rows * h), axis=1)


def _counts(labels: NDArray[np.float32], weight: NDArray[np.float32] | None) -> NDArray[np.float32]:
    return np.ones_like(labels) if weight is None else weight


def _width(residuals: NDArray[np.float32], weight: NDArray[np.float32] | None) -> np.float32:
    """The mean of sqrt |r| over rows, squared; 0 where no row counts."""
    roots = _counts(residuals, weight) * np.sqrt(np.abs(residuals))
    counted = float(len(roots)) if weight is None else _total(weight)
    if counted < _NO_WEIGHT:
        return np.float32(0)
    mean = _total(roots) / counted
    return np.float32(mean * mean)


def _total(values: NDArray[np.float32]) -> float:
    """The sum, one after the other as XGBoost adds on one thread."""
    return float(np.cumsum(values, dtype=np.float64)[-1])
