"""Figures of predicted quantiles: the loss that learns them, and how many labels lie below.

The pinball loss of a label y and its quantile q is (y - q) alpha above q and (q - y) (1 - alpha)
below (R. Koenker, G. Bassett, "Regression Quantiles", Econometrica 46, 1978).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedmq.evaluation.report import Chart, Line, ReportTable

__all__ = ["pinball_loss", "quantile_charts", "quantile_metrics", "quantile_tables"]

_Doubles = NDArray[np.float64]
_TENTHS = 10


def pinball_loss(label: _Doubles, score: _Doubles, alphas: Sequence[float]) -> float:
    """The mean of ``label`` (rows,) and ``score`` (rows,) or (rows, alphas), as XGBoost's metric
    "quantile"."""
    return float(_losses(label, score, alphas).mean())


def quantile_metrics(
    alphas: Sequence[float],
) -> Callable[[_Doubles, _Doubles], Mapping[str, float]]:
    """(label, score) -> pinball loss and coverage, together and of each of ``alphas``.

    ``score`` is (rows, alphas), or (rows,) of one. Coverage is the share of labels at or below the
    predicted quantile, which should be alpha.
    """
    return partial(_metrics, tuple(alphas))


def _metrics(alphas: Sequence[float], label: _Doubles, score: _Doubles) -> Mapping[str, float]:
    losses, covered = _losses(label, score, alphas).mean(axis=0), _covered(label, score)
    found = {"pinball loss": float(losses.mean())}
    if len(alphas) > 1:
        order = np.argsort(alphas, kind="stable")  # 3.2 takes quantiles in any order
        low, high = score[:, order[0]], score[:, order[-1]]
        crossed = (np.diff(score[:, order], axis=1) < 0).any(axis=1)
        found |= {
            f"labels from quantile {min(alphas):g} to {max(alphas):g}": float(
                ((low <= label) & (label <= high)).mean()
            ),
            "mean width": float((high - low).mean()),
            "rows with crossed quantiles": float(crossed.mean()),
        }
    for place, alpha in enumerate(alphas):
        found[f"pinball loss at {alpha:g}"] = float(losses[place])
        found[f"coverage at {alpha:g}"] = float(covered[:, place].mean())
    return found


def quantile_charts(label: _Doubles, score: _Doubles, alphas: Sequence[float]) -> tuple[Chart, ...]:
    """Coverage by alpha, and by tenth of the predictions of each."""
    covered, predicted = _covered(label, score), score.reshape(len(label), -1)
    by_alpha = Chart(
        name="Coverage",
        x="alpha",
        y="share of labels at or below the quantile",
        lines=(
            Line(
                name="model",
                x=tuple(sorted(alphas)),
                y=tuple(covered.mean(axis=0)[np.argsort(alphas)].tolist()),
            ),
            Line(name="exact", x=(0, 1), y=(0, 1)),
        ),
    )
    lines = []
    for place, alpha in enumerate(alphas):
        order = np.argsort(predicted[:, place], kind="stable")
        tenths = np.array_split(order, min(_TENTHS, len(order)))
        share = tuple(float(covered[rows, place].mean()) for rows in tenths)
        lines.append(
            Line(name=f"at {alpha:g}", x=tuple(map(float, range(1, len(share) + 1))), y=share)
        )
    by_tenth = Chart(
        name="Coverage by prediction",
        x="tenth of the rows, lowest quantiles first",
        y="share of labels at or below the quantile",
        lines=tuple(lines),
        about="A level line at its alpha: the quantile is right for low and for high predictions.",
    )
    return (by_alpha, by_tenth) if len(alphas) > 1 else (by_tenth,)


def quantile_tables(
    label: _Doubles, score: _Doubles, alphas: Sequence[float]
) -> tuple[ReportTable, ...]:
    """Loss, coverage and mean of each quantile."""
    losses, covered = _losses(label, score, alphas), _covered(label, score)
    predicted = score.reshape(len(label), -1)
    constant = [float(np.quantile(label, alpha)) for alpha in alphas]
    alone = _losses(label, np.tile(constant, (len(label), 1)), alphas).mean(axis=0)
    return (
        ReportTable(
            name="Predicted quantiles",
            headers=("alpha", "coverage", "pinball loss", "of one quantile for all", "mean"),
            rows=tuple(
                (
                    float(alpha),
                    float(covered[:, place].mean()),
                    float(losses[:, place].mean()),
                    float(alone[place]),
                    float(predicted[:, place].mean()),
                )
                for place, alpha in enumerate(alphas)
            ),
            about="One quantile for all is that of the labels evaluated here.",
        ),
    )


def _losses(label: _Doubles, score: _Doubles, alphas: Sequence[float]) -> _Doubles:
    """The pinball loss of each row and quantile: (rows, alphas)."""
    above = label[:, np.newaxis] - score.reshape(len(label), -1)
    shares = np.asarray(alphas, np.float64)
    losses: _Doubles = np.where(above >= 0, shares * above, (shares - 1) * above)
    return losses


def _covered(label: _Doubles, score: _Doubles) -> NDArray[np.bool_]:
    """Whether each label is at or below its quantiles: (rows, alphas)."""
    below: NDArray[np.bool_] = label[:, np.newaxis] <= score.reshape(len(label), -1)
    return below
