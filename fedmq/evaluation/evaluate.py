"""Reports from scored rows.

Each figure has percentiles over rows drawn with replacement (B. Efron, R. J. Tibshirani,
"An Introduction to the Bootstrap", 1993, chapter 13).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.params import TrainParams
from fedmq.errors import ConfigError, DataError
from fedmq.evaluation.quantiles import quantile_charts, quantile_metrics, quantile_tables
from fedmq.evaluation.report import Chart, Figure, Line, Report, ReportTable
from fedmq.evaluation.targets import each_metric, each_part, target_names

__all__ = [
    "Kind",
    "Metrics",
    "ScoredRows",
    "evaluate",
    "kind_of",
    "learning_curves",
    "with_intervals",
]

Kind = Literal["binary", "classes", "regression", "quantiles"]
"""The kind of a label: 0 or 1, one of several classes, or a number, perhaps with its quantiles."""

Metrics = Callable[[NDArray[np.float64], NDArray[np.float64]], Mapping[str, float]]
"""(label, score) -> metrics by name; scores are (rows,) or (rows, classes or targets)."""

_Doubles = NDArray[np.float64]


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
    targets: Sequence[str] = (),
    quantiles: Sequence[float] = (),
) -> Report:
    """The report of ``model`` on ``rows``.

    ``history`` has the evaluation by metric and round; ``samples`` bootstrap samples make the
    intervals; ``costs`` are those of a false positive and a false negative; ``column`` is what
    ``rows.groups`` are called, ``threshold`` the score below which a row is selected. ``targets``
    names the labels where a row has several: each has its figures, and their means come first.
    ``quantiles`` are those that the scores are of, where ``kind`` is that.

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
    from fedmq.evaluation.figures import (
        binary_charts,
        binary_metrics,
        binary_tables,
        class_metrics,
        class_tables,
        regression_charts,
        regression_metrics,
        regression_tables,
    )
    from fedmq.evaluation.groups import group_table

    rows.check(kind, targets)
    label, score, groups = rows.label, rows.score, rows.groups

    def binary_parts(label: _Doubles, score: _Doubles) -> tuple[ReportTable, ...]:
        tables = binary_tables(label, score, *costs)
        if groups is None:
            return tables
        return (*tables, group_table(label, score, groups, column, threshold, smallest_group))

    metrics: Metrics
    if kind == "binary":
        metrics, charts_of, tables_of = binary_metrics, binary_charts, binary_parts
    elif kind == "classes":
        metrics, charts_of, tables_of = class_metrics, lambda *_: (), class_tables
    elif kind == "quantiles":
        metrics = quantile_metrics(quantiles)
        charts_of = partial(quantile_charts, alphas=quantiles)
        tables_of = partial(quantile_tables, alphas=quantiles)
    else:
        metrics, charts_of, tables_of = regression_metrics, regression_charts, regression_tables
    if label.ndim > 1:
        names = target_names(label.shape[1], targets)
        metrics = each_metric(metrics, names, kind == "binary")
        charts = each_part(charts_of, names, label, score)
        tables = each_part(tables_of, names, label, score)
    else:
        charts, tables = charts_of(label, score), tables_of(label, score)
    if kind == "quantiles" and score.ndim == 1:  # also figures of any prediction of a number
        charts += regression_charts(label, score)
        tables += regression_tables(label, score)
        metrics = _of_both(metrics, regression_metrics)
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
        metrics=with_intervals(metrics, label, score, samples),
        charts=(*charts, *learning_curves(history or {})),
        tables=tables,
    )


def _of_both(first: Metrics, second: Metrics) -> Metrics:
    """The metrics of ``first``, and then of ``second``."""
    return lambda label, score: {**first(label, score), **second(label, score)}


def learning_curves(history: Mapping[str, tuple[float, ...]]) -> list[Chart]:
    """A chart for each metric of ``history``, with a line for each set of rows."""
    lines: dict[str, list[Line]] = {}
    for name, values in history.items():
        held, _, metric = name.partition("-")
        trees = tuple(float(number) for number in range(1, len(values) + 1))
        lines.setdefault(metric, []).append(Line(name=held, x=trees, y=values))
    return [
        Chart(name=f"Learning curve, {metric}", x="round", y=metric, lines=tuple(found))
        for metric, found in lines.items()
    ]


