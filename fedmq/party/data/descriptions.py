"""Computations that describe a party's table and models from its own files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import Cuts
from fedmq.boosting.model.share import ActiveShare, PassiveShare
from fedmq.boosting.model.shown_model import (
    differences,
    owned_importance,
    shown,
    split_counts,
    tree_nodes,
)
from fedmq.errors import DataError
from fedmq.party.configuration.data import DataSection
from fedmq.party.data.table import ReadTable, Table
from fedmq.party.data.validation import Validation, validate_source
from fedmq.party.store.documents import (
    ModelStore,
    cards,
    read_column_names,
    reports,
    training_records,
)

__all__ = [
    "CompareModels",
    "DescribeModel",
    "DescribeTable",
    "DescribeTree",
    "ListModels",
    "Spread",
]

_BARS = 24
_MOST_CATEGORIES = 12


@dataclass(frozen=True, slots=True)
class Spread:
    """The histogram of one number: bars of equal width from ``low`` to ``high``.

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

    The value of `validate_source`, with ``spreads`` of numbers and the largest ``counts`` of
    categories in each column. Both are empty if a session would refuse the table.
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


def _share(state: Path, is_active: bool, model: str) -> ActiveShare | PassiveShare:
    store = ModelStore(state)
    return store.active(model) if is_active else store.passive(model)


@dataclass(frozen=True, slots=True)
class ListModels:
    """The models with a share in the state folder ``state``, the oldest first."""

    label: ClassVar[str] = "ListModels"
    state: Path
    is_active: bool

    def run(self) -> list[dict[str, Any]]:
        """A line of each; DataError if a file is damaged."""
        store = ModelStore(self.state)
        lines = []
        for model in store.ids():
            try:
                share = _share(self.state, self.is_active, model)
            except DataError:
                if store.path(model).exists():
                    raise
                continue  # deleted since the folder was listed
            lines.append(self._line(model, share))
        return lines

    def _line(self, model: str, share: ActiveShare | PassiveShare) -> dict[str, Any]:
        if isinstance(share, PassiveShare):
            return {
                "model": model,
                "records": len(share.lookup_table),
                "departures": list(share.withheld.in_words(share.party)),
            }
        return {
            "model": model,
            "objective": share.params.objective,
            "trees": len(share.used_trees),
            "parties": list(share.parties),
            "metrics": share.metrics,
            "departures": list(share.departures),
        }


@dataclass(frozen=True, slots=True)
class DescribeModel:
    """The description of ``model`` for the owner of the state folder ``state``, as plain data.

    Beside the output of ``fedmq models show``: the columns by importance, the learning curve, the
    training, and the last report and card.
    """

    label: ClassVar[str] = "DescribeModel"
    state: Path
    is_active: bool
    model: str

    def run(self) -> dict[str, Any]:
        """The description; DataError if a file is missing or damaged."""
        share = _share(self.state, self.is_active, self.model)
        if isinstance(share, PassiveShare):
            counts = sorted(split_counts(share).items(), key=lambda item: -item[1])
            columns = [
                {"party": share.party, "column": name, "splits": count} for name, count in counts
            ]
            return {**shown(share), "importance": columns}
        names = read_column_names(self.state, self.model)
        record = training_records(self.state).find(self.model)
        report = reports(self.state).find(self.model)
        card = cards(self.state).find(self.model)
        return {
            **shown(share, names),
            "importance": self._importance(share),
            "curve": {name: list(values) for name, values in share.history.items()},
            "best_iteration": share.best_iteration,
            "training": None if record is None else record.model_dump(mode="json"),
            "report": report and json.loads(report),
            "card": card and json.loads(card),
        }

    def _importance(self, share: ActiveShare) -> list[dict[str, Any]]:
        names = read_column_names(self.state, self.model)
        gains = owned_importance(share, "total_gain", names)
        splits = owned_importance(share, "weight", names)
        return [
            {"party": party, "column": column, "gain": gain, "splits": splits[party, column]}
            for (party, column), gain in sorted(gains.items(), key=lambda item: -item[1])
        ]


@dataclass(frozen=True, slots=True)
class DescribeTree:
    """Tree ``number`` of ``model``, as `tree_nodes` has it; the active party's alone."""

    label: ClassVar[str] = "DescribeTree"
    state: Path
    model: str
    number: int

    def run(self) -> list[dict[str, Any]]:
        """The nodes; DataError if there is no such model or tree."""
        return tree_nodes(ModelStore(self.state).active(self.model), self.number)


@dataclass(frozen=True, slots=True)
class CompareModels:
    """The differences of the models ``one`` and ``other`` that this party may see."""

    label: ClassVar[str] = "CompareModels"
    state: Path
    is_active: bool
    one: str
    other: str

    def run(self) -> list[dict[str, Any]]:
        """The values of both models by key; DataError if either model is missing."""
        first, second = (
            shown(_share(self.state, self.is_active, model)) for model in (self.one, self.other)
        )
        return [
            {"key": key, "one": one, "other": other}
            for key, one, other in differences(first, second)
        ]
