"""Columns that turn cells into values, batch by batch.

Feature columns hold numbers, categories or dates. Other columns accompany the label: upper bounds
of times, weights and base margins.
"""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.gradients import base_margins, row_weights
from fedmq.errors import DataError
from fedmq.party.configuration.data import (
    BesideLabel,
    ColumnSection,
    ColumnType,
    DataSection,
    DatePart,
)
from fedmq.party.data.sources.source import Cells

__all__ = [
    "PLAIN",
    "BesideColumn",
    "BesideColumns",
    "CategoryColumn",
    "Column",
    "DateColumn",
    "FeatureColumn",
    "LabelColumn",
    "NumberColumn",
    "NumberSpelling",
    "Where",
    "checked_beside",
    "likely_meaning",
    "reads_as_number",
]

Where = Callable[[int], str]
"""From the index of a cell in its batch to its place, as messages name it."""

_SHOWN = 40  # characters of a cell that a message quotes
_EPOCH = date(1970, 1, 1)
_CHECKS_BESIDE: Mapping[BesideLabel, Callable[[NDArray[np.float64], str], NDArray[np.float32]]] = {
    "weight": row_weights,
    "base_margin": base_margins,
}
_DATE_FORMS = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_ISO_DATE = re.compile(r"\d{4}-\d\d-\d\d([T ].*)?")


@dataclass(frozen=True, slots=True)
class NumberSpelling:
    """The ``decimal`` and ``thousands`` separators of a party's file."""

    decimal: str = "."
    thousands: str = ""

    @classmethod
    def of(cls, data: DataSection) -> NumberSpelling:
        """As ``data`` says."""
        return cls(data.decimal, data.thousands or "")

    def number(self, text: str) -> float:
        """Parse ``text`` as a number.

        Raises:
            ValueError: it is no number, or a group of thousands has not three digits.
        """
        if self.thousands and self.thousands in text:
            whole, point, decimals = text.partition(self.decimal)
            groups = rf"[+-]?\d{{1,3}}(?:{re.escape(self.thousands)}\d{{3}})+"
            if not re.fullmatch(groups, whole):
                raise ValueError(text)
            text = whole.replace(self.thousands, "") + point + decimals
        if self.decimal != ".":
            if "." in text:
                raise ValueError(text)
            text = text.replace(self.decimal, ".")
        return float(text)

    def reads(self, text: str) -> bool:
        """Whether ``text`` is a number in this spelling."""
        try:
            self.number(text)
        except ValueError:
            return False
        return True


PLAIN = NumberSpelling()
"""As Python spells numbers."""


class Column(ABC):
    """A column that takes batch after batch."""

    @abstractmethod
    def take(self, cells: Cells, where: Where) -> None:
        """Take the next cells; DataError names the place of the first invalid cell."""

    @property
    @abstractmethod
    def missing(self) -> NDArray[np.bool_]:
        """Which rows have no value; bool (rows,)."""


