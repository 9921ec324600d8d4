"""A party's own table: its columns, how their values lie, and where a training cuts them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import Cuts
from fedmq.party.configuration.data import DataSection
from fedmq.party.data.table import ReadTable, Table
from fedmq.party.data.validation import Validation, validate_source

__all__ = ["DescribeTable", "Spread"]

_BARS = 24
_MOST_CATEGORIES = 12


@dataclass(frozen=True, slots=True)
class Spread:
    """How the values of one number lie: from ``low`` to ``high`` in bars of equal width.

    ``name``: of the column, or of a part of a date. ``counts``: rows in each bar. ``cuts``: where a
    training cuts it.
    """

    name: str
    low: float
    high: float
    counts: tuple[int, ...]
    cuts: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class DescribeTable:
    """Read ``data`` at the party ``where``; the value is plain data for its owner alone.

    It is what `validate_source` finds, with ``spreads`` of numbers and the largest ``counts`` of
    categories in each column. There are none where a session would refuse the table.
    """

    label: ClassVar[str] = "DescribeTable"
    where: str
    data: DataSection
    max_bin: int

    def run(self) -> dict[str, Any]:
        """Raises DataError where the source cannot be read at all."""
        found = validate_source(self.where, self.data, self.data.label is not None)
        described = asdict(found)
        table = None if found.refused else ReadTable(self.where, self.data).run()
        for column in described["columns"]:
            name = column["name"]
            column["spreads"] = [asdict(spread) for spread in self._spreads(table, name)]
            column["counts"] = _counts(table, name)
        return {**described, "max_bin": self.max_bin, **_features(found)}

    def _spreads(self, table: Table | None, column: str) -> Iterator[Spread]:
        if table is None or column in table.category_columns:
            return
        for place, feature in enumerate(table.features):
            if feature == column or (column not in table.features and _is_part(feature, column)):
                yield self._spread(feature, table.values[:, [place]])

    def _spread(self, name: str, values: NDArray[np.float32]) -> Spread:
        cuts = tuple(map(float, Cuts.of(values, self.max_bin).thresholds[0]))
        present = values[np.isfinite(values)]
        if not len(present):
            return Spread(name, 0.0, 0.0, (), ())
        counts, edges = np.histogram(present.astype(np.float64), _BARS)
        return Spread(name, float(edges[0]), float(edges[-1]), tuple(counts.tolist()), cuts)


def _is_part(feature: str, column: str) -> bool:
    """Whether ``feature`` is a part of the dates in ``column``."""
    return feature.rpartition(".")[0] == column


def _counts(table: Table | None, column: str) -> list[tuple[str, int]]:
    """The largest categories of ``column``, each with its rows."""
    if table is None:
        return []
    features = table.category_columns.get(column, ())
    places = [table.features.index(feature) for feature in features]
    names = [feature.removeprefix(f"{column}=") for feature in features]
    sums = np.nansum(table.values[:, places], axis=0).astype(int).tolist()
    largest = sorted(zip(names, sums, strict=True), key=lambda found: -found[1])
    return largest[:_MOST_CATEGORIES]


def _features(found: Validation) -> dict[str, int]:
    return {"features": sum(column.role == "feature" for column in found.columns)}
