"""SecureBoost, Figure 5: time over depth, features and rows, which `make bench` measures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.papers.page import table

AXES = {"depth": "depth", "features": "features of the passive party", "rows": "rows"}


def scalability(data: Path) -> Iterator[str]:
    """The plots in ``data``, the folder that `make bench` writes, and their shape."""
    figures = json.loads((data / "figures.json").read_text())
    yield "### Figure 5: time per tree over depth, features and rows\n"
    yield (
        "`make bench` measures it, over RabbitMQ; the plots and seconds are those of "
        "[the benchmarks](benchmarks.md), and `make bench FULL=1` takes the paper's "
        "own ranges.\n"
    )
    for axis in AXES:
        yield f"![Time over {axis}]({data.name}/{axis}.svg)\n"
    rows = [
        _shape(axis, engine, [(place, row["core seconds"]) for place, row in points])
        for axis in AXES
        for engine, points in figures[axis].items()
    ]
    head = ["axis", "engine", "from, to", "axis grows", "work grows", "work at 0"]
    yield table(head, rows)
    yield (
        "Work is seconds of cores per tree. *Work at 0* is where the straight line through the "
        "points begins, as a share of the last one: what does not grow with the axis. For depth "
        "the axis is the number of nodes that are asked for, 2^depth - 1. **Time is linear in rows "
        "and in features, and in the nodes, so that it doubles with each level** until the trees "
        "run out of rows. What is constant over rows are the sums that go back (features, bins and "
        "nodes), and over depth the encryption of the gradients, once a tree. Rows cost less and "
        "less beside the rest, because features are summed jointly.\n"
    )


def _shape(axis: str, engine: str, points: list[tuple[float, float]]) -> list[Any]:
    places = np.array([place for place, _ in points], dtype=float)
    seconds = np.array([spent for _, spent in points])
    between = f"{places[0]:,.0f} to {places[-1]:,.0f}"
    if axis == "depth":
        places = 2.0**places - 1
    _, begin = np.polyfit(places, seconds, 1)
    return [
        AXES[axis],
        engine,
        between,
        f"{places[-1] / places[0]:.1f} times",
        f"{seconds[-1] / seconds[0]:.1f} times",
        f"{max(0.0, begin) / seconds[-1]:.0%}",
    ]
