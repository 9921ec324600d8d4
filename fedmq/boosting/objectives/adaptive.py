"""Absolute and quantile errors of XGBoost 3.2, whose leaves are quantiles of residuals.

h is a constant here, so that a leaf's weight from sums would be a poor one. XGBoost refreshes the
leaves of each tree with a quantile of the residuals in them ("adaptive trees"). The label holder
does so alone: it knows labels, margins and who stands in which leaf.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.objectives.intercept import quantile
from fedmq.boosting.objectives.objective import Untransformed, pairs

__all__ = ["AbsoluteError", "QuantileError"]

_MEDIAN = 0.5


class _Adaptive(Untransformed):
    leaf_quantile: float

    def _fits(self, labels: NDArray[np.float32]) -> NDArray[np.bool_]:
        return np.isfinite(labels)

    def base_score(
        self, labels: NDArray[np.float32], weight: NDArray[np.float32] | None
    ) -> np.float32:
        """The quantile of the labels."""
        return quantile(labels, self.leaf_quantile, weight)


@dataclass(frozen=True)
class AbsoluteError(_Adaptive):
    """The absolute error of real labels."""

    leaf_quantile: float = field(default=_MEDIAN, init=False)

    wanted = "reg:absoluteerror takes finite numbers"

    def base_score(
        self, labels: NDArray[np.float32], weight: NDArray[np.float32] | None
    ) -> np.float32:
        """The median label, times the sum of weights and divided by it, in float32 each."""
        total = float(len(labels)) if weight is None else float(np.sum(weight, dtype=np.float64))
        median = float(super().base_score(labels, weight))
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
    """The pinball loss of one quantile (XGBoost's ``quantile_alpha``)."""

    leaf_quantile: float = _MEDIAN

    wanted = "reg:quantileerror takes finite numbers"

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