class NumberColumn(Column):
    """Numbers as float32 (rows,), NaN is missing. Text that reads as a number is one."""

    _dtype: type[np.floating[Any]] = np.float32
    _remedy = (
        "leave the column out with ignore, name the value under missing, "
        'or declare the column a "category" under types'
    )

    def __init__(self, name: str, markers: Sequence[str], spelling: NumberSpelling = PLAIN) -> None:
        self._name = name
        self._markers = frozenset(markers)
        self._spelling = spelling
        self._parts: list[NDArray[np.floating[Any]]] = []

    def take(self, cells: Cells, where: Where) -> None:
        if isinstance(cells, np.ndarray):
            numbers = cells
        else:
            try:
                numbers = np.array([self._number(cell) for cell in cells], dtype=np.float64)
            except (ValueError, TypeError, OverflowError):
                raise self._first_non_number(cells, where) from None
        with np.errstate(over="ignore"):
            part = numbers.astype(self._dtype)
        infinite = np.isinf(part)
        if infinite.any():
            raise DataError(
                f"{where(int(np.argmax(infinite)))}, column {self._name!r} is infinite or too "
                "large for float32; leave the cell empty if the value is missing"
            )
        self._parts.append(part)

    @property
    def values(self) -> NDArray[Any]:
        """All rows."""
        return np.concatenate([np.empty(0, self._dtype), *self._parts])

    @property
    def features(self) -> tuple[str, ...]:
        """Its features: itself."""
        return (self._name,)

    def vectors(self) -> Iterator[NDArray[Any]]:
        """The values of each of its features."""
        yield self.values

    @property
    def newest(self) -> NDArray[Any]:
        """The rows that were taken last."""
        return self._parts[-1]

    @property
    def missing(self) -> NDArray[np.bool_]:
        missing: NDArray[np.bool_] = np.isnan(self.values)
        return missing

    def _number(self, cell: Any) -> float:
        if isinstance(cell, str):
            cell = cell.strip()
            return np.nan if cell in self._markers else self._spelling.number(cell)
        return np.nan if cell is None else float(cell)

    def _first_non_number(self, cells: Sequence[Any], where: Where) -> DataError:
        for index, cell in enumerate(cells):
            try:
                self._number(cell)
            except (ValueError, TypeError, OverflowError):
                meant = likely_meaning(self._name, [str(cell).strip()])
                return DataError(
                    f"{where(index)}, column {self._name!r}: {str(cell)[:_SHOWN]!r} is no number; "
                    + (f"{meant}; or " if meant else "")
                    + self._remedy
                )
        raise AssertionError("every cell is a number")


class LabelColumn(NumberColumn):
    """The label as float64 (rows,); where it has ``classes``, their words, 0 is the first."""

    _dtype = np.float64
    _remedy = (
        "write the label as a number, 1 and 0 for yes and no, or name its words: "
        'label_classes = ["no", "yes"]'
    )

    def __init__(
        self,
        name: str,
        markers: Sequence[str],
        spelling: NumberSpelling = PLAIN,
        classes: Sequence[str] = (),
    ) -> None:
        super().__init__(name, markers, spelling)
        self._classes = {word: number for number, word in enumerate(classes)}

    def take(self, cells: Cells, where: Where) -> None:
        if not self._classes:
            super().take(cells, where)
            return
        words = [_text(cell) for cell in (cells.tolist() if hasattr(cells, "tolist") else cells)]
        for index, word in enumerate(words):
            if word is not None and word not in self._markers and word not in self._classes:
                known = ", ".join(map(repr, self._classes))
                raise DataError(
                    f"{where(index)}, column {self._name!r}: {word[:_SHOWN]!r} is none of its "
                    f"classes, {known}; name it under label_classes, or correct the cell"
                )
        numbers = [np.nan if word is None else self._classes.get(word, np.nan) for word in words]
        super().take(np.array(numbers, np.float64), where)


