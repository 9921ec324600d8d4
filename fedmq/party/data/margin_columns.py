"""Columns of margins where rows start that are scored: one, or one for each class."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import DataError
from fedmq.party.configuration.data import DataSection
from fedmq.party.data.number_spelling import NumberSpelling
from fedmq.party.data.text_column import ReadTextColumn

__all__ = ["ReadMargins", "margins_of"]


@dataclass(frozen=True, slots=True, eq=False)
class ReadMargins:
    """Read the margins of ``ids`` from ``columns`` of ``data`` at the party ``where``."""

    label: ClassVar[str] = "ReadMargins"
    where: str
    data: DataSection
    columns: tuple[str, ...]
    ids: tuple[str, ...]

    def run(self) -> NDArray[np.float64]:
        """float64 (ids, columns); 0 for an id that is not there, which gets no score.

        Raises:
            DataError: there is no such column, or a cell is no number.
        """
        tables = {
            column: ReadTextColumn(self.where, self.data, column).run() for column in self.columns
        }
        there = {
            column: {name: by_id.get(name, "0") for name in self.ids}
            for column, by_id in tables.items()
        }
        return margins_of(there, f"{self.where}: {self.data.place}", NumberSpelling.of(self.data))


def margins_of(
    cells: Mapping[str, Mapping[str, str]], where: str, spelling: NumberSpelling
) -> NDArray[np.float64]:
    """The numbers in ``cells``, by column and row's name: float64 (rows, columns).

    Raises DataError where one is no number; it begins with ``where``.
    """
    return np.stack(
        [_numbers(column, texts, where, spelling) for column, texts in cells.items()], 1
    )


def _numbers(
    column: str, texts: Mapping[str, str], where: str, spelling: NumberSpelling
) -> Sequence[float]:
    found = []
    for name, text in texts.items():
        try:
            found.append(spelling.number(text))
        except ValueError:
            raise DataError(
                f"{where}, column {column!r}: {text[:40]!r} of {name!r} is no number, and a margin "
                "is needed"
            ) from None
    return found
