"""Survival: Cox's proportional hazards, and accelerated failure time (arXiv 2006.04920).

``CoxRegression``, ``survival_util.h`` and ``probability_distribution.h`` of XGBoost, in float64.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmq.boosting import single_precision
from fedmq.boosting.objectives.objective import FromZero, Objective, pairs
from fedmq.boosting.objectives.regression import LogLink
from fedmq.errors import DataError

__all__ = [
    "AcceleratedFailureTime",
    "AftDistribution",
    "CoxHazards",
    "cox_loss",
    "survival_loss",
]

_SMALLEST = 1e-12
_BOUND = 15.0
_SMALLEST_HESSIAN = 1e-16
_DEFAULT_SCORE = np.float32(0.5)

AftDistribution = Literal["normal", "logistic", "extreme"]

_Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class CoxHazards(FromZero):
    """Partial likelihood of proportional hazards (Cox, 1972); ties after Breslow.

    A label is the time of an event, or less than 0: minus the time until which nothing happened.
    Predictions are hazard ratios. All rows count in all gradients, so a row's depend on the others.
    """

    name = "survival:cox"
    wanted = "survival:cox takes finite times, below 0 where nothing has happened until then"
    link = LogLink()
    default_metric = "cox-nloglik"
    metrics = ("cox-nloglik",)
    takes_targets = False

    def _fits(self, labels: NDArray[np.float32]) -> NDArray[np.bool_]:
        return np.isfinite(labels)

    def gradients(
        self,
        margins: NDArray[np.float32],
        labels: NDArray[np.float32],
        weight: NDArray[np.float32] | None = None,
    ) -> NDArray[np.float32]:
        """g = e sum(1/D) - d and h = e sum(1/D) - e^2 sum(1/D^2), D the hazards of rows at risk.

        The sums are over the events until then, e is the row's hazard, and d is 1 at an event.
        """
        order, starts = _by_time(labels)
        hazards = np.exp(margins[order].astype(np.float64))
        # XGBoost adds the first sum up in float32 exponentials, and takes float64 ones away.
        at_risk = _at_risk(single_precision.exp(margins[order]), hazards, starts)
        events = labels[order] > 0
        with np.errstate(all="ignore"):
            firsts = np.cumsum(np.where(events, 1.0 / at_risk, 0.0))
            seconds = np.cumsum(np.where(events, 1.0 / (at_risk * at_risk), 0.0))
        rows = 1.0 if weight is None else weight[order].astype(np.float64)
        g = (hazards * firsts - events) * rows
        h = (hazards * firsts - hazards * hazards * seconds) * rows
        gradients = np.empty((len(labels), 2), np.float32)
        gradients[order, 0] = g
        # What rounding leaves of a difference that is 0 has no sign.
        gradients[order, 1] = np.maximum(h, 0.0)
        return gradients


def _by_time(labels: NDArray[np.float32]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The rows by time, and where each time begins among them."""
    times = np.abs(labels)
    order = np.argsort(times, kind="stable")
    return order, np.flatnonzero(np.append(True, np.diff(times[order]) > 0)[: len(order)])


def _at_risk(
    added: NDArray[np.float32], removed: NDArray[np.floating], starts: NDArray[np.intp]
) -> _Doubles:
    """Of rows by time, the hazards of all that have reached this time: float64 (rows,)."""
    if not len(added):
        return np.zeros(0)
    total = np.cumsum(added, dtype=np.float64)[-1]
    gone = np.add.reduceat(removed.astype(np.float64), starts)
    remaining = np.subtract.accumulate(np.append(total, gone[:-1]))
    return np.repeat(remaining, np.diff(np.append(starts, len(added))))


def cox_loss(labels: NDArray[np.float32], hazards: NDArray[np.float32]) -> float:
    """The negative partial log likelihood of float32 hazard ratios (rows,), per event.

    NaN without an event.
    """
    order, starts = _by_time(labels)
    held = hazards[order]
    events = labels[order] > 0
    with np.errstate(all="ignore"):
        at_risk = _at_risk(held, held, starts)
        logs = single_precision.log(held).astype(np.float64) - np.log(at_risk)
        return -float(np.cumsum(logs[events])[-1]) / int(events.sum()) if events.any() else np.nan


_erf = np.frompyfunc(math.erf, 1, 1)


