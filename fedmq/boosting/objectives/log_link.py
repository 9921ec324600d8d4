"""Predictions that are the exponential of the margin: Poisson, gamma and Tweedie regression."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting import single_precision
from fedmq.boosting.objectives.objective import Objective, RegressionLoss, pairs
from fedmq.errors import DataError

__all__ = ["Gamma", "Poisson", "Tweedie"]

_ONE = np.float32(1)


class _LogLink(Objective):
    def _fits(self, labels: NDArray[np.float32]) -> NDArray[np.bool_]:
        return np.isfinite(labels) & (labels >= 0)

    def base_score(
        self, labels: NDArray[np.float32], weight: NDArray[np.float32] | None
    ) -> np.float32:
        """As other objectives have it.

        Raises:
            DataError: all labels are 0, which has no logarithm.
        """
        score = super().base_score(labels, weight)
        if not score > 0:
            raise DataError("label: all are 0, so there is nothing to learn")
        return score

    def base_margin(self, base_score: float) -> np.float32:
        """``log(base_score)``."""
        return single_precision.log_of(base_score)

    def predictions(self, margins: NDArray[np.float32]) -> NDArray[np.float32]:
        """``exp(margin)``."""
        return single_precision.exp(margins)


@dataclass(frozen=True)
class Poisson(_LogLink):
    """Negative log likelihood of counts; ``max_delta_step`` makes h larger, and steps smaller."""

    max_delta_step: float = 0.7

    wanted = "count:poisson takes finite numbers from 0 on"

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
class Gamma(_LogLink, RegressionLoss):
    """Deviance of the gamma distribution."""

    wanted = "reg:gamma takes finite numbers above 0"

    def _fits(self, labels: NDArray[np.float32]) -> NDArray[np.bool_]:
        return np.isfinite(labels) & (labels > 0)

    def _derivatives(
        self, margins: NDArray[np.float32], labels: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """g = 1 - y/p and h = y/p, of the prediction p."""
        h = labels / single_precision.exp(margins)
        return np.stack((_ONE - h, h), axis=1)


@dataclass(frozen=True)
class Tweedie(_LogLink):
    """Negative log likelihood of a Tweedie distribution of this ``variance_power``, 1 to 2."""

    variance_power: float = 1.5

    wanted = "reg:tweedie takes finite numbers from 0 on"

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
