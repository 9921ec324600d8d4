"""Computations that describe a party's table and models from its own files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import ColumnBins, Cuts
from fedmq.boosting.model.share import ActiveShare, PassiveShare
from fedmq.boosting.model.shown_model import (
    differences,
    owned_importance,
    shown,
    split_counts,
    tree_nodes,
)
from fedmq.computation import computation
from fedmq.errors import DataError
from fedmq.party.configuration.data import DataSection
from fedmq.party.data.table import Table, read_table
from fedmq.party.data.validation import Validation, validate_source
from fedmq.party.store.documents import (
    Deployments,
    ModelStore,
    cards,
    read_column_names,
    reports,
    training_records,
)

__all__ = [
    "Spread",
    "compare_models",
    "describe_model",
    "describe_table",
    "describe_tree",
    "list_models",
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


@computation("DescribeTable")
def describe_table(where: str, data: DataSection, max_bin: int) -> dict[str, Any]:
    """Read ``data`` at the party ``where``; the value is plain data for its owner alone.

    The value of `validate_source`, with ``spreads`` of numbers and the largest ``counts`` of
    categories in each column. Both are empty if a session would refuse the table. Raises DataError
    if the source cannot be read at all.
    """
    found = validate_source(where, data, data.label is not None)
    described = asdict(found)
    table = None if found.refused else read_table(where, data)
    for column in described["columns"]:
        name = column["name"]
        column["spreads"] = [asdict(spread) for spread in _spreads(table, name, max_bin, data.bins)]
        column["counts"] = _counts(table, name)
    return {**described, "max_bin": max_bin, **_features(found)}


def _spreads(
    table: Table | None, column: str, max_bin: int, given: Mapping[str, ColumnBins]
) -> Iterator[Spread]:
    if table is None or column in table.category_columns:
        return
    for place, feature in enumerate(table.features):
        if feature == column or (column not in table.features and _is_part(feature, column)):
            yield _spread(feature, table.values[:, [place]], max_bin, given.get(feature))


def _spread(
    name: str, values: NDArray[np.float32], max_bin: int, given: ColumnBins | None
) -> Spread:
    own = {} if given is None else {0: given}
    cuts = tuple(map(float, Cuts.of(values, max_bin, own).thresholds[0]))
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


@computation("ListModels")
def list_models(state: Path, is_active: bool) -> list[dict[str, Any]]:
    """A line of each model with a share in the state folder ``state``, the oldest first.

    Raises DataError if a file is damaged.
    """
    store, names = ModelStore(state), Deployments.read(state)
    lines = []
    for model in store.ids():
        try:
            share = _share(state, is_active, model)
        except DataError:
            if store.path(model).exists():
                raise
            continue  # deleted since the folder was listed
        served = sorted(name for name, now in names.names().items() if now.model == model)
        lines.append({**_line(state, model, share), "names": served})
    return lines


def _line(state: Path, model: str, share: ActiveShare | PassiveShare) -> dict[str, Any]:
    if isinstance(share, PassiveShare):
        return {
            "model": model,
            "made": _written(ModelStore(state).path(model)),
            "records": len(share.lookup_table),
            "departures": list(share.withheld.in_words(share.party)),
            "fallback_of": share.fallback_of,
        }
    record = training_records(state).find(model)
    return {
        "model": model,
        "made": record.ended if record else _written(ModelStore(state).path(model)),
        "engine": record and record.job.engine,
        "rows": record and record.rows,
        "objective": share.params.objective,
        "trees": len(share.used_trees),
        "parties": list(share.parties),
        "metrics": share.metrics,
        "departures": list(share.departures),
        "fallback_of": share.fallback_of,
    }


def _written(path: Path) -> str:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat(timespec="seconds")


@computation("DescribeModel")
def describe_model(state: Path, is_active: bool, model: str) -> dict[str, Any]:
    """The description of ``model`` for the owner of the state folder ``state``, as plain data.

    Beside the output of ``fedmq models show``: the columns by importance, the learning curve, the
    training, and the last report and card. Raises DataError if a file is missing or damaged.
    """
    share = _share(state, is_active, model)
    if isinstance(share, PassiveShare):
        counts = sorted(split_counts(share).items(), key=lambda item: -item[1])
        columns = [
            {"party": share.party, "column": name, "splits": count} for name, count in counts
        ]
        return {**shown(share), "importance": columns}
    names = read_column_names(state, model)
    record = training_records(state).find(model)
    report = reports(state).find(model)
    card = cards(state).find(model)
    return {
        **shown(share, names),
        "importance": _importance(share, state, model),
        "curve": {name: list(values) for name, values in share.history.items()},
        "best_iteration": share.best_iteration,
        "training": None if record is None else record.model_dump(mode="json"),
        "report": report and json.loads(report),
        "card": card and json.loads(card),
    }


def _importance(share: ActiveShare, state: Path, model: str) -> list[dict[str, Any]]:
    names = read_column_names(state, model)
    gains = owned_importance(share, "total_gain", names)
    splits = owned_importance(share, "weight", names)
    return [
        {"party": party, "column": column, "gain": gain, "splits": splits[party, column]}
        for (party, column), gain in sorted(gains.items(), key=lambda item: -item[1])
    ]


@computation("DescribeTree")
def describe_tree(state: Path, model: str, number: int) -> list[dict[str, Any]]:
    """The nodes of tree ``number`` of ``model``, as `tree_nodes` has them.

    They are the active party's alone. Raises DataError if there is no such model or tree.
    """
    return tree_nodes(ModelStore(state).active(model), number)


@computation("CompareModels")
def compare_models(state: Path, is_active: bool, one: str, other: str) -> list[dict[str, Any]]:
    """The values by key that differ between the models ``one`` and ``other``, as far as it may see.

    Raises DataError if either model is missing.
    """
    first, second = (shown(_share(state, is_active, model)) for model in (one, other))
    return [
        {"key": key, "one": value, "other": another}
        for key, value, another in differences(first, second)
    ]
