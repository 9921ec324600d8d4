"""The rows of the serving source, in memory and as old as allowed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.party.configuration.data import DataSection
from fedmq.party.tables import served_columns

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
        """Raises DataError naming party, source and column."""
        values, row_of = served_columns(self.party, self.data, self.features, self.model)
        nobody = np.full((1, len(self.features)), np.nan, np.float32)
        return ServedRows(self.features, np.vstack([values, nobody]), row_of)


def source_stamp(data: DataSection) -> Any:
    """What changes when the source does; None while it cannot be seen.

    Nobody can tell whether a query's result changed, so it always counts as new.
    """
    if data.path is None:
        return object()
    try:
        seen = data.path.stat()
    except OSError:
        return None
    return seen.st_mtime_ns, seen.st_size, seen.st_ino
