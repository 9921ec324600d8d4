"""Softmax over classes: ``multi:softprob`` and ``multi:softmax``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting import single_precision
from fedmq.boosting.objectives.objective import BaseScore, FirstMargin, GradientBounds, Objective

__all__ = ["SoftMax", "SoftProb"]

_ONE = np.float32(1)
_SMALLEST_FLOAT = np.finfo(np.float32).tiny
_SMALLEST_HESSIAN = np.float32(1e-16)
_SMALLEST_SHARE = np.float32(1e-6)  # XGBoost's kRtEps


@dataclass(frozen=True)
class SoftProb(Objective):
    """Cross entropy of classes 0 to ``classes - 1``; predictions are probabilities (rows, classes).

    Margins are float32 (rows, classes).
    """

    classes: int

    name = "multi:softprob"
    wanted = "classes are numbered from 0 to num_class - 1"
    own_parameters = ("num_class",)
    takes_targets = False
    default_metric = "mlogloss"
    metrics = ("mlogloss", "merror", "auc", "aucpr")
    ldp_bounds = GradientBounds(1.0, (0.0, 0.5))  # 2 p (1 - p)
    export_section = "softmax_multiclass_param"

    def _fits(self, labels: NDArray[np.float32]) -> NDArray[np.bool_]:
        whole: NDArray[np.bool_] = np.floor(labels) == labels
        return whole & (labels >= 0) & (labels < self.classes)

    def base_scores(
        self, labels: NDArray[np.float32], weight: NDArray[np.float32] | None
    ) -> BaseScore:
        """The logarithms of the classes' shares, less their mean."""
        rows = np.ones_like(labels) if weight is None else weight
        shares = np.zeros(self.classes, np.float32)
        for name in range(self.classes):  # one after the other in float32, as XGBoost adds
            held = rows[labels == name]
            shares[name] = np.cumsum(held, dtype=np.float32)[-1] if len(held) else 0
        shares = (shares * (1.0 / np.sum(rows, dtype=np.float64))).astype(np.float32)
        logs = single_precision.log(shares + _SMALLEST_SHARE)
        mean = np.cumsum(logs / np.float32(self.classes), dtype=np.float32)[-1]
        return tuple((logs - mean).astype(np.float32).tolist())

    def first_margin(self, base_score: BaseScore) -> FirstMargin:
        """A margin for each class: float32 (classes,)."""
        return np.full(self.classes, base_score, np.float32)

    def predictions(self, margins: NDArray[np.float32]) -> NDArray[np.float32]:
        """``exp(m_k) / sum of exp(m)``, float32 (rows, classes)."""
        return _softmax(margins, margins.max(axis=1, keepdims=True))

    def gradients(
        self,
        margins: NDArray[np.float32],
        labels: NDArray[np.float32],
        weight: NDArray[np.float32] | None = None,
    ) -> NDArray[np.float32]:
        """g = p - [y = k] and h = max(2 p (1 - p), 1e-16): float32 (rows, classes, 2)."""
        largest: NDArray[np.float32] = np.maximum(
            margins.max(axis=1, keepdims=True), _SMALLEST_FLOAT
        )
        p = _softmax(margins, largest)
        rows = np.ones((len(labels), 1), np.float32) if weight is None else weight[:, None]
        h = np.maximum(2 * p * (_ONE - p) * rows, _SMALLEST_HESSIAN)
        chosen = labels[:, None] == np.arange(self.classes)
        return np.stack((np.where(chosen, p - _ONE, p) * rows, h), axis=2)


@dataclass(frozen=True)
class SoftMax(SoftProb):
    """The same; predictions are the likeliest class, as float32 (rows,)."""

    name = "multi:softmax"

    def predictions(self, margins: NDArray[np.float32]) -> NDArray[np.float32]:
        """The class of the largest margin, the first of several."""
        likeliest: NDArray[np.intp] = np.argmax(margins, axis=1)
        return likeliest.astype(np.float32)

    def evaluated(self, margins: NDArray[np.float32]) -> NDArray[np.float32]:
        """Probabilities, as metrics take them."""
        return super().predictions(margins)


def _softmax(margins: NDArray[np.float32], largest: NDArray[np.float32]) -> NDArray[np.float32]:
    powers = single_precision.exp(margins - largest)
    total = np.cumsum(powers.astype(np.float64), axis=1)[:, -1:].astype(np.float32)
    return powers / total
