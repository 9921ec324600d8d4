"""From scored rows to a report."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

import numpy as np

from fedmq.errors import ConfigError
from fedmq.evaluation.report import Chart, Line, Report
from fedmq.evaluation.scored_rows import Kind, ScoredRows

__all__ = ["evaluate"]


def evaluate(
    model: str,
    kind: Kind,
    rows: ScoredRows,
    facts: Mapping[str, str],
    history: Mapping[str, tuple[float, ...]] | None = None,
    samples: int = 200,
    costs: tuple[float, float] = (1.0, 1.0),
    column: str = "group",
    threshold: float = 0.5,
    smallest_group: int = 30,
) -> Report:
    """The report of ``model`` on ``rows``.

    ``history`` has the evaluation by metric and round; ``samples`` bootstrap samples make the
    intervals; ``costs`` are those of a false positive and a false negative; ``column`` is what
    ``rows.groups`` are called, ``threshold`` the score below which a row is selected.

    Raises:
        ConfigError: scikit-learn is not installed.
        DataError: there are no rows, or labels of one class only.
    """
    try:
        import sklearn  # noqa: F401  # all figures but KS are its
    except ImportError:
        raise ConfigError(
            "scikit-learn is not installed; run: pip install 'fedmq[report]'"
        ) from None
    from fedmq.evaluation.binary import binary_charts, binary_metrics, binary_tables
    from fedmq.evaluation.bootstrap import with_intervals
    from fedmq.evaluation.classes import class_metrics, class_tables
    from fedmq.evaluation.groups import group_table
    from fedmq.evaluation.regression import (
        regression_charts,
        regression_metrics,
        regression_tables,
    )

    rows.check(kind)
    label, score = rows.label, rows.score
    if kind == "binary":
        metrics = with_intervals(binary_metrics, label, score, samples)
        charts, tables = binary_charts(label, score), binary_tables(label, score, *costs)
        if rows.groups is not None:
            groups = group_table(label, score, rows.groups, column, threshold, smallest_group)
            tables = (*tables, groups)
    elif kind == "classes":
        metrics = with_intervals(class_metrics, label, score, samples)
        charts, tables = (), class_tables(label, score)
    else:
        metrics = with_intervals(regression_metrics, label, score, samples)
        charts, tables = regression_charts(label, score), regression_tables(label, score)
    sets, counts = np.unique(np.asarray(rows.sets), return_counts=True)
    return Report(
        model=model,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        facts={
            **facts,
            "rows evaluated": ", ".join(
                f"{count:,} of {name}" for name, count in zip(sets, counts, strict=True)
            ),
        },
        metrics=metrics,
        charts=(*charts, *_learning_curves(history or {})),
        tables=tables,
    )


def _learning_curves(history: Mapping[str, tuple[float, ...]]) -> list[Chart]:
    """A chart for each metric, with a line for each set of rows."""
    lines: dict[str, list[Line]] = {}
    for name, values in history.items():
        held, _, metric = name.partition("-")
        trees = tuple(float(number) for number in range(1, len(values) + 1))
        lines.setdefault(metric, []).append(Line(name=held, x=trees, y=values))
    return [
        Chart(name=f"Learning curve, {metric}", x="round", y=metric, lines=tuple(found))
        for metric, found in lines.items()
    ]
