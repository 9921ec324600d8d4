"""Expectiles: ``reg:expectileerror`` of XGBoost 3.3 and later."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting import single_precision
from fedmq.boosting.objectives.objective import (
    BaseScore,
    FirstMargin,
    Objective,
    newton_step,
    pairs,
    sample_mean,
)

__all__ = ["ExpectileError"]

_ONE = np.float32(1)
_LEAST_GAP = np.float32(1e-6)  # XGBoost's kRtEps


@dataclass(frozen=True)
class ExpectileError(Objective):
    """Squared errors, of which those below a prediction count ``1 - alpha`` and others ``alpha``.

    Of several ``alphas`` the first margin is the first prediction, and each further one says by
    ``log(1 + exp(m))`` how far its prediction lies above the one before, so that none cross.
    Margins are float32 (rows,), or (rows, alphas).
    """

    alphas: tuple[float, ...]

    name = "reg:expectileerror"
    wanted = "reg:expectileerror takes finite numbers"
    default_metric = "expectile"
    own_parameters = ("expectile_alpha",)
    takes_targets = False
    export_section = "expectile_loss_param"

    @classmethod
    def of(cls, params: Any) -> Objective:
        """The objective of all expectiles together."""
        return cls(params.expectiles)

    @classmethod
    def exported(cls, params: Any) -> Mapping[str, str]:
        """XGBoost has a list of expectiles."""
        return {"expectile_alpha": json.dumps(params.expectiles)}

    def _fits(self, labels: NDArray[np.float32]) -> NDArray[np.bool_]:
        return np.isfinite(labels)

    def base_scores(
        self, labels: NDArray[np.float32], weight: NDArray[np.float32] | None
    ) -> BaseScore:
        """One step of Newton's method from the mean label for each expectile, none descending."""
        mean = sample_mean(labels, weight)
        off = mean - labels
        steps = [
            newton_step(pairs(scale * off, scale, weight))
            for scale in (_counted(off, alpha) for alpha in self.alphas)
        ]
        scores = np.maximum.accumulate(np.array(steps, np.float32) + mean).tolist()
        return tuple(scores) if len(scores) > 1 else float(scores[0])

    def first_margin(self, base_score: BaseScore) -> FirstMargin:
        """The margins of these predictions: a float32, or float32 (alphas,)."""
        scores = np.broadcast_to(np.asarray(base_score, np.float32), len(self.alphas))
        gaps = np.maximum(np.diff(scores) - _LEAST_GAP, _LEAST_GAP)
        above = gaps + single_precision.log(-single_precision.expm1(-gaps))
        margins = np.concatenate((scores[:1], above))
        return margins if len(margins) > 1 else margins[0]

    def predictions(self, margins: NDArray[np.float32]) -> NDArray[np.float32]:
        """The expectiles: float32 of the shape of ``margins``."""
        if margins.ndim == 1:
            return margins
        gaps = _LEAST_GAP + single_precision.softplus(margins[:, 1:])
        return np.cumsum(np.column_stack((margins[:, :1], gaps)), axis=1, dtype=np.float32)

    def gradients(
        self,
        margins: NDArray[np.float32],
        labels: NDArray[np.float32],
        weight: NDArray[np.float32] | None = None,
    ) -> NDArray[np.float32]:
        """With c the count of an error e: g = s sum(c e) and h = s^2 sum(c).

        The sums are over a margin's own prediction and those after it, and s is its slope: 1 of the
        first, 1 / (1 + exp(-m)) of each further one.
        """
        rows = np.ones_like(labels) if weight is None else weight
        predictions = self.predictions(margins).reshape(len(labels), -1)
        g, h = np.zeros_like(predictions), np.zeros_like(predictions)
        for place, alpha in enumerate(self.alphas):  # one after the other, as XGBoost adds them
            off = predictions[:, place] - labels
            scale = _counted(off, alpha)
            g[:, : place + 1] += (scale * off * rows)[:, np.newaxis]
            h[:, : place + 1] += (scale * rows)[:, np.newaxis]
        slope = single_precision.sigmoid(margins.reshape(predictions.shape))
        slope[:, 0] = _ONE
        both: NDArray[np.float32] = np.stack((slope * g, slope * slope * h), axis=2)
        return both.reshape(*margins.shape, 2)


def _counted(off: NDArray[np.float32], alpha: float) -> NDArray[np.float32]:
    """How often an error ``off`` counts: ``1 - alpha`` from 0 on, ``alpha`` below."""
    return np.where(off >= 0, _ONE - np.float32(alpha), np.float32(alpha))
