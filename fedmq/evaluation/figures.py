"""Figures, charts and tables of predictions of two or more classes, and of numbers."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from sklearn import metrics

from fedmq.evaluation.report import Chart, Line, ReportTable

__all__ = [
    "binary_charts",
    "binary_metrics",
    "binary_tables",
    "calibration",
    "class_metrics",
    "class_tables",
    "lift",
    "regression_charts",
    "regression_metrics",
    "regression_tables",
]

_CHART_POINTS = 200
"""Most points of a curve; longer curves are thinned."""

_QUANTILES = (0, 1, 5, 10, 25, 50, 75, 90, 95, 99, 100)


def binary_metrics(label: NDArray[np.float64], score: NDArray[np.float64]) -> Mapping[str, float]:
    """The metrics of probabilities; ``label`` and ``score`` are (rows,)."""
    false, true, _ = metrics.roc_curve(label, score)
    return {
        "auc": float(metrics.roc_auc_score(label, score)),
        "ks": float(np.abs(true - false).max()),
        "average precision": float(metrics.average_precision_score(label, score)),
        "log loss": float(metrics.log_loss(label, score, labels=[0, 1])),
        "brier": float(metrics.brier_score_loss(label, score)),
        "share of ones": float(label.mean()),
        "mean score": float(score.mean()),
    }


def binary_charts(label: NDArray[np.float64], score: NDArray[np.float64]) -> tuple[Chart, ...]:
    """ROC, precision and recall, KS, lift and gain, calibration, histogram of scores."""
    false, true, _ = metrics.roc_curve(label, score)
    precision, recall, _ = metrics.precision_recall_curve(label, score)
    diagonal = Line(name="by chance", x=(0, 1), y=(0, 1))
    share, gain, _ = lift(label, score, 100)
    mean, rate, _ = calibration(label, score)
    edges = np.linspace(0, 1, 51)
    middles = (edges[1:] + edges[:-1]) / 2
    counts = [np.histogram(score[label == value], edges)[0] for value in (0, 1)]
    return (
        Chart(
            name="ROC",
            x="false positive rate",
            y="true positive rate",
            lines=(_line("model", false, true), diagonal),
        ),
        Chart(
            name="Precision and recall",
            x="recall",
            y="precision",
            lines=(_line("model", recall[::-1], precision[::-1]),),
        ),
        _ks_chart(label, score),
        Chart(
            name="Gain",
            x="share of rows, highest scores first",
            y="share of all ones found",
            lines=(_line("model", share, gain), diagonal),
        ),
        Chart(
            name="Calibration",
            x="mean score of a tenth of the rows",
            y="share of ones in it",
            lines=(_line("model", mean, rate), diagonal.model_copy(update={"name": "exact"})),
        ),
        Chart(
            name="Scores",
            x="score",
            y="rows",
            kind="bars",
            lines=tuple(
                _line(f"label {value}", middles, count) for value, count in enumerate(counts)
            ),
        ),
    )


def binary_tables(
    label: NDArray[np.float64],
    score: NDArray[np.float64],
    cost_of_false_positive: float,
    cost_of_false_negative: float,
) -> tuple[ReportTable, ...]:
    """Lift by tenth, calibration by tenth, confusion and cost by threshold."""
    share, gain, lifts = lift(label, score, 10)
    mean, rate, counts = calibration(label, score)
    return (
        ReportTable(
            name="Gain and lift",
            headers=("share of rows, highest scores first", "share of all ones found", "lift"),
            rows=tuple(zip(share[1:].tolist(), gain[1:].tolist(), lifts[1:].tolist(), strict=True)),
        ),
        ReportTable(
            name="Calibration",
            headers=("mean score", "share of ones", "rows"),
            rows=tuple(zip(mean.tolist(), rate.tolist(), counts.tolist(), strict=True)),
        ),
        ReportTable(
            name="Thresholds",
            headers=(
                "threshold",
                "true positives",
                "false positives",
                "false negatives",
                "true negatives",
                "precision",
                "recall",
                "accuracy",
                "cost a row",
            ),
            rows=tuple(
                _at_threshold(
                    label, score, threshold, cost_of_false_positive, cost_of_false_negative
                )
                for threshold in _thresholds(score)
            ),
            about=(
                "A row of this score or more counts as one. A false positive costs "
                f"{cost_of_false_positive:g}, a false negative {cost_of_false_negative:g}."
            ),
        ),
    )


def lift(
    label: NDArray[np.float64], score: NDArray[np.float64], parts: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Share of rows with the highest scores, share of ones among them, and how much that is
    more than by chance: each (parts + 1,), from no rows to all. Rows of one score count evenly.
    """
    false, true, _ = metrics.roc_curve(label, score, drop_intermediate=False)
    ones = float(label.sum())
    rows = false * (len(label) - ones) + true * ones
    share = np.linspace(0, 1, parts + 1)
    gain = np.interp(share * len(label), rows, true)
    lifts = np.divide(gain, share, out=np.ones_like(gain), where=share > 0)
    return share, gain, lifts


