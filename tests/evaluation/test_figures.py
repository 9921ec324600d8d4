"""Figures of a report are those of their definitions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedmq.boosting.params import TrainParams
from fedmq.errors import DataError
from fedmq.evaluation.evaluate import Kind, ScoredRows, evaluate, kind_of, with_intervals
from fedmq.evaluation.figures import (
    binary_charts,
    binary_metrics,
    binary_tables,
    calibration,
    class_metrics,
    class_tables,
    lift,
    regression_metrics,
    regression_tables,
)
from fedmq.evaluation.groups import group_table
from fedmq.evaluation.page import html_of

RANDOM = np.random.default_rng(3)
SCORE = RANDOM.random(500).round(2)  # with many ties
LABEL = (RANDOM.random(500) < SCORE).astype(np.float64)


def test_auc_and_ks_count_pairs_and_shares() -> None:
    metrics = binary_metrics(LABEL, SCORE)
    ones, zeros = SCORE[LABEL == 1], SCORE[LABEL == 0]
    pairs = np.sign(ones[:, None] - zeros) / 2 + 0.5
    assert metrics["auc"] == pytest.approx(pairs.mean())
    distances = [abs((ones <= at).mean() - (zeros <= at).mean()) for at in np.unique(SCORE)]
    assert metrics["ks"] == pytest.approx(max(distances))
    assert metrics["brier"] == pytest.approx(((SCORE - LABEL) ** 2).mean())


def test_lift_is_how_many_more_ones_stand_on_top_than_by_chance() -> None:
    score = np.linspace(1, 0, 100)
    label = np.zeros(100)
    label[:10] = label[50:60] = 1
    share, gain, lifts = lift(label, score, 10)
    assert (share[1], gain[1], lifts[1]) == pytest.approx((0.1, 0.5, 5.0))
    assert (share[-1], gain[-1], lifts[-1]) == pytest.approx((1, 1, 1))


def test_rows_of_one_score_count_evenly_in_the_lift() -> None:
    label = np.array([1.0] * 5 + [0.0] * 5)
    _, gain, lifts = lift(label, np.full(10, 0.5), 10)
    assert gain == pytest.approx(np.linspace(0, 1, 11))
    assert lifts == pytest.approx(np.ones(11))


def test_calibration_has_every_row_once() -> None:
    mean, rate, rows = calibration(LABEL, SCORE)
    assert rows.sum() == 500
    assert (mean * rows).sum() == pytest.approx(SCORE.sum())
    assert (rate * rows).sum() == pytest.approx(LABEL.sum())
    assert (np.diff(mean) > 0).all()


def test_a_threshold_s_line_counts_what_is_above_it() -> None:
    [_, _, thresholds] = binary_tables(LABEL, SCORE, 1.0, 5.0)
    half = next(row for row in thresholds.rows if row[0] == 0.5)
    found = SCORE >= 0.5
    tp, fp = int((found & (LABEL == 1)).sum()), int((found & (LABEL == 0)).sum())
    fn, tn = int((~found & (LABEL == 1)).sum()), int((~found & (LABEL == 0)).sum())
    expected = (0.5, tp, fp, fn, tn, tp / (tp + fp), tp / (tp + fn), (tp + tn) / 500)
    assert half[:-1] == pytest.approx(expected)
    assert half[-1] == pytest.approx((fp + 5 * fn) / 500)


def test_curves_are_thinned_but_keep_their_ends() -> None:
    random = np.random.default_rng(1)
    label, score = random.integers(0, 2, 5000).astype(float), random.random(5000)
    roc = binary_charts(label, score)[0].lines[0]
    assert len(roc.x) <= 200
    assert (roc.x[0], roc.y[0], roc.x[-1], roc.y[-1]) == (0, 0, 1, 1)


def test_an_interval_holds_the_value_and_narrows_with_rows() -> None:
    def mean(label: object, score: np.ndarray) -> dict[str, float]:
        return {"mean": float(score.mean())}

    few = with_intervals(mean, LABEL[:50], SCORE[:50], 200)["mean"]
    many = with_intervals(mean, LABEL, SCORE, 200)["mean"]
    assert few.low is not None and few.high is not None
    assert many.low is not None and many.high is not None
    assert few.low < few.value < few.high
    assert many.high - many.low < few.high - few.low
    spread = SCORE.std() / np.sqrt(500)
    assert many.high - many.low == pytest.approx(2 * 1.96 * spread, rel=0.25)


def test_without_samples_there_are_no_intervals() -> None:
    assert with_intervals(binary_metrics, LABEL, SCORE, 0)["auc"].low is None


def test_classes_have_a_matrix() -> None:
    label = np.array([0, 0, 1, 1, 2.0])
    score = np.eye(4)[[0, 1, 1, 1, 0]] * 0.6 + 0.1
    assert class_metrics(label, score)["accuracy"] == pytest.approx(3 / 5)
    confusion, classes = class_tables(label, score)
    assert confusion.rows == ((0, 1, 1, 0, 0), (1, 0, 2, 0, 0), (2, 1, 0, 0, 0), (3, 0, 0, 0, 0))
    assert classes.rows[1][:3] == pytest.approx((1, 2 / 3, 1.0))


def test_regression_has_errors_and_quantiles() -> None:
    label, score = np.array([1.0, 2, 3, 4]), np.array([1.0, 1, 3, 6])
    metrics = regression_metrics(label, score)
    assert metrics["rmse"] == pytest.approx(np.sqrt(5 / 4))
    assert metrics["mae"] == pytest.approx(3 / 4)
    [quantiles] = regression_tables(label, score)
    assert quantiles.rows[5] == (50, 2.5, 2.0, 0.0)


def test_groups_are_compared_with_the_one_selected_most() -> None:
    label = np.array([0, 0, 1, 1, 0, 0, 1, 1, 0, 0.0])
    score = np.array([0.1, 0.2, 0.9, 0.3, 0.1, 0.9, 0.9, 0.8, 0.1, 0.1])
    groups = ["a"] * 4 + ["b"] * 4 + ["rare", "rarer"]
    table = group_table(label, score, groups, "town", 0.5, 2)
    rows = {row[0]: row[1:] for row in table.rows}
    assert set(rows) == {"a", "b", "other"}
    assert rows["a"][0] == 4
    assert rows["a"][4:6] == pytest.approx((0.75, 0.75))  # everybody in "other" is selected
    assert rows["b"][4:6] == pytest.approx((0.25, 0.25))
    assert rows["a"][6:] == pytest.approx((1.0, 0.5))


@pytest.mark.parametrize(
    ("rows", "kind", "words"),
    [
        (ScoredRows((), (), np.empty(0), np.empty(0)), "binary", "there are no rows"),
        (
            ScoredRows(("a", "b"), ("x",) * 2, np.ones(2), np.ones(2)),
            "binary",
            "all 2 rows have the label 1",
        ),
        (
            ScoredRows(("a", "b"), ("x",) * 2, np.array([1.0, 2]), np.ones(2)),
            "binary",
            "label 2: 0 or 1 is needed",
        ),
        (
            ScoredRows(("a", "b"), ("x",) * 2, np.array([1.0, 3]), np.ones((2, 3))),
            "classes",
            "label 3: a class from 0 to 2",
        ),
    ],
    ids=["no rows", "one class", "a third label", "no such class"],
)
def test_what_cannot_be_evaluated_is_refused_in_a_line(rows, kind, words: str) -> None:
    with pytest.raises(DataError, match=words):
        evaluate("m", kind, rows, {})


def test_bounds_of_times_have_no_report() -> None:
    with pytest.raises(DataError, match="survival:aft"):
        kind_of(TrainParams(objective="survival:aft"))


def several_labels(kind: str) -> ScoredRows:
    """Two labels of 60 rows; the scores of the second are of no use."""
    random = np.random.default_rng(2)
    truth = random.normal(size=(60, 2))
    label = (truth > 0).astype(np.float64) if kind == "binary" else truth
    score = np.stack([truth[:, 0] + random.normal(size=60) / 4, random.normal(size=60)], axis=1)
    if kind == "binary":
        score = 1 / (1 + np.exp(-score))
    names = tuple(f"p{row}" for row in range(60))
    return ScoredRows(names, ("eval",) * 60, label, score, ("a", "b") * 30)


@pytest.mark.parametrize("kind", ["binary", "regression"])
def test_each_of_several_labels_has_the_figures_it_has_alone_and_means_come_first(
    kind: Kind,
) -> None:
    rows = several_labels(kind)
    report = evaluate("m", kind, rows, {}, samples=20, column="town", targets=("card", "loan"))
    for place, name in enumerate(("card", "loan")):
        one = replace(rows, label=rows.label[:, place], score=rows.score[:, place])
        alone = evaluate("m", kind, one, {}, samples=0, column="town")
        for metric, figure in alone.metrics.items():
            assert report.metrics[f"{metric} of {name}"].value == figure.value
        for parts, of_one in ((report.charts, alone.charts), (report.tables, alone.tables)):
            named = [part for part in parts if part.name.endswith(f": {name}")]
            renamed = [part.model_copy(update={"name": f"{part.name}: {name}"}) for part in of_one]
            assert named == renamed
    first = "auc" if kind == "binary" else next(iter(report.metrics))
    found = report.metrics[first]
    assert found.value == pytest.approx(
        np.mean([report.metrics[f"{first} of {name}"].value for name in ("card", "loan")])
    )
    assert found.low is not None and found.low < found.value < found.high
    if kind == "binary":
        right = ((rows.score >= 0.5) == rows.label).all(axis=1).mean()
        assert report.metrics["every label right"].value == right
        assert report.metrics["auc of card"].value > 0.9 > report.metrics["auc of loan"].value
    assert "card" in html_of(report)


def test_the_label_that_cannot_be_evaluated_is_named() -> None:
    rows = several_labels("binary")
    rows.label[:, 1] = 1
    with pytest.raises(DataError, match=r"^loan: all 60 rows have the label 1"):
        evaluate("m", "binary", rows, {}, targets=("card", "loan"))
    with pytest.raises(DataError, match=r"^label_1: all 60 rows"):
        evaluate("m", "binary", rows, {})
