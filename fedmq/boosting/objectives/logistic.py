"""Log loss of probabilities: ``binary:logistic``, ``reg:logistic`` and ``binary:logitraw``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting import single_precision
from fedmq.boosting.objectives.objective import RegressionLoss, Untransformed

__all__ = ["BinaryLogistic", "LogitRaw", "RegLogistic"]

_ONE = np.float32(1)
_SMALLEST_HESSIAN = np.float32(1e-16)
_BASE_SCORE_MARGIN = np.float32(1e-6)  # XGBoost's kRtEps


def _within(score: np.float32) -> np.float32:
    return np.float32(np.clip(score, _BASE_SCORE_MARGIN, _ONE - _BASE_SCORE_MARGIN))


@dataclass(frozen=True)
class RegLogistic(RegressionLoss):
    """Log loss of shares between 0 and 1; predictions are probabilities."""

    wanted = "reg:logistic takes shares from 0 to 1"

    def _fits(self, labels: NDArray[np.float32]) -> NDArray[np.bool_]:
        return (labels >= 0) & (labels <= 1)

    def base_score(
        self, labels: NDArray[np.float32], weight: NDArray[np.float32] | None
    ) -> np.float32:
        """As all regression losses have it, but as far from 0 and 1 as the margin takes it."""
        return _within(super().base_score(labels, weight))

    def base_margin(self, base_score: float) -> np.float32:
        """``logit(base_score)``, kept 1e-6 away from 0 and 1 as XGBoost does."""
        score = _within(np.float32(base_score))
        return -single_precision.log_of(_ONE / score - _ONE)

    def predictions(self, margins: NDArray[np.float32]) -> NDArray[np.float32]:
        """``1 / (1 + exp(-margin))``."""
        return single_precision.sigmoid(margins)

    def _derivatives(
        self, margins: NDArray[np.float32], labels: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """g = p - y and h = max(p (1 - p), 1e-16)."""
        p = single_precision.sigmoid(margins)
        return np.stack((p - labels, np.maximum(p * (_ONE - p), _SMALLEST_HESSIAN)), axis=1)


@dataclass(frozen=True)
class BinaryLogistic(RegLogistic):
    """Log loss of labels 0 and 1; predictions are probabilities."""

    wanted = "binary:logistic takes 0 and 1"

    def _fits(self, labels: NDArray[np.float32]) -> NDArray[np.bool_]:
        return np.isin(labels, (0, 1))


@dataclass(frozen=True)
class LogitRaw(Untransformed, BinaryLogistic):
    """Log loss of labels 0 and 1; predictions are the margins, and so is the base score."""

    wanted = "binary:logitraw takes 0 and 1"

    def base_score(
        self, labels: NDArray[np.float32], weight: NDArray[np.float32] | None
    ) -> np.float32:
        """The mean label, as if it were a margin; XGBoost has it so."""
        return RegressionLoss.base_score(self, labels, weight)
