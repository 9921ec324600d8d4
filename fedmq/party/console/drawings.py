"""How does the browser draw curves and trees? As data: points, and lines with branches."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

__all__ = ["charts_of_report", "curves", "outline"]

_MOST_POINTS = 400

_LEAST_STEP = 1e-6
"""Distance between points of equal x, as a share of the chart's width."""


def curves(
    at: Sequence[float], figures: Mapping[str, Sequence[float | None]], x: str = "tree"
) -> list[dict[str, Any]]:
    """A chart by metric, with the values of each set of rows at ``at``, such as numbers of trees.

    ``figures`` are named as XGBoost names them, such as ``test-auc``.
    """
    found: dict[str, dict[str, Any]] = {}
    for name, values in figures.items():
        rows, _, metric = name.partition("-")
        title = metric or name
        chart = found.setdefault(title, {"title": title, "x": x, "kind": "lines", "lines": []})
        chart["lines"].append(_line(rows if metric else name, at, values))
    return list(found.values())


def charts_of_report(charts: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The charts of a report of ``fedmq evaluate``, as its JSON has them."""
    return [
        {
            "title": chart["name"],
            "x": chart["x"],
            "kind": chart.get("kind", "lines"),
            "about": chart.get("about", ""),
            "lines": [_line(line["name"], _apart(line["x"]), line["y"]) for line in chart["lines"]],
        }
        for chart in charts
    ]


def _line(name: str, at: Sequence[float | None], values: Sequence[float | None]) -> dict[str, Any]:
    """A line of a chart; long lines are thinned but keep the last point."""
    step = max(1, math.ceil(len(at) / _MOST_POINTS))
    kept = sorted({*range(0, len(at), step), *range(max(0, len(at) - 1), len(at))})
    points = [
        (at[point], _number(values[point])) for point in kept if _number(at[point]) is not None
    ]
    return {"name": name, "at": [x for x, _ in points], "values": [y for _, y in points]}


def _apart(xs: Sequence[float | None]) -> list[float | None]:
    """``xs`` made strictly ascending: a chart has one value at each x."""
    known = [x for x in xs if x is not None]
    step = _LEAST_STEP * (max(known) - min(known) if known else 0.0)
    moved: list[float | None] = []
    last = -math.inf
    for x in xs:
        if x is not None:
            last = x if x > last else last + step
        moved.append(None if x is None else last)
    return moved


def _number(value: float | None) -> float | None:
    """``value`` as JSON has it."""
    return value if value is not None and math.isfinite(value) else None


def outline(nodes: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The nodes as `tree_nodes` has them, in the order of an outline.

    Each has its ``level``, the ``side`` of its parent on which it stands (empty for the root), and
    ``branches``, which is drawn in front of it.
    """
    return list(_lines(nodes))


def _lines(nodes: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    waiting: list[tuple[int, str, str, int]] = [(0, "", "", 0)] if nodes else []
    while waiting:
        place, side, before, level = waiting.pop()
        node = nodes[place]
        last = side == "right"
        branches = before + ("" if not side else "└─ " if last else "├─ ")
        yield {**node, "level": level, "side": side, "branches": branches}
        if "left" in node:
            inner = before + ("" if not side else "   " if last else "│  ")
            waiting.append((node["right"], "right", inner, level + 1))
            waiting.append((node["left"], "left", inner, level + 1))
