"""The parts of a report as data: figures with intervals, curves and tables."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "HELD_OUT",
    "ROWS_FROM",
    "Cell",
    "Chart",
    "Figure",
    "Line",
    "Map",
    "Report",
    "ReportTable",
]

Cell = str | int | float | None

ROWS_FROM = "rows from"
"""The fact of a report that says where its rows are from. Earlier versions wrote none."""

HELD_OUT = "what the training held out"
"""Its value where the training had not learned from them."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Figure(_Part):
    """A metric with the interval that holds 95 % of its bootstrap samples."""

    value: float
    low: float | None = None
    high: float | None = None


class Line(_Part):
    """A line of a chart through points (x, y)."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]


class Chart(_Part):
    """Lines over the same axes, or bars from 0."""

    name: str
    x: str
    y: str
    lines: tuple[Line, ...]
    kind: Literal["lines", "bars"] = "lines"
    about: str = ""


class Map(_Part):
    """Numbers from -1 to 1 of each two of ``names`` as coloured fields; None is left blank."""

    name: str
    names: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]
    about: str = ""


class ReportTable(_Part):
    """A table: every row has a cell for each of ``headers``."""

    name: str
    headers: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    about: str = ""


class Report(_Part):
    """An evaluation of ``model``; ``facts`` describe the training and the evaluated rows."""

    format: Literal["fedmq.report"] = "fedmq.report"
    version: Annotated[int, Field(ge=1, le=1)] = 1
    model: str
    made: str
    facts: dict[str, str]
    metrics: dict[str, Figure]
    charts: tuple[Chart, ...] = ()
    tables: tuple[ReportTable, ...] = ()
