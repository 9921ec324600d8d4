"""The rows for which scores are asked: their values, wherever the source keeps them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmq.party.configuration.data import DataSection
from fedmq.party.data.loading import served_columns

__all__ = ["LoadRows", "Rows", "RowsInMemory", "ServedRows"]


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Values of rows: ``values`` is float32 (rows + 1, features), ``row_of`` has the row of an id.

    The last row is all missing (NaN); it stands for unknown ids.
    """

    features: tuple[str, ...]
    values: NDArray[np.float32]
    row_of: Mapping[str, int]

    @classmethod
    def of(cls, features: tuple[str, ...], values: NDArray[np.float32], ids: Sequence[str]) -> Rows:
        """Rows of ``ids`` with ``values``, float32 (ids, features), and one for unknown ids."""
        unknown = np.full((1, len(features)), np.nan, np.float32)
        row_of = {name: row for row, name in enumerate(ids)}
        return cls(features, np.vstack([values, unknown]), row_of)

    def places(self, ids: Sequence[str]) -> NDArray[np.int64]:
        """The row of each id, int64 (ids,); -1, the row without values, where it is unknown."""
        return np.array([self.row_of.get(name, -1) for name in ids], dtype=np.int64)


class ServedRows(ABC):
    """Where a model's values of a row come from, at one party."""

    features: tuple[str, ...]
    """The names of the values, in the order of the model's share."""

    @abstractmethod
    async def about(self, ids: Sequence[str], seconds: float) -> Rows:
        """Rows that have those of ``ids`` which the source knows, and perhaps others.

        Raises:
            RowsUnavailable: the source cannot be read, or not within ``seconds``.
        """


class RowsInMemory(ServedRows):
    """All rows of the source, as they were when it was read."""

    def __init__(self, rows: Rows) -> None:
        self.features = rows.features
        self._rows = rows

    async def about(self, ids: Sequence[str], seconds: float) -> Rows:
        return self._rows


@dataclass(frozen=True, slots=True)
class LoadRows:
    """Read ``data`` at ``party``: the columns ``features``, in that order, for model ``model``."""

    label: ClassVar[str] = "LoadRows"
    party: str
    data: DataSection
    features: tuple[str, ...]
    model: str

    def run(self) -> Rows:
        """All rows of the source.

        Raises:
            DataError: naming party, source and column.
        """
        values, row_of = served_columns(self.party, self.data, self.features, self.model)
        return Rows.of(self.features, values, tuple(row_of))
