"""Objectives: which labels fit, the first margin, gradients, and predictions.

All arithmetic is float32 in the order of XGBoost's ``regression_loss.h`` and ``math.h``.
Exponentials and logarithms are taken in float64 and rounded once, which is what a correctly
rounded ``expf`` gives; NumPy's own float32 ones are off by more than XGBoost's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmq.boosting.params import ObjectiveName
from fedmq.errors import DataError

__all__ = ["OBJECTIVES", "BinaryLogistic", "Objective", "SquaredError"]

_ONE = np.float32(1)
_SMALLEST_HESSIAN = np.float32(1e-16)
_LARGEST_EXPONENT = np.float32(88.7)  # exp of more overflows float32
_BASE_SCORE_MARGIN = np.float32(1e-6)  # XGBoost's kRtEps


class Objective(ABC):
    """What is minimised; ``name`` is XGBoost's."""

    name: ClassVar[ObjectiveName]
    _wanted: ClassVar[str]

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
            raise DataError(f"{where}: label in row {row + 1} is {labels[row]:g}; {self._wanted}")
        return labels

    @abstractmethod
    def _fits(self, labels: NDArray[np.float32]) -> NDArray[np.bool_]: ...

    @abstractmethod
    def base_margin(self, base_score: float) -> np.float32:
        """The margin that every row starts from."""

    @abstractmethod
    def predictions(self, margins: NDArray[np.float32]) -> NDArray[np.float32]:
        """Margins as predictions, float32 of the same shape."""

    @abstractmethod
    def gradients(
        self, margins: NDArray[np.float32], labels: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """First and second derivatives g, h of the loss per row; float32 (rows, 2)."""


class BinaryLogistic(Objective):
    """Log loss of labels 0 and 1; predictions are probabilities."""

    name = "binary:logistic"
    _wanted = "binary:logistic takes 0 and 1"

    def _fits(self, labels: NDArray[np.float32]) -> NDArray[np.bool_]:
        return np.isin(labels, (0, 1))

    def base_margin(self, base_score: float) -> np.float32:
        """``logit(base_score)``, kept 1e-6 away from 0 and 1 as XGBoost does."""
        score = np.float32(base_score)
        score = np.clip(score, _BASE_SCORE_MARGIN, _ONE - _BASE_SCORE_MARGIN)
        return np.float32(-np.log(np.float64(_ONE / score - _ONE)))

    def predictions(self, margins: NDArray[np.float32]) -> NDArray[np.float32]:
        """``1 / (1 + exp(-margin))``."""
        exponents = np.minimum(-margins, _LARGEST_EXPONENT).astype(np.float64)
        return _ONE / (np.exp(exponents).astype(np.float32) + _ONE)

    def gradients(
        self, margins: NDArray[np.float32], labels: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """g = p - y and h = max(p (1 - p), 1e-16)."""
        p = self.predictions(margins)
        return np.stack((p - labels, np.maximum(p * (_ONE - p), _SMALLEST_HESSIAN)), axis=1)


class SquaredError(Objective):
    """Half the squared error of real labels; predictions are the margins."""

    name = "reg:squarederror"
    _wanted = "reg:squarederror takes finite numbers"

    def _fits(self, labels: NDArray[np.float32]) -> NDArray[np.bool_]:
        return np.isfinite(labels)

    def base_margin(self, base_score: float) -> np.float32:
        """``base_score`` itself."""
        return np.float32(base_score)

    def predictions(self, margins: NDArray[np.float32]) -> NDArray[np.float32]:
        """The margins themselves."""
        return margins

    def gradients(
        self, margins: NDArray[np.float32], labels: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """g = p - y and h = 1."""
        return np.stack((margins - labels, np.ones_like(margins)), axis=1)


OBJECTIVES: Mapping[str, Objective] = {
    objective.name: objective for objective in (BinaryLogistic(), SquaredError())
}
"""Objectives by name."""
