"""The id column: ids are normalised, not empty, and distinct."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import DataError
from fedmq.party.configuration.data import DataSection, NormaliseStep
from fedmq.party.data.sources.source import Cells

__all__ = ["LONGEST_ID", "IdColumn", "check_lengths", "comparable"]

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


def _after(ids: Sequence[str], steps: Sequence[NormaliseStep]) -> list[str]:
    """``ids`` after all ``steps``, one after the other."""
    for step in steps:
        ids = list(map(_NORMALISE[step], ids))
    return list(ids)


def comparable(ids: Sequence[str], data: DataSection) -> list[str]:
    """``ids`` as read from ``data``: normalised, unless they are hashed already."""
    return list(ids) if data.hashed else _after(ids, data.normalise)


class IdColumn:
    """Takes the ids of a source batch by batch; ``rows`` gives the kept rows, in order."""

    def __init__(self, name: str, unit: str, data: DataSection) -> None:
        self._name = name
        self._unit = unit
        self._data = data
        self._ids: list[str] = []
        self._numbers: list[int] = []
        self._kind: type | None = None

    def __len__(self) -> int:
        return len(self._ids)

    def take(self, cells: Cells, numbers: Sequence[int]) -> None:
        """Take the next ids; DataError names the row of a missing or invalid id."""
        values = cells.tolist() if isinstance(cells, np.ndarray) else cells
        ids = self._normalised(self._text(values, numbers))
        check_lengths(ids, lambda index: f"{self._name}, {self._unit} {numbers[index]}")
        for name, number in zip(ids, numbers, strict=True):
            if not name:
                raise DataError(f"{self._name}, {self._unit} {number}: the id is empty")
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
        """The rows that the rule for repeated ids keeps, by ascending id; int64.

        Raises:
            DataError: there are no rows, or ids are repeated and no rule allows it.
        """
        if not self._ids:
            raise DataError(f"{self._name}: there are no rows")
        if self._data.duplicates == "refuse":
            self._refuse_repeated()
        rows: dict[str, int] = {}
        for row, name in enumerate(self._ids):
            if self._data.duplicates == "last" or name not in rows:
                rows[name] = row
        return np.array([rows[name] for name in sorted(rows)], dtype=np.int64)

    def values(self, rows: NDArray[np.int64]) -> list[str]:
        """The ids in ``rows``."""
        return [self._ids[row] for row in rows.tolist()]

    def _refuse_repeated(self) -> None:
        if len(set(self._ids)) == len(self._ids):
            return
        again = self.repeated()
        some = ", ".join(f"{name!r} in {self._unit} {number}" for name, number in again[:_SHOWN])
        raise DataError(
            f"{self._name}: {len(again)} ids are repeated, such as {some}; each row needs an id "
            'of its own, or say which counts: duplicates = "first" or "last"'
        )

    def _text(self, values: Sequence[Any], numbers: Sequence[int]) -> Sequence[str]:
        kinds = set(map(type, values))
        if kinds == {str}:
            self._only(str, values, numbers)
            return values
        texts = []
        for value, number in zip(values, numbers, strict=True):
            where = f"{self._name}, {self._unit} {number}"
            if value is None or value != value:
                raise DataError(f"{where}: the id is empty")
            if type(value) not in (str, int):
                raise DataError(
                    f"{where}: the id {str(value)[:40]!r} is a {type(value).__name__}; "
                    "ids are text or whole numbers"
                )
            self._only(type(value), [value], [number])
            texts.append(str(value))
        return texts

    def _only(self, kind: type, values: Sequence[Any], numbers: Sequence[int]) -> None:
        if values and self._kind not in (None, kind):
            raise DataError(
                f"{self._name}, {self._unit} {numbers[0]}: the id {str(values[0])[:40]!r} is of "
                "another type than those before; store all ids as text, or all as numbers"
            )
        self._kind = kind

    def _normalised(self, ids: Sequence[str]) -> list[str]:
        for name in ids if self._data.hashed else ():
            if not _SHA256.fullmatch(name):
                raise DataError(
                    f"{self._name}: the id {name[:40]!r} is no SHA-256 in hex digits, "
                    "though hashed = true"
                )
        return comparable(ids, self._data)
