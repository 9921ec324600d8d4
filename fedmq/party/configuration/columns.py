"""``[data.columns.NAME]`` of a party's file: what one column holds, and how it is read."""

from __future__ import annotations

from datetime import date, datetime
from typing import Literal, Self

from pydantic import model_validator

from fedmq.party.configuration.toml_file import Section

__all__ = ["ColumnSection", "DatePart"]

DatePart = Literal["days", "month", "weekday", "age"]


class ColumnSection(Section):
    """One column. A date becomes several numbers: a feature ``COLUMN.PART`` each."""

    kind: Literal["number", "category", "date"]
    """What it holds."""
    format: str | None = None
    """How a date is written, as ``strptime`` has it: ``%d.%m.%Y``; YYYY-MM-DD when left out."""
    reference: date | None = None
    """The day at which an age is counted, and from which days are; days from 1970-01-01 when left
    out."""
    parts: tuple[DatePart, ...] | None = None
    """``days``, ``month`` (1 to 12), ``weekday`` (1 is Monday) and ``age`` (whole years at
    ``reference``); the first three when left out, and all with a reference."""

    @model_validator(mode="after")
    def _of_a_date(self) -> Self:
        if self.kind != "date":
            for key in ("format", "reference", "parts"):
                if getattr(self, key) is not None:
                    raise ValueError(f'{key} goes with kind = "date" alone')
        if self.format is not None and not _spells_dates(self.format):
            raise ValueError(f"format: {self.format!r} is no form of dates, as %d.%m.%Y is")
        if "age" in (self.parts or ()) and self.reference is None:
            raise ValueError("an age needs the day at which it is counted: reference = 2026-01-01")
        return self

    @property
    def wanted(self) -> tuple[DatePart, ...]:
        """The parts of a date that become features."""
        if self.parts is not None:
            return self.parts
        parts: tuple[DatePart, ...] = ("days", "month", "weekday")
        return parts if self.reference is None else (*parts, "age")


def _spells_dates(form: str) -> bool:
    """Whether a date that is written in ``form`` can be read back."""
    day = datetime(2001, 2, 3)
    try:
        return datetime.strptime(day.strftime(form), form) == day
    except ValueError:
        return False
