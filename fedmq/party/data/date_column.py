"""A column of dates, as the numbers that trees can split."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import DataError
from fedmq.party.configuration.columns import ColumnSection, DatePart
from fedmq.party.data.columns import Column, Where
from fedmq.party.data.sources.source import Cells

__all__ = ["DateColumn"]

_SHOWN = 40
_EPOCH = date(1970, 1, 1)


class DateColumn(Column):
    """Dates, each as several features ``COLUMN.PART``; an empty cell is missing in all of them."""

    def __init__(self, name: str, markers: Sequence[str], section: ColumnSection) -> None:
        self._name = name
        self._markers = frozenset(markers)
        self._section = section
        self._dates: list[date | None] = []

    def take(self, cells: Cells, where: Where) -> None:
        for index, cell in enumerate(cells):
            try:
                self._dates.append(self._date(cell))
            except ValueError:
                form = self._section.format or "YYYY-MM-DD"
                raise DataError(
                    f"{where(index)}, column {self._name!r}: {str(cell)[:_SHOWN]!r} is no date "
                    f"as {form}; name its form with format, or the value under missing"
                ) from None

    @property
    def missing(self) -> NDArray[np.bool_]:
        return np.array([day is None for day in self._dates], dtype=np.bool_)

    def parts(self) -> Mapping[str, NDArray[np.float32]]:
        """By feature ``COLUMN.PART``: float32 (rows,), NaN is missing."""
        return {
            f"{self._name}.{part}": np.array(
                [np.nan if day is None else self._value(part, day) for day in self._dates],
                dtype=np.float32,
            )
            for part in self._section.wanted
        }

    def _value(self, part: DatePart, day: date) -> float:
        return _VALUES[part](day, self._section.reference)

    def _date(self, cell: Any) -> date | None:
        if isinstance(cell, datetime):
            return cell.date()
        if cell is None or isinstance(cell, date):
            return cell
        text = str(cell).strip()
        if text in self._markers:
            return None
        if self._section.format is not None:
            return datetime.strptime(text, self._section.format).date()
        return datetime.fromisoformat(text).date()


def _age(day: date, reference: date | None) -> int:
    """Whole years at ``reference``, as people count their birthdays."""
    assert reference is not None
    before_birthday = (reference.month, reference.day) < (day.month, day.day)
    return reference.year - day.year - before_birthday


_VALUES: Mapping[DatePart, Callable[[date, date | None], float]] = {
    "days": lambda day, reference: (day - (reference or _EPOCH)).days,
    "month": lambda day, _: day.month,
    "weekday": lambda day, _: day.isoweekday(),
    "age": _age,
}
