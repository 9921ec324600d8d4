"""A report as one HTML file that asks no address for anything."""

from __future__ import annotations

from importlib import resources

from fedmq.errors import ConfigError
from fedmq.evaluation.chart_svg import drawing
from fedmq.evaluation.report import Cell, Figure, Report

__all__ = ["html_of"]


def html_of(report: Report) -> str:
    """The page of ``report``.

    Raises:
        ConfigError: Jinja2 is not installed.
    """
    try:
        import jinja2
    except ImportError:
        raise ConfigError("jinja2 is not installed; run: pip install 'fedmq[report]'") from None
    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    environment.filters["cell"] = _cell
    environment.filters["interval"] = _interval
    source = resources.files("fedmq.evaluation").joinpath("report.html.jinja").read_text("utf-8")
    charts = [(chart, drawing(chart)) for chart in report.charts]
    return environment.from_string(source).render(report=report, charts=charts)


def _cell(value: Cell) -> str:
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4f}" if abs(value) < 100 else f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else value


def _interval(figure: Figure) -> str:
    if figure.low is None or figure.high is None:
        return "-"
    return f"{_cell(figure.low)} to {_cell(figure.high)}"
