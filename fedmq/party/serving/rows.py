"""The rows of the serving source, in memory and as old as allowed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import DataError
from fedmq.party.configuration.party import DataSection
from fedmq.party.csv_table import ReadTable

__all__ = ["LoadServedRows", "ServedRows", "source_stamp"]


@dataclass(frozen=True, slots=True, eq=False)
class ServedRows:
    """``values`` float32 (rows + 1, features): the last row is all missing, for unknown ids."""

    features: tuple[str, ...]
    values: NDArray[np.float32]
    row_of: Mapping[str, int]

    def places(self, ids: Sequence[str]) -> NDArray[np.int64]:
        """The row of each id; -1, the row without values, where it is unknown."""
        return np.array([self.row_of.get(each, -1) for each in ids], dtype=np.int64)


@dataclass(frozen=True, slots=True)
class LoadServedRows:
    """Read ``data`` at ``party``: the columns ``features``, in that order, for model ``model``."""

    party: str
    data: DataSection
    features: tuple[str, ...]
    model: str

    def run(self) -> ServedRows:
        """Raises DataError naming party, file and column."""
        table = ReadTable(self.party, self.data).run()
        lacking = [name for name in self.features if name not in table.features]
        if lacking:
            raise DataError(
                f"{self.party}: {self.data.path}: there is no column {lacking[0]!r}, "
                f"which model {self.model} was trained on"
            )
        places = [table.features.index(name) for name in self.features]
        nobody = np.full((1, len(places)), np.nan, np.float32)
        values = np.vstack([table.values[:, places], nobody])
        return ServedRows(self.features, values, {each: row for row, each in enumerate(table.ids)})


def source_stamp(data: DataSection) -> Any:
    """What changes when the source does; None while it cannot be seen."""
    try:
        seen = data.path.stat()
    except OSError:
        return None
    return seen.st_mtime_ns, seen.st_size, seen.st_ino
