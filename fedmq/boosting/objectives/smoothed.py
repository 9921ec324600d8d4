"""Absolute and quantile errors of XGBoost 3.4: smooth, so that sums of g and h make the leaves.

Both are as wide as residuals are off in the mean: their mean root squared, over all rows and anew
in each round. h is that of a parabola above the loss, so that no step goes too far.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting import single_precision
from fedmq.boosting.objectives.intercept import newton_step, quantile, sample_mean
from fedmq.boosting.objectives.objective import Untransformed

__all__ = ["SmoothAbsoluteError", "SmoothQuantileError"]

_HALF, _ONE = np.float32(0.5), np.float32(1)
_WIDTH = np.float32(0.04)  # XGBoost's kSmoothingScale
_LEAST_RATIO = np.float32(3e-4)  # XGBoost's kMinSurrogateRatio
_NO_WEIGHT = 1e-6  # XGBoost's kRtEps


class _Smoothed(Untransformed):
    def _fits(self, labels: NDArray[np.float32]) -> NDArray[np.bool_]:
        return np.isfinite(labels)


@dataclass(frozen=True)
class SmoothAbsoluteError(_Smoothed):
    """The absolute error of real labels, as a hyperbola that is round near 0."""

    wanted = "reg:absoluteerror takes finite numbers"

    def base_score(
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
    """The pinball loss of one quantile (XGBoost's ``quantile_alpha``), smoothed by a logistic."""

    alpha: float

    wanted = "reg:quantileerror takes finite numbers"

    def base_score(
        self, labels: NDArray[np.float32], weight: NDArray[np.float32] | None
    ) -> np.float32:
        """The quantile of the labels."""
        return quantile(labels, self.alpha, weight)

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