@dataclass(frozen=True)
class _Density:
    """A distribution at z: density, its first two derivatives, and the share below z."""

    pdf: _Doubles
    slope: _Doubles
    curvature: _Doubles
    cdf: _Doubles

    def cut(self, beyond: NDArray[np.bool_], cdf: float) -> _Density:
        """The same, with no bound in the rows ``beyond``: their share below is ``cdf``."""
        pdf, slope, curvature = (
            np.where(beyond, 0.0, part) for part in (self.pdf, self.slope, self.curvature)
        )
        return _Density(pdf, slope, curvature, np.where(beyond, cdf, self.cdf))


def _normal(z: _Doubles) -> _Density:
    pdf = np.exp(-z * z / 2.0) / np.sqrt(2.0 * np.pi)
    below = 0.5 * (1 + np.asarray(_erf(z / np.sqrt(2.0)), np.float64))
    return _Density(pdf, -z * pdf, (z * z - 1.0) * pdf, below)


def _logistic(z: _Doubles) -> _Density:
    w = np.exp(z)
    large = np.isinf(w) | np.isinf(w * w)
    pdf = np.where(large, 0.0, w / ((1 + w) * (1 + w)))
    slope = np.where(np.isinf(w), 0.0, pdf * (1 - w) / (1 + w))
    curvature = np.where(large, 0.0, pdf * (w * w - 4 * w + 1) / ((1 + w) * (1 + w)))
    return _Density(pdf, slope, curvature, np.where(np.isinf(w), 1.0, w / (1 + w)))


def _extreme(z: _Doubles) -> _Density:
    w = np.exp(z)
    pdf = np.where(np.isinf(w), 0.0, w * np.exp(-w))
    slope = np.where(np.isinf(w), 0.0, (1 - w) * pdf)
    large = np.isinf(w) | np.isinf(w * w)
    curvature = np.where(large, 0.0, (w * w - 3 * w + 1) * pdf)
    return _Density(pdf, slope, curvature, 1 - np.exp(-w))


_DENSITIES = {"normal": _normal, "logistic": _logistic, "extreme": _extreme}


def _limits(distribution: AftDistribution, scale: float) -> tuple[_Doubles, _Doubles]:
    """The limits of g and h far from the label, where their quotients are 0/0: (2, 4) each.

    By whether z is above 0, and by censoring: none, right, left, interval.
    """
    slope, curvature, least = 1 / scale, 1 / (scale * scale), _SMALLEST_HESSIAN
    symmetric = [[slope, 0.0, slope, slope], [-slope, -slope, 0.0, -slope]]
    bounded = [[_BOUND, 0.0, _BOUND, _BOUND], [-_BOUND, -_BOUND, 0.0, -_BOUND]]
    none = [least] * 4
    g, h = {
        "normal": (
            bounded,
            [[curvature, least, curvature, curvature], [curvature, curvature, least, curvature]],
        ),
        "logistic": (symmetric, [none, none]),
        "extreme": ([symmetric[0], bounded[1]], [none, [_BOUND, _BOUND, least, _BOUND]]),
    }[distribution]
    return np.array(g), np.array(h)


@dataclass(frozen=True)
class _At:
    """The bounds of the labels within the distribution around the predictions."""

    uncensored: NDArray[np.bool_]
    right: NDArray[np.bool_]
    left: NDArray[np.bool_]
    positive: NDArray[np.bool_]
    lower: _Density
    upper: _Density

    @classmethod
    def of(
        cls,
        margins: NDArray[np.float32],
        labels: NDArray[np.float32],
        distribution: AftDistribution,
        scale: float,
    ) -> _At:
        low, high = labels.astype(np.float64).T
        with np.errstate(all="ignore"):
            predicted = margins.astype(np.float64)
            z_low = (np.log(low) - predicted) / scale
            z_high = (np.log(high) - predicted) / scale
            density = _DENSITIES[distribution]
            uncensored, right, left = low == high, np.isinf(high), low <= 0
            positive = np.where(
                uncensored, z_low > 0, (~left & (z_low > 0)) | (~right & (z_high > 0))
            )
            lower = density(np.where(left, 0.0, z_low))
            upper = density(np.where(right, 0.0, z_high))
        return cls(
            uncensored, right & ~left, left, positive, lower.cut(left, 0.0), upper.cut(right, 1.0)
        )

    @property
    def censoring(self) -> NDArray[np.int64]:
        """0 none, 1 right, 2 left, 3 interval."""
        chosen = np.where(self.left, 2, np.where(self.right, 1, 3))
        return np.where(self.uncensored, 0, chosen)


