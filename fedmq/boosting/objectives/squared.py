"""Squared errors and what tames them: of values, of logarithms, and the pseudo-Huber loss."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting import single_precision
from fedmq.boosting.objectives.objective import RegressionLoss, Untransformed, pairs

__all__ = ["PseudoHuberError", "SquaredError", "SquaredLogError"]

_ONE = np.float32(1)
_LEAST_PREDICTION = np.float32(-1 + 1e-6)
_SMALLEST_HESSIAN = np.float32(1e-6)


@dataclass(frozen=True)
class SquaredError(Untransformed, RegressionLoss):
    """Half the squared error of real labels; predictions are the margins."""

    wanted = "reg:squarederror takes finite numbers"

    def _fits(self, labels: NDArray[np.float32]) -> NDArray[np.bool_]:
        return np.isfinite(labels)

    def _derivatives(
        self, margins: NDArray[np.float32], labels: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """g = p - y and h = 1."""
        return np.stack((margins - labels, np.ones_like(margins)), axis=1)


class _FromZero(Untransformed):
    def base_score(
        self, labels: NDArray[np.float32], weight: NDArray[np.float32] | None
    ) -> np.float32:
        """One step of Newton's method from 0."""
        return self._newton_score(labels, weight)


@dataclass(frozen=True)
class SquaredLogError(_FromZero):
    """Half the squared error of ``log(1 + y)``."""

    wanted = "reg:squaredlogerror takes finite numbers above -1"

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
        return pairs(g, np.maximum(h.astype(np.float32), _SMALLEST_HESSIAN), weight)


@dataclass(frozen=True)
class PseudoHuberError(_FromZero):
    """Squared near 0, absolute beyond ``slope`` (XGBoost's ``huber_slope``)."""

    slope: float = 1.0

    wanted = "reg:pseudohubererror takes finite numbers"

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
