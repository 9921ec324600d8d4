"""A report as one HTML file that loads nothing from the network.

Charts are SVG with colours from the page's style sheet.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from importlib.util import find_spec
from typing import Any

from fedmq.errors import ConfigError
from fedmq.evaluation.report import Cell, Chart, Figure, Line, Map, Report

__all__ = ["HEIGHT", "WIDTH", "Drawing", "cell", "drawing", "html_of", "page_of", "require_pages"]

WIDTH, HEIGHT = 460, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 12, 12, 44


def html_of(report: Report, maps: Sequence[Map] = ()) -> str:
    """The page of ``report``, with ``maps`` after its charts.

    Raises:
        ConfigError: Jinja2 is not installed.
    """
    return page_of("report.html.jinja", report=report, charts=_drawn(report.charts), maps=maps)


def require_pages() -> None:
    """Raise ConfigError unless pages can be written: ask before the work that a page is to show."""
    if find_spec("jinja2") is None:
        raise ConfigError("jinja2 is not installed; run: pip install 'fedmq[report]'")


def page_of(template: str, **of: Any) -> str:
    """The page that ``template``, a file beside this one, makes ``of`` these values.

    Raises:
        ConfigError: Jinja2 is not installed.
    """
    require_pages()
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_source),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"cell": cell, "interval": _interval, "drawn": _drawn}
    return environment.get_template(template).render(**of)


def _source(template: str) -> str:
    return resources.files("fedmq.evaluation").joinpath(template).read_text("utf-8")


def _drawn(charts: Sequence[Chart]) -> list[tuple[Chart, Drawing]]:
    return [(chart, drawing(chart)) for chart in charts]


def cell(value: Cell) -> str:
    """``value`` as a table shows it."""
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4f}" if abs(value) < 100 else f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else value


def _interval(figure: Figure) -> str:
    if figure.low is None or figure.high is None:
        return "-"
    return f"{cell(figure.low)} to {cell(figure.high)}"


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark on an axis: its place in pixels, and its number as text."""

    place: float
    text: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """A chart for a template: ``paths`` has an SVG path for each of ``names``."""

    names: tuple[str, ...]
    paths: tuple[str, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    filled: bool
    left: int = _LEFT
    right: int = WIDTH - _RIGHT
    top: int = _TOP
    bottom: int = HEIGHT - _BOTTOM


def drawing(chart: Chart) -> Drawing:
    """The layout of ``chart``."""
    bars = chart.kind == "bars"
    x = _ticks([value for line in chart.lines for value in line.x])
    y = _ticks([value for line in chart.lines for value in line.y] + [0.0] * bars)

    def right(value: float) -> float:
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * (value - x[0]) / (x[-1] - x[0])

    def down(value: float) -> float:
        return HEIGHT - _BOTTOM - (HEIGHT - _TOP - _BOTTOM) * (value - y[0]) / (y[-1] - y[0])

    def path(line: Line) -> str:
        points = [
            f"{right(a):.1f},{down(b):.1f}"
            for a, b in zip(line.x, line.y, strict=True)
            if math.isfinite(a) and math.isfinite(b)
        ]
        if not bars or not points:
            return "M" + "L".join(points) if points else ""
        floor = f"{down(0.0):.1f}"
        first, last = f"{right(line.x[0]):.1f}", f"{right(line.x[-1]):.1f}"
        return f"M{first},{floor}L" + "L".join(points) + f"L{last},{floor}Z"

    return Drawing(
        names=tuple(line.name for line in chart.lines),
        paths=tuple(path(line) for line in chart.lines),
        x_ticks=tuple(Tick(right(value), _number(value)) for value in x),
        y_ticks=tuple(Tick(down(value), _number(value)) for value in y),
        filled=bars,
    )


def _ticks(values: Sequence[float]) -> list[float]:
    """About five round numbers that enclose ``values``."""
    known = [value for value in values if math.isfinite(value)] or [0.0]
    low, high = min(known), max(known)
    if high - low < 1e-12 * max(1.0, abs(high)):
        low, high = low - 0.5, high + 0.5
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(step for step in (power, 2 * power, 5 * power, 10 * power) if step >= rough)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [number * step for number in range(first, last + 1)]


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
