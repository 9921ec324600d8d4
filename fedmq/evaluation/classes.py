"""How well do probabilities tell several classes apart?"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray
from sklearn import metrics

from fedmq.evaluation.report import ReportTable

__all__ = ["class_metrics", "class_tables"]


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
