"""How far are predicted numbers from the true ones?"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from sklearn import metrics

from fedmq.evaluation.report import Chart, Line, ReportTable

__all__ = ["regression_charts", "regression_metrics", "regression_tables"]

_QUANTILES = (0, 1, 5, 10, 25, 50, 75, 90, 95, 99, 100)


def regression_metrics(
    label: NDArray[np.float64], score: NDArray[np.float64]
) -> Mapping[str, float]:
    """The metrics of numbers; ``label`` and ``score`` are (rows,)."""
    return {
        "rmse": float(metrics.root_mean_squared_error(label, score)),
        "mae": float(metrics.mean_absolute_error(label, score)),
        "median absolute error": float(metrics.median_absolute_error(label, score)),
        "r2": float(metrics.r2_score(label, score)),
        "mean label": float(label.mean()),
        "mean score": float(score.mean()),
    }


def regression_charts(label: NDArray[np.float64], score: NDArray[np.float64]) -> tuple[Chart, ...]:
    """Means by tenth of the scores, and how residuals are spread."""
    parts = np.array_split(np.argsort(score, kind="stable"), min(10, len(score)))
    mean = tuple(float(score[rows].mean()) for rows in parts)
    ends = (min(mean), max(mean))
    residual = label - score
    counts, edges = np.histogram(residual, 50)
    middles = (edges[1:] + edges[:-1]) / 2
    return (
        Chart(
            name="Means",
            x="mean score of a tenth of the rows",
            y="mean label in it",
            lines=(
                Line(name="model", x=mean, y=tuple(float(label[rows].mean()) for rows in parts)),
                Line(name="exact", x=ends, y=ends),
            ),
        ),
        Chart(
            name="Residuals",
            x="label less score",
            y="rows",
            kind="bars",
            lines=(
                Line(name="rows", x=tuple(middles.tolist()), y=tuple(map(float, counts.tolist()))),
            ),
        ),
    )


def regression_tables(
    label: NDArray[np.float64], score: NDArray[np.float64]
) -> tuple[ReportTable, ...]:
    """Quantiles of labels, scores and residuals."""
    columns = [
        np.percentile(values, _QUANTILES).tolist() for values in (label, score, label - score)
    ]
    return (
        ReportTable(
            name="Quantiles",
            headers=("percent of rows below", "label", "score", "label less score"),
            rows=tuple(zip(_QUANTILES, *columns, strict=True)),
        ),
    )