@dataclass(frozen=True)
class AcceleratedFailureTime(Objective):
    """Negative log likelihood of times between two bounds; predictions are times.

    Labels are float32 (rows, 2): lower and upper bound, the same where the time is known, and inf
    above if the event has not happened yet.
    """

    distribution: AftDistribution = "normal"
    scale: float = 1.0

    name = "survival:aft"
    wanted = "survival:aft takes times from 0 on, with an upper bound that is no smaller"
    link = LogLink()
    own_parameters = ("aft_loss_distribution", "aft_loss_distribution_scale")
    takes_targets = False
    default_metric = "aft-nloglik"
    metrics = ("aft-nloglik", "interval-regression-accuracy")
    export_section = "aft_loss_param"

    def labels(self, values: ArrayLike, where: str) -> NDArray[np.float32]:
        """``values`` (rows,) or (rows, 2) as bounds: float32 (rows, 2).

        Raises:
            DataError: bounds do not fit; the text names their row, counted from 1.
        """
        with np.errstate(over="ignore"):
            given = np.array(values, dtype=np.float32)
        bounds = np.stack((given, given), axis=1) if given.ndim == 1 else given
        wrong = ~self._fits(bounds)
        if wrong.any():
            row = int(np.argmax(wrong))
            low, high = bounds[row].tolist()
            raise DataError(
                f"{where}: label in row {row + 1} is {low:g} to {high:g}; {self.wanted}"
            )
        return bounds

    def _fits(self, labels: NDArray[np.float32]) -> NDArray[np.bool_]:
        low, high = labels.T
        fits: NDArray[np.bool_] = np.isfinite(low) & (low >= 0) & (high >= low) & (high > 0)
        return fits

    def _estimate(
        self, labels: NDArray[np.float32], weight: NDArray[np.float32] | None
    ) -> np.float32:
        """0.5, for XGBoost does not estimate it here."""
        return _DEFAULT_SCORE

    def evaluated(self, margins: NDArray[np.float32]) -> NDArray[np.float32]:
        """The margins themselves: the metrics of survival take logarithms of times."""
        return margins

    def gradients(
        self,
        margins: NDArray[np.float32],
        labels: NDArray[np.float32],
        weight: NDArray[np.float32] | None = None,
    ) -> NDArray[np.float32]:
        """g within [-15, 15] and h within [1e-16, 15] (section 3 of the paper)."""
        scale = float(np.float32(self.scale))
        at = _At.of(margins, labels, self.distribution, scale)
        limits = _limits(self.distribution, scale)
        with np.errstate(all="ignore"):
            g = _quotient(at, *self._first(at, scale), limits[0])
            h = _quotient(at, *self._second(at, scale), limits[1])
        return pairs(
            np.clip(g, -_BOUND, _BOUND).astype(np.float32),
            np.clip(h, _SMALLEST_HESSIAN, _BOUND).astype(np.float32),
            weight,
        )

    def _first(self, at: _At, scale: float) -> tuple[_Doubles, _Doubles]:
        numerator = np.where(at.uncensored, at.lower.slope, at.upper.pdf - at.lower.pdf)
        mass = np.where(at.uncensored, at.lower.pdf, at.upper.cdf - at.lower.cdf)
        return numerator, scale * mass

    def _second(self, at: _At, scale: float) -> tuple[_Doubles, _Doubles]:
        known = at.lower
        exact = -(known.pdf * known.curvature - known.slope * known.slope)
        mass = at.upper.cdf - at.lower.cdf
        density = at.upper.pdf - at.lower.pdf
        between = -(mass * (at.upper.slope - at.lower.slope) - density * density)
        root = scale * mass
        squares = np.where(at.uncensored, scale * scale * known.pdf * known.pdf, root * root)
        return np.where(at.uncensored, exact, between), squares


def _quotient(at: _At, numerator: _Doubles, denominator: _Doubles, limits: _Doubles) -> _Doubles:
    quotient = numerator / denominator
    lost = (denominator < _SMALLEST) & ~np.isfinite(quotient)
    return np.where(lost, limits[at.positive.astype(int), at.censoring], quotient)


def survival_loss(
    margins: NDArray[np.float32],
    labels: NDArray[np.float32],
    distribution: AftDistribution,
    scale: float,
) -> _Doubles:
    """The negative log likelihood of bounds ``labels`` (rows, 2): float64 (rows,)."""
    scale = float(np.float32(scale))
    at = _At.of(margins, labels, distribution, scale)
    with np.errstate(all="ignore"):
        known = at.lower.pdf / (scale * labels[:, 0].astype(np.float64))
        likely = np.where(at.uncensored, known, at.upper.cdf - at.lower.cdf)
        return -np.log(np.fmax(likely, _SMALLEST))
