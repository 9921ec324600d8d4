"""Markdown tables and plots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure


@dataclass(frozen=True)
class Curve:
    """A line of a plot: one value per place."""

    name: str
    values: Sequence[float]
    dashed: bool = False
    colour: int = 0


def table(head: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"


def draw(
    path: Path,
    title: str,
    across: str,
    up: str,
    curves: Sequence[Curve],
    at: Sequence[float] | None = None,
    logarithmic: bool = False,
) -> None:
    """Draw ``curves`` into an image; ``at`` are their places, by default 1, 2, 3, ..."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.add_subplot()
    for curve in curves:
        places = at or range(1, len(curve.values) + 1)
        style = "--" if curve.dashed else "-"
        axes.plot(
            places, curve.values, style, marker=".", color=f"C{curve.colour}", label=curve.name
        )
    if logarithmic:
        axes.set_xscale("log")
    axes.set_title(title)
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8)
    figure.savefig(path, dpi=90)