class CategoryColumn(Column):
    """Categories by their text; whole numbers are written without a decimal point.

    Unless the column is ``declared`` a category, a category that reads as a number is an error: the
    column then probably holds numbers and a stray word.
    """

    def __init__(
        self,
        name: str,
        markers: Sequence[str],
        limit: int,
        declared: bool,
        spelling: NumberSpelling = PLAIN,
    ) -> None:
        self._name = name
        self._markers = frozenset(markers)
        self._limit = limit
        self.declared = declared
        self._spelling = spelling
        self._code: dict[str, int] = {}
        self._first = ""
        self._parts: list[NDArray[np.int32]] = []

    def take(self, cells: Cells, where: Where) -> None:
        values = cells.tolist() if isinstance(cells, np.ndarray) else cells
        codes = np.empty(len(values), dtype=np.int32)
        for index, cell in enumerate(values):
            text = _text(cell)
            if text is None or text in self._markers:
                codes[index] = -1
                continue
            code = self._code.get(text)
            if code is None:
                code = self._new(text, index, where)
            codes[index] = code
        self._parts.append(codes)

    @property
    def missing(self) -> NDArray[np.bool_]:
        return np.less(self.codes, 0)

    @property
    def codes(self) -> NDArray[np.int32]:
        """Index into ``categories`` by row, -1 is missing; int32 (rows,)."""
        return np.concatenate([np.empty(0, np.int32), *self._parts])

    @property
    def categories(self) -> tuple[str, ...]:
        """The categories in the order of their appearance."""
        return tuple(self._code)

    @property
    def features(self) -> tuple[str, ...]:
        """``COLUMN=CATEGORY`` for each category, in alphabetical order."""
        return tuple(f"{self._name}={category}" for category in sorted(self._code))

    def vectors(self) -> Iterator[NDArray[np.float32]]:
        """The `indicators` of its features."""
        yield from self.indicators().values()

    def indicators(self) -> Mapping[str, NDArray[np.float32]]:
        """By category, in alphabetical order: 1 where a row has it, else 0, NaN where missing."""
        codes = self.codes
        base = np.where(codes < 0, np.float32(np.nan), np.float32(0))
        return {
            category: np.where(codes == self._code[category], np.float32(1), base)
            for category in sorted(self._code)
        }

    def _new(self, text: str, index: int, where: Where) -> int:
        if not self.declared and self._spelling.reads(text):
            word = next(iter(self._code))
            meant = likely_meaning(self._name, [*self._code, text])
            raise DataError(
                f"{self._first}, column {self._name!r}: {word[:_SHOWN]!r} is no number, as "
                f"{text[:_SHOWN]!r} is further down; "
                + (f"{meant}; or " if meant else "")
                + "leave the column out with ignore, name the value under missing, or declare the "
                'column a "category" under types'
            )
        self._first = self._first or where(index)
        if len(self._code) == self._limit:
            meant = likely_meaning(self._name, self._code)
            raise DataError(
                f"{where(index)}, column {self._name!r}: more than {self._limit} categories; "
                + (f"{meant}; or " if meant else "")
                + "leave the column out with ignore, group its categories, or raise max_categories"
            )
        self._code[text] = len(self._code)
        return self._code[text]


class FeatureColumn(Column):
    """A column of the ``declared`` type; by default its first value decides the type."""

    def __init__(
        self,
        name: str,
        markers: Sequence[str],
        limit: int,
        declared: ColumnType | None,
        spelling: NumberSpelling = PLAIN,
    ) -> None:
        self._markers = frozenset(markers)
        self._spelling = spelling
        self._number = NumberColumn(name, markers, spelling)
        self._category = CategoryColumn(name, markers, limit, declared == "category", spelling)
        self._column: Column | None = None
        if declared:
            self._column = self._number if declared == "number" else self._category

    @property
    def decided(self) -> NumberColumn | CategoryColumn:
        """The column with its decided type: numbers if it has no value at all."""
        return self._category if self._column is self._category else self._number

    @property
    def missing(self) -> NDArray[np.bool_]:
        return self.decided.missing

    def take(self, cells: Cells, where: Where) -> None:
        if self._column is None:
            self._column = self._fitting(cells)
        # All cells are missing until the type is decided, and a number column can hold those.
        (self._column or self._number).take(cells, where)

    def _fitting(self, cells: Cells) -> Column | None:
        if isinstance(cells, np.ndarray):
            return self._number
        for cell in cells:
            text = _text(cell)
            if text is None or text in self._markers:
                continue
            if not isinstance(cell, str) or self._spelling.reads(text):
                return self._number
            # All earlier cells are missing; the category column needs them, too.
            empty = len(self._number.values)
            if empty:
                self._category.take([None] * empty, lambda _: "")
            return self._category
        return None


def _text(cell: Any) -> str | None:
    if cell is None or cell != cell:  # NaN
        return None
    if isinstance(cell, str):
        return cell.strip()
    if isinstance(cell, float) and cell.is_integer():
        return str(int(cell))
    return str(cell)


def reads_as_number(text: str) -> bool:
    """Whether ``text`` is a number as Python spells them."""
    return PLAIN.reads(text)


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

    @property
    def features(self) -> tuple[str, ...]:
        """``COLUMN.PART`` for each part that is wanted."""
        return tuple(f"{self._name}.{part}" for part in self._section.wanted)

    def vectors(self) -> Iterator[NDArray[np.float32]]:
        """Each part's numbers: float32 (rows,), NaN is missing."""
        for part in self._section.wanted:
            yield np.array(
                [np.nan if day is None else self._value(part, day) for day in self._dates],
                dtype=np.float32,
            )

    def _value(self, part: DatePart, day: date) -> float:
        return _PARTS_OF_DATES[part](day, self._section.reference)

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


