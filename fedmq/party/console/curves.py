"""Learning curves as the browser draws them: one chart a metric, one line a set of rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["curves"]

_MOST_POINTS = 400


def curves(
    at: Sequence[float], figures: Mapping[str, Sequence[float | None]]
) -> list[dict[str, Any]]:
    """By metric the values of each set of rows at ``at``, such as numbers of trees.

    ``figures`` are named as XGBoost names them, such as ``test-auc``. Of long curves some points
    are left out, never the last.
    """
    step = max(1, math.ceil(len(at) / _MOST_POINTS))
    kept = sorted({*range(0, len(at), step), *range(max(0, len(at) - 1), len(at))})
    found: dict[str, dict[str, Any]] = {}
    for name, values in figures.items():
        rows, _, metric = name.partition("-")
        chart = found.setdefault(
            metric or name, {"metric": metric or name, "at": [at[point] for point in kept]}
        )
        line = {"name": rows if metric else name, "values": [_number(values[p]) for p in kept]}
        chart.setdefault("lines", []).append(line)
    return list(found.values())


def _number(value: float | None) -> float | None:
    """``value`` as JSON has it."""
    return value if value is not None and math.isfinite(value) else None
