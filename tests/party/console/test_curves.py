"""Curves and trees as pages show them: data in, data out."""

from __future__ import annotations

import math

from fedmq.party.console.drawings import charts_of_report, curves, outline


def test_a_metric_is_a_chart_and_a_set_of_rows_a_line() -> None:
    found = curves([1.0, 2.0], {"train-auc": [0.8, 0.9], "test-auc": [0.7, None], "loss": [2, 1]})
    assert [chart["title"] for chart in found] == ["auc", "loss"]
    assert found[0]["lines"] == [
        {"name": "train", "at": [1.0, 2.0], "values": [0.8, 0.9]},
        {"name": "test", "at": [1.0, 2.0], "values": [0.7, None]},
    ]
    assert found[1]["lines"][0]["name"] == "loss"


def test_a_long_curve_keeps_its_last_point() -> None:
    count = 5001
    [chart] = curves(list(map(float, range(count))), {"test-auc": [0.5] * (count - 1) + [0.9]})
    [line] = chart["lines"]
    assert len(line["at"]) <= 402
    assert (line["at"][-1], line["values"][-1]) == (count - 1, 0.9)


def test_what_is_no_number_is_a_gap() -> None:
    [chart] = curves([1.0, 2.0], {"test-auc": [math.nan, math.inf]})
    assert chart["lines"][0]["values"] == [None, None]


def test_points_above_one_another_are_drawn_apart() -> None:
    line = {"name": "m", "x": [0, 0, 0, 1], "y": [0, 0.5, 0.9, 1]}
    [found] = charts_of_report([{"name": "ROC", "x": "a", "y": "b", "lines": [line]}])
    at = found["lines"][0]["at"]
    assert at == sorted(set(at))
    assert at[2] < 1e-5


def test_an_outline_has_each_child_below_its_parent() -> None:
    nodes = [
        {"node": 0, "left": 1, "right": 2},
        {"node": 1, "weight": 1.0},
        {"node": 2, "left": 3, "right": 4},
        {"node": 3, "weight": 2.0},
        {"node": 4, "weight": 3.0},
    ]
    lines = outline(nodes)
    assert [(line["node"], line["level"], line["side"]) for line in lines] == [
        (0, 0, ""),
        (1, 1, "left"),
        (2, 1, "right"),
        (3, 2, "left"),
        (4, 2, "right"),
    ]
    assert [line["branches"] for line in lines] == ["", "├─ ", "└─ ", "   ├─ ", "   └─ "]
