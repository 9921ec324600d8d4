"""The id of a row: one column, or several together; normalised, not empty, and distinct.

An id of several columns is one text, as in ``12|7``. A bar or a backslash within a part has a
backslash before it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import DataError
from fedmq.party.configuration.data import DataSection, NormaliseStep
from fedmq.party.data.repeated_ids import SEPARATOR, row_names
from fedmq.party.data.sources.source import Cells

__all__ = ["LONGEST_ID", "IdColumns", "check_lengths", "comparable", "joined", "parts_of"]

_SHOWN = 3  # most repeated ids that a message quotes
_SHA256 = re.compile(r"[0-9a-f]{64}")
_NORMALISE: Mapping[NormaliseStep, Callable[[str], str]] = {
    "trim": str.strip,
    "lower": str.lower,
    "upper": str.upper,
    "digits": lambda text: "".join(digit for digit in text if digit in "0123456789"),
    "sha256": lambda text: hashlib.sha256(text.encode()).hexdigest() if text else "",
}
"""``digits`` keeps 0 to 9 alone; ``sha256`` gives hex digits, and leaves an empty id empty."""


LONGEST_ID = 256
"""Most characters of a normalised id: messages take no more."""


def check_lengths(ids: Sequence[str], where: Callable[[int], str]) -> None:
    """Raise DataError for an id that is too long; ``where(i)`` names the place of ``ids[i]``."""
    # Normalisation may add letters: the upper case of ß is SS.
    for index, name in enumerate(ids):
        if len(name) > LONGEST_ID:
            raise DataError(f"{where(index)}: the id is longer than {LONGEST_ID} characters")


_BAR = "|"
_PLAIN = str.maketrans({"\\": "\\\\", _BAR: f"\\{_BAR}"})


def joined(parts: Sequence[str]) -> str:
    """The id whose columns hold ``parts``: itself, if it is one."""
    if len(parts) == 1:
        return parts[0]
    return _BAR.join(part.translate(_PLAIN) for part in parts)


def parts_of(name: str) -> list[str]:
    """What the columns of the id ``name`` hold, if it has several: the reverse of `joined`."""
    if "\\" not in name:
        return name.split(_BAR)
    parts, escaped = [""], False
    for letter in name:
        if letter == _BAR and not escaped:
            parts.append("")
            continue
        escaped = letter == "\\" and not escaped
        if not escaped:
            parts[-1] += letter
    return parts


def _after(ids: Sequence[str], steps: Sequence[NormaliseStep]) -> list[str]:
    """``ids`` after all ``steps``, one after the other."""
    for step in steps:
        ids = list(map(_NORMALISE[step], ids))
    return list(ids)


def comparable(ids: Sequence[str], data: DataSection) -> list[str]:
    """``ids`` as read from ``data``: normalised, unless they are hashed already.

    Of several columns each part is normalised, and what they make together is hashed. An id of
    another number of parts is nobody's.
    """
    if data.hashed:
        return list(ids)
    if len(data.ids) == 1:
        return _after(ids, data.normalise)
    split = map(parts_of, ids)
    by_part = [
        joined(_after(parts, _before_hash(data))) if len(parts) == len(data.ids) else name
        for name, parts in zip(ids, split, strict=True)
    ]
    return _after(by_part, data.normalise[len(_before_hash(data)) :])


def _before_hash(data: DataSection) -> Sequence[NormaliseStep]:
    """The steps that each column goes through."""
    return [step for step in data.normalise if step != "sha256"]


class _Part:
    """One column of the ids of the source ``name``, which messages call ``what``."""

    def __init__(self, name: str, unit: str, what: str) -> None:
        self._name = name
        self._unit = unit
        self._what = what
        self._kind: type | None = None

    def texts(self, cells: Cells, numbers: Sequence[int]) -> Sequence[str]:
        """The next cells as text; DataError names the row of one that is missing or no id."""
        values = cells.tolist() if isinstance(cells, np.ndarray) else cells
        kinds = set(map(type, values))
        if kinds == {str}:
            self._only(str, values, numbers)
            return values
        texts = []
        for value, number in zip(values, numbers, strict=True):
            where = f"{self._name}, {self._unit} {number}"
            if value is None or value != value:
                raise self.empty(number)
            if type(value) not in (str, int):
                raise DataError(
                    f"{where}: {self._what} {str(value)[:40]!r} is a {type(value).__name__}; "
                    "ids are text or whole numbers"
                )
            self._only(type(value), [value], [number])
            texts.append(str(value))
        return texts

    def empty(self, number: int) -> DataError:
        """That the row of this number has nothing in the column."""
        return DataError(f"{self._name}, {self._unit} {number}: {self._what} is empty")

    def _only(self, kind: type, values: Sequence[Any], numbers: Sequence[int]) -> None:
        if values and self._kind not in (None, kind):
            raise DataError(
                f"{self._name}, {self._unit} {numbers[0]}: {self._what} {str(values[0])[:40]!r} is "
                "of another type than those before; store all ids as text, or all as numbers"
            )
        self._kind = kind


class IdColumns:
    """Takes the ids of a source batch by batch; ``rows`` gives the kept rows, in order."""

    def __init__(self, name: str, unit: str, data: DataSection) -> None:
        self._name = name
        self._unit = unit
        self._data = data
        self._ids: list[str] = []
        self._numbers: list[int] = []
        alone = len(data.ids) == 1
        self._parts = {
            column: _Part(name, unit, "the id" if alone else f"the id's {column!r}")
            for column in data.ids
        }

    def __len__(self) -> int:
        return len(self._ids)

    def take(self, cells: Mapping[str, Cells], numbers: Sequence[int]) -> None:
        """Take the next ``cells`` by column; DataError names the row of a missing or invalid id."""
        columns = []
        for column, part in self._parts.items():
            texts = self._normalised(part.texts(cells[column], numbers))
            if "" in texts:
                raise part.empty(numbers[texts.index("")])
            columns.append(texts)
        ids = columns[0] if len(columns) == 1 else list(map(joined, zip(*columns, strict=True)))
        if not self._data.hashed:
            ids = _after(ids, self._data.normalise[len(_before_hash(self._data)) :])
        if self._data.counts_each:
            self._refuse_separators(ids, numbers)
        check_lengths(ids, lambda index: f"{self._name}, {self._unit} {numbers[index]}")
        self._ids += ids
        self._numbers += numbers

    def repeated(self) -> list[tuple[str, int]]:
        """Repeated ids, with the number of the later row."""
        seen: set[str] = set()
        again = []
        for name, number in zip(self._ids, self._numbers, strict=True):
            if name in seen:
                again.append((name, number))
            seen.add(name)
        return again

    def rows(self) -> NDArray[np.int64]:
        """The rows that the rule for repeated ids keeps, by ascending id, then in order; int64.

        Raises:
            DataError: there are no rows, or ids are repeated and no rule allows it.
        """
        if not self._ids:
            raise DataError(f"{self._name}: there are no rows")
        if self._data.duplicates == "refuse":
            self._refuse_repeated()
        if self._data.counts_each:
            ascending = sorted(range(len(self._ids)), key=self._ids.__getitem__)
            return np.array(ascending, dtype=np.int64)
        rows: dict[str, int] = {}
        for row, name in enumerate(self._ids):
            if self._data.duplicates == "last" or name not in rows:
                rows[name] = row
        return np.array([rows[name] for name in sorted(rows)], dtype=np.int64)

    def values(self, rows: NDArray[np.int64]) -> list[str]:
        """The ids in ``rows``, each its own where ids are repeated."""
        ids = [self._ids[row] for row in rows.tolist()]
        return row_names(ids) if self._data.counts_each else ids

    def _refuse_separators(self, ids: Sequence[str], numbers: Sequence[int]) -> None:
        for name, number in zip(ids, numbers, strict=True):
            if SEPARATOR in name:
                raise DataError(
                    f"{self._name}, {self._unit} {number}: the id {name[:40]!r} has a "
                    f"{SEPARATOR}, which numbers the rows of a person where each counts; "
                    "write ids without it at all parties"
                )

    def _refuse_repeated(self) -> None:
        if len(set(self._ids)) == len(self._ids):
            return
        again = self.repeated()
        some = ", ".join(f"{name!r} in {self._unit} {number}" for name, number in again[:_SHOWN])
        raise DataError(
            f"{self._name}: {len(again)} ids are repeated, such as {some}; each row needs an id "
            'of its own, or say which counts: duplicates = "first" or "last", or "each" at the '
            "active party"
        )

    def _normalised(self, ids: Sequence[str]) -> list[str]:
        for name in ids if self._data.hashed else ():
            if not _SHA256.fullmatch(name):
                raise DataError(
                    f"{self._name}: the id {name[:40]!r} is no SHA-256 in hex digits, "
                    "though hashed = true"
                )
        return list(ids) if self._data.hashed else _after(ids, _before_hash(self._data))
