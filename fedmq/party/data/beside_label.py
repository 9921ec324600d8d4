"""Columns that are read with the label: upper bounds of times, weights and first margins."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.gradients import base_margins, row_weights
from fedmq.party.configuration.data import BesideLabel, DataSection
from fedmq.party.data.columns import LabelColumn, Where
from fedmq.party.data.number_spelling import NumberSpelling
from fedmq.party.data.sources.source import Cells

__all__ = ["BesideColumn", "BesideColumns", "checked_beside"]

_CHECKS: Mapping[BesideLabel, Callable[[NDArray[np.float64], str], NDArray[np.float32]]] = {
    "weight": row_weights,
    "base_margin": base_margins,
}


def checked_beside(
    role: BesideLabel, values: NDArray[np.float64], where: str
) -> NDArray[np.float32]:
    """``values`` as float32 (rows,), where ``role`` allows them; DataError names ``where``."""
    check = _CHECKS.get(role)
    return values.astype(np.float32) if check is None else check(values, where)


class BesideColumn(LabelColumn):
    """A column of numbers that is read with the label, float64 (rows,)."""

    _remedy = "write it as a number"


class BesideColumns:
    """Those of a table at ``place``, by what they hold; ``names`` are the columns' own."""

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

    def bounded(self, label: NDArray[np.float64]) -> NDArray[np.float64]:
        """``label`` (rows,), or (rows, 2) with upper bounds: inf where there is none yet."""
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