_PARTS_OF_DATES: Mapping[DatePart, Callable[[date, date | None], float]] = {
    "days": lambda day, reference: (day - (reference or _EPOCH)).days,
    "month": lambda day, _: day.month,
    "weekday": lambda day, _: day.isoweekday(),
    "age": _age,
}


def checked_beside(
    role: BesideLabel, values: NDArray[np.float64], where: str
) -> NDArray[np.float32]:
    """``values`` as float32 (rows,), where ``role`` allows them; DataError names ``where``."""
    check = _CHECKS_BESIDE.get(role)
    return values.astype(np.float32) if check is None else check(values, where)


class BesideColumn(NumberColumn):
    """A column of numbers that is read with the label, float64 (rows,)."""

    _dtype = np.float64
    _remedy = "write it as a number"


class BesideColumns:
    """Columns beside the label of a table at ``place``, by role; ``names`` are their own."""

    def __init__(self, place: str, names: Mapping[BesideLabel, str], data: DataSection) -> None:
        self._place = place
        self._names = names
        self._columns = {
            role: BesideColumn(name, data.missing, NumberSpelling.of(data))
            for role, name in names.items()
        }

    def take(self, cells: Mapping[str, Cells], where: Where) -> None:
        """Take the next cells of all columns, by their names."""
        for role, column in self._columns.items():
            column.take(cells[self._names[role]], where)

    def joined(self, label: NDArray[np.float64]) -> NDArray[np.float64]:
        """``label`` (rows,), or (rows, 2) with queries, or with upper bounds, inf without."""
        if "qid" in self._columns:
            return np.stack((label, self._columns["qid"].values), axis=1)
        if "label_upper_bound" not in self._columns:
            return label
        upper = self._columns["label_upper_bound"].values
        return np.stack((label, np.where(np.isnan(upper), np.inf, upper)), axis=1)

    def checked(self, role: BesideLabel) -> NDArray[np.float32] | None:
        """Weights or margins, float32 (rows,); None where there is no such column.

        Raises:
            DataError: naming the source, column and row.
        """
        if role not in self._columns:
            return None
        where = f"{self._place}, column {self._names[role]!r}"
        return checked_beside(role, self._columns[role].values, where)


_SPELLINGS = (
    NumberSpelling(".", ","),
    NumberSpelling(",", ""),
    NumberSpelling(",", "."),
    NumberSpelling(".", "'"),
    NumberSpelling(".", " "),
)


def likely_meaning(name: str, cells: Collection[str]) -> str:
    """Numbers or dates, if all ``cells`` of the column ``name`` read as these; else empty."""
    if not cells:
        return ""
    for spelling in _SPELLINGS:
        marks = spelling.thousands + spelling.decimal.replace(".", "")
        if any(mark in cell for mark in marks for cell in cells) and all(
            map(spelling.reads, cells)
        ):
            return f"its cells look like numbers with {_keys(spelling)}"
    section = f"[data.columns.{_toml_key(name)}]"
    if all(_ISO_DATE.fullmatch(cell) and _is_date(cell[:10], "%Y-%m-%d") for cell in cells):
        return f'its cells look like dates: {section} with kind = "date"'
    for form in _DATE_FORMS:
        if all(_is_date(cell, form) for cell in cells):
            return f'its cells look like dates: {section} with kind = "date" and format = "{form}"'
    return ""


def _toml_key(name: str) -> str:
    """``name`` as a key of TOML: beyond ASCII letters, digits, _ and - it needs quotes."""
    return name if _BARE_KEY.fullmatch(name) else json.dumps(name, ensure_ascii=False)


def _keys(spelling: NumberSpelling) -> str:
    decimal = [f'decimal = "{spelling.decimal}"'] * (spelling.decimal != ".")
    thousands = [f'thousands = "{spelling.thousands}"'] * bool(spelling.thousands)
    return " and ".join([*decimal, *thousands])


def _is_date(cell: str, form: str) -> bool:
    try:
        datetime.strptime(cell, form)
    except ValueError:
        return False
    return True