def calibration(
    label: NDArray[np.float64], score: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
    """Mean score, share of ones and number of rows between tenths of the scores: (bins,)."""
    edges = np.unique(np.percentile(score, np.linspace(0, 100, 11)))
    bins = np.searchsorted(edges[1:-1], score, side="left")
    counts = np.bincount(bins, minlength=max(len(edges) - 1, 1))
    held = counts > 0
    mean = np.bincount(bins, score, len(counts))[held] / counts[held]
    rate = np.bincount(bins, label, len(counts))[held] / counts[held]
    return mean, rate, counts[held]


def _ks_chart(label: NDArray[np.float64], score: NDArray[np.float64]) -> Chart:
    at = np.linspace(0, 1, _CHART_POINTS + 1)
    below = [
        np.searchsorted(np.sort(score[label == value]), at, side="right") / (label == value).sum()
        for value in (0, 1)
    ]
    return Chart(
        name="KS",
        x="score",
        y="share of rows up to it",
        lines=tuple(_line(f"label {value}", at, shares) for value, shares in enumerate(below)),
        about="KS is the largest distance between the two lines.",
    )


def _thresholds(score: NDArray[np.float64]) -> list[float]:
    """Tenths from 0.1 to 0.9, and the scores that a tenth, a half and nine tenths exceed."""
    of_scores = np.percentile(score, [10, 50, 90])
    return np.unique(np.round([*np.linspace(0.1, 0.9, 9), *of_scores], 6)).tolist()  # type: ignore[no-any-return]  # NumPy's tolist is untyped


def _at_threshold(
    label: NDArray[np.float64],
    score: NDArray[np.float64],
    threshold: float,
    cost_of_false_positive: float,
    cost_of_false_negative: float,
) -> tuple[float | int | None, ...]:
    found = score >= threshold
    (tn, fp), (fn, tp) = metrics.confusion_matrix(label, found, labels=[0, 1]).tolist()
    cost = (fp * cost_of_false_positive + fn * cost_of_false_negative) / len(label)
    precision = tp / (tp + fp) if tp + fp else None
    return (threshold, tp, fp, fn, tn, precision, tp / (tp + fn), (tp + tn) / len(label), cost)


def _line(name: str, x: NDArray[np.floating], y: NDArray[np.floating | np.integer]) -> Line:
    """A line through these points, or about 200 of them, including the first and last."""
    if len(x) > _CHART_POINTS:
        kept = np.unique(np.linspace(0, len(x) - 1, _CHART_POINTS).astype(int))
        x, y = x[kept], y[kept]
    return Line(name=name, x=tuple(map(float, x)), y=tuple(map(float, y)))


def class_metrics(label: NDArray[np.float64], score: NDArray[np.float64]) -> Mapping[str, float]:
    """The metrics of classes; ``label`` (rows,), ``score`` (rows, classes)."""
    chosen = score.argmax(axis=1)
    classes = list(range(score.shape[1]))
    return {
        "accuracy": float(metrics.accuracy_score(label, chosen)),
        "balanced accuracy": float(
            metrics.recall_score(label, chosen, labels=np.unique(label), average="macro")
        ),
        "macro F1": float(
            metrics.f1_score(label, chosen, labels=np.unique(label), average="macro")
        ),
        "log loss": float(metrics.log_loss(label, score, labels=classes)),
    }


def class_tables(label: NDArray[np.float64], score: NDArray[np.float64]) -> tuple[ReportTable, ...]:
    """The confusion matrix, and precision and recall by class."""
    chosen, classes = score.argmax(axis=1), list(range(score.shape[1]))
    matrix = metrics.confusion_matrix(label, chosen, labels=classes).tolist()
    precision, recall, f1, rows = metrics.precision_recall_fscore_support(
        label, chosen, labels=classes, zero_division=0
    )
    return (
        ReportTable(
            name="Confusion",
            headers=("label", *(f"as {name}" for name in classes)),
            rows=tuple((name, *row) for name, row in zip(classes, matrix, strict=True)),
        ),
        ReportTable(
            name="Classes",
            headers=("class", "precision", "recall", "F1", "rows"),
            rows=tuple(
                zip(
                    classes,
                    precision.tolist(),
                    recall.tolist(),
                    f1.tolist(),
                    rows.tolist(),
                    strict=True,
                )
            ),
        ),
    )


def regression_metrics(
    label: NDArray[np.float64], score: NDArray[np.float64]
) -> Mapping[str, float]:
    """The metrics of a regression; ``label`` and ``score`` are (rows,)."""
    return {
        "rmse": float(metrics.root_mean_squared_error(label, score)),
        "mae": float(metrics.mean_absolute_error(label, score)),
        "median absolute error": float(metrics.median_absolute_error(label, score)),
        "r2": float(metrics.r2_score(label, score)),
        "mean label": float(label.mean()),
        "mean score": float(score.mean()),
    }


def regression_charts(label: NDArray[np.float64], score: NDArray[np.float64]) -> tuple[Chart, ...]:
    """Means by tenth of the scores, and the histogram of residuals."""
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