def kind_of(params: TrainParams) -> Kind:
    """The kind of the labels of a training.

    Raises:
        DataError: they are neither numbers nor classes, or a label has several predictions.
    """
    objective = params.objective
    if params.output_kind == "expectile":
        raise DataError(
            "a report of several expectiles is not known: a report has one prediction of a label, "
            "or its quantiles; the metrics of the training count all of them"
        )
    if objective == "reg:quantileerror" and params.num_target is None:
        return "quantiles"
    if objective.startswith("survival:"):
        raise DataError(f"a report of {objective} is not known: its labels are times")
    if objective.startswith("rank:"):
        raise DataError(f"a report of {objective} is not known: its rows are ranked by query")
    if objective.startswith("multi:"):
        return "classes"
    return "binary" if objective in ("binary:logistic", "reg:logistic") else "regression"


@dataclass(frozen=True, slots=True, eq=False)
class ScoredRows:
    """Rows by ``ids``: ``label`` float64 (rows,), ``score`` float64 (rows,) or (rows, classes).

    With several labels of a row both are (rows, targets).
    ``sets`` names the set of each row, such as "eval"; ``groups`` the group of each, if any.
    """

    ids: tuple[str, ...]
    sets: tuple[str, ...]
    label: NDArray[np.float64]
    score: NDArray[np.float64]
    groups: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def taken(self, rows: NDArray[np.integer]) -> Self:
        """These rows alone: by number, (n,)."""
        groups = None if self.groups is None else tuple(self.groups[row] for row in rows)
        return type(self)(
            tuple(self.ids[row] for row in rows),
            tuple(self.sets[row] for row in rows),
            self.label[rows],
            self.score[rows],
            groups,
        )

    def check(self, kind: Kind, targets: Sequence[str] = ()) -> None:
        """Raise DataError unless the rows can be evaluated; the text says what is missing.

        ``targets`` names the labels of a row that has several.
        """
        if not len(self):
            raise DataError("there are no rows to evaluate: no row has both label and score")
        if kind in ("regression", "quantiles"):
            return
        if self.label.ndim > 1:
            for place, name in enumerate(target_names(self.label.shape[1], targets)):
                one = replace(self, label=self.label[:, place], score=self.score[:, place])
                try:
                    one.check(kind)
                except DataError as error:
                    raise DataError(f"{name}: {error}") from None
            return
        found: Sequence[float] = np.unique(self.label).tolist()
        if len(found) == 1:
            raise DataError(
                f"all {len(self):,} rows have the label {found[0]:g}; both are needed to tell how "
                "well a model parts them"
            )
        if kind == "binary" and not set(found) <= {0.0, 1.0}:
            odd = next(label for label in found if label not in (0.0, 1.0))
            raise DataError(f"label {odd:g}: 0 or 1 is needed")
        classes = self.score.shape[1] if self.score.ndim > 1 else 0
        if kind == "classes" and not set(found) <= set(range(classes)):
            odd = next(label for label in found if label not in range(classes))
            raise DataError(f"label {odd:g}: a class from 0 to {classes - 1} is needed")


def with_intervals(
    metrics: Metrics,
    label: NDArray[np.float64],
    score: NDArray[np.float64],
    samples: int,
    seed: int = 0,
) -> dict[str, Figure]:
    """The metrics of all rows, with the intervals of the middle 95 % of ``samples``.

    A sample with only one class of a label is ignored. 0 samples: no intervals.
    """
    random = np.random.default_rng(seed)
    drawn: dict[str, list[float]] = {}
    for _ in range(samples):
        rows = random.integers(0, len(label), len(label))
        if (np.ptp(label[rows], axis=0) == 0).any():
            continue
        for name, value in metrics(label[rows], score[rows]).items():
            drawn.setdefault(name, []).append(value)
    figures = {}
    for name, value in metrics(label, score).items():
        values = drawn.get(name)
        low, high = (None, None) if not values else np.percentile(values, [2.5, 97.5]).tolist()
        figures[name] = Figure(value=value, low=low, high=high)
    return figures
