"""Feature columns as they come in: numbers and categories, batch by batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import DataError
from fedmq.party.configuration.data import ColumnType
from fedmq.party.data.likely_meaning import likely_meaning
from fedmq.party.data.number_spelling import PLAIN, NumberSpelling
from fedmq.party.data.sources.source import Cells

__all__ = [
    "CategoryColumn",
    "Column",
    "FeatureColumn",
    "LabelColumn",
    "NumberColumn",
    "Where",
    "reads_as_number",
]

Where = Callable[[int], str]
"""From the index of a cell in its batch to its place, as messages name it."""

_SHOWN = 40  # characters of a cell that a message quotes


class Column(ABC):
    """A column that takes batch after batch."""

    @abstractmethod
    def take(self, cells: Cells, where: Where) -> None:
        """Take the next cells; DataError names the place of the first that does not fit."""

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
    """The label as float64 (rows,)."""

    _dtype = np.float64
    _remedy = "write the label as a number: 1 and 0 for yes and no"


class CategoryColumn(Column):
    """Categories by their text; whole numbers are written without a decimal point.

    Unless the column is ``declared`` a category, one that reads as a number is an error: then the
    column holds numbers, and a stray word.
    """

    def __init__(
        self,
        name: str,
        markers: Sequence[str],
        most: int,
        declared: bool,
        spelling: NumberSpelling = PLAIN,
    ) -> None:
        self._name = name
        self._markers = frozenset(markers)
        self._most = most
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
            raise DataError(
                f"{self._first}, column {self._name!r}: {word[:_SHOWN]!r} is no number, as "
                f"{text[:_SHOWN]!r} is further down; leave the column out with ignore, name the "
                'value under missing, or declare the column a "category" under types'
            )
        self._first = self._first or where(index)
        if len(self._code) == self._most:
            meant = likely_meaning(self._name, self._code)
            raise DataError(
                f"{where(index)}, column {self._name!r}: more than {self._most} categories; "
                + (f"{meant}; or " if meant else "")
                + "leave the column out with ignore, group its categories, or raise max_categories"
            )
        self._code[text] = len(self._code)
        return self._code[text]


class FeatureColumn(Column):
    """A column of the ``declared`` type; without one, its first value decides."""

    def __init__(
        self,
        name: str,
        markers: Sequence[str],
        most: int,
        declared: ColumnType | None,
        spelling: NumberSpelling = PLAIN,
    ) -> None:
        self._markers = frozenset(markers)
        self._spelling = spelling
        self._number = NumberColumn(name, markers, spelling)
        self._category = CategoryColumn(name, markers, most, declared == "category", spelling)
        self._column: Column | None = None
        if declared:
            self._column = self._number if declared == "number" else self._category

    @property
    def decided(self) -> NumberColumn | CategoryColumn:
        """The column as what it turned out to hold: numbers, if it has no value at all."""
        return self._category if self._column is self._category else self._number

    @property
    def missing(self) -> NDArray[np.bool_]:
        return self.decided.missing

    def take(self, cells: Cells, where: Where) -> None:
        if self._column is None:
            self._column = self._fitting(cells)
        # Until the type is decided all cells are missing, and a number column can hold that.
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
            # All earlier cells are missing; the category column must have them, too.
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
