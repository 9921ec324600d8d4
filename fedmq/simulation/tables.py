"""The tables of the parties of a simulation.

The active party brings columns, labels, weights and evaluation rows. Where tables are pandas data
frames, their indexes tell which row of one party is which row of another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.gradients import base_margins, row_weights
from fedmq.boosting.objectives.custom import (
    CustomMetric,
    CustomObjective,
    MetricFunction,
    ObjectiveFunction,
)
from fedmq.boosting.objectives.registry import objective_of
from fedmq.boosting.params import TrainParams
from fedmq.errors import ConfigError, DataError
from fedmq.party.data.columns import NumberSpelling
from fedmq.party.data.data_frame import PartyFeatures
from fedmq.protocol.training.terms import ActiveTable

__all__ = [
    "ACTIVE",
    "Join",
    "MatchedRows",
    "active_table",
    "by_index",
    "column_of_rows",
    "has_own_index",
    "row_mask",
    "targets_of",
    "with_queries",
]

ACTIVE = "active"
"""The active party's name in a simulation."""

Join = Literal["same", "inner"]
"""Whether all tables must hold the same rows, or those that all hold are taken."""

_SHOWN = 3  # rows that a message quotes


def active_table(
    own: PartyFeatures,
    params: TrainParams,
    label: Any,
    *,
    weight: Any = None,
    base_margin: Any = None,
    evaluation: Any = None,
    obj: ObjectiveFunction | None = None,
    custom_metric: MetricFunction | None = None,
    maximize: bool | None = None,
    person: NDArray[np.int32] | None = None,
) -> ActiveTable:
    """The table of the ``own`` features and what belongs to its rows, as callers give it.

    ``person`` is that of `MatchedRows`.

    Raises:
        DataError: a column is no array of numbers, or of another length than the labels.
    """
    pairs = _takes_pairs(params)
    objective = objective_of(params)
    columns = 2 if pairs else params.num_target or 1
    labels = objective.labels(column_of_rows(label, "label", columns), ACTIVE)
    rows = len(labels)
    sets = _evaluation_sets(evaluation, rows)
    held_out = np.logical_or.reduce([np.zeros(rows, np.bool_), *sets.values()])
    if rows and held_out.all():
        raise DataError("evaluation: no rows are left to learn from")
    return ActiveTable(
        own.values,
        own.names,
        labels,
        held_out,
        weight=None if weight is None else row_weights(_of_rows(weight, "weight", rows), ACTIVE),
        base_margin=(
            None
            if base_margin is None
            else base_margins(
                _of_rows(base_margin, "base_margin", rows, params.outputs, params.output_kind),
                ACTIVE,
            )
        ),
        objective=None if obj is None else CustomObjective(obj, objective),
        metric=None if custom_metric is None else CustomMetric(custom_metric, maximize),
        evaluation_sets=sets,
        category_columns=own.category_columns,
        person=person,
        bins=own.bins,
    )


def targets_of(params: TrainParams, label: Any) -> int:
    """How many labels a row of ``label``, (rows,) or (rows, targets), has.

    Bounds are one, and so is a label beside its query.
    """
    try:
        shape = np.shape(label)
    except ValueError:  # rows of several lengths, which a later check names
        return 1
    return 1 if len(shape) != 2 or _takes_pairs(params) else shape[1]


def _takes_pairs(params: TrainParams) -> bool:
    """Whether a row's label is two numbers: bounds, or a label and its query."""
    return params.objective == "survival:aft" or params.objective.startswith("rank:")


def with_queries(label: Any, qid: Any) -> Any:
    """``label`` (rows,) beside the query of each row: (rows, 2); ``label`` where there is no query.

    Raises:
        DataError: a column is no array of numbers, or ``qid`` of another length.
    """
    if qid is None:
        return label
    given = column_of_rows(label, "label")
    return np.stack((given, _of_rows(qid, "qid", len(given))), axis=1)


def _of_rows(given: Any, what: str, rows: int, columns: int = 1, kind: str = "label") -> Any:
    values = column_of_rows(given, what, columns)
    if columns > 1 and values.ndim == 1:
        raise DataError(f"{ACTIVE}: {what} needs {columns} columns, one per {kind}")
    if len(values) != rows:
        raise DataError(f"{ACTIVE}: {what} has {len(values)} rows, there are {rows} labels")
    return values


def column_of_rows(given: Any, what: str, columns: int | None = 1) -> Any:
    """``given`` as an array (rows,), or (rows, ``columns``); DataError names ``what``.

    ``columns``: None for any number of them.
    """
    try:
        values = given.to_numpy() if hasattr(given, "to_numpy") else np.asarray(given)
    except ValueError:
        raise DataError(f"{ACTIVE}: the {what} is no array, one value per row is needed") from None
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1 and not (values.ndim == 2 and columns in (None, values.shape[1])):
        wanted = "one value per row is" if columns in (None, 1) else f"{columns} values per row are"
        raise DataError(f"{ACTIVE}: the {what} has shape {values.shape}, {wanted} needed")
    if values.dtype.kind not in "fiub":
        found = f"{ACTIVE}: the {what} holds {values.dtype}, numbers are needed"
        word = values.flat[0] if values.size else None
        if what == "label" and isinstance(word, str) and not NumberSpelling().reads(word):
            found += f": write 1 where it is {str(word)!r}, say, and 0 elsewhere"
        raise DataError(found)
    return values


def _evaluation_sets(given: Any, rows: int) -> Mapping[str, NDArray[np.bool_]]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        mask = row_mask(given, rows)
        return {"eval": mask} if mask.any() else {}
    for name in given:
        if not isinstance(name, str) or not name or name == "train" or "-" in name:
            raise ConfigError(
                f"evaluation: {name!r} cannot be the name of a set; take a word without hyphens "
                "that is not 'train'"
            )
    sets = {name: row_mask(rows_of, rows) for name, rows_of in given.items()}
    empty = next((name for name, mask in sets.items() if not mask.any()), None)
    if empty is not None:
        raise DataError(f"evaluation: set {empty!r} has no rows")
    return sets


def row_mask(evaluation: Any, rows: int) -> NDArray[np.bool_]:
    """A bool mask (rows,) of rows that are given as one, or by their numbers, or DataError."""
    try:
        given = np.asarray(evaluation)
    except ValueError:  # of several lengths, such as (X, y)
        given = np.empty((0, 0))
    mask = np.zeros(rows, dtype=np.bool_)
    if given.dtype == np.bool_ and given.shape == (rows,):
        mask = given.copy()
    elif given.dtype.kind in "iu" and given.ndim == 1 and ((given >= 0) & (given < rows)).all():
        mask[given] = True
    else:
        raise DataError(f"evaluation: a bool mask of {rows} rows, or numbers of rows, is needed")
    return mask


@dataclass(frozen=True, slots=True)
class MatchedRows:
    """Tables by party, and columns beside the label by name, in one order of rows.

    ``kept``: which rows of the first table these are, bool (rows,), where others were left out.
    ``person`` int32 (rows,): where the first table has several rows of one person, which row of the
    other tables each of them belongs to.
    """

    tables: Mapping[str, Any]
    beside: Mapping[str, Any]
    kept: NDArray[np.bool_] | None = None
    person: NDArray[np.int32] | None = None


def by_index(
    tables: Mapping[str, Any], beside: Mapping[str, Any] | None = None, join: Join | None = None
) -> MatchedRows:
    """``tables`` and what stands ``beside`` the first of them, in the first table's order of rows.

    Pandas objects with their own index are matched by it. Arrays and Polars frames have no index:
    they keep their order. A table without an index stands beside other tables only if these have
    none either, or pandas' 0, 1, 2, ... The first index may repeat ids: each of its rows stands
    beside the other tables' one row. With ``join = "inner"`` rows that an index lacks are left out;
    None: the caller has no such choice.

    Raises:
        ConfigError: there is nothing to join by, or no such ``join``.
        DataError: an index lacks rows of another, repeats some beside the first, or is missing.
    """
    if join not in (None, *get_args(Join)):
        known = " or ".join(f'"{name}"' for name in get_args(Join))
        raise ConfigError(f"join = {join!r}: use {known}")
    beside = beside or {}
    (first, leading), *others = tables.items()
    named = [(party, table) for party, table in tables.items() if _has_index(table)]
    if named and len(named) < len(tables):
        own = next((party for party, table in named if not _is_counted(table.index)), None)
        if own is not None:
            without = next(party for party, table in tables.items() if not _has_index(table))
            raise DataError(
                f"{without}: the rows of {own} have an index and those of {without} none; give "
                f"{without} as a pandas table with that index too, or {own} with reset_index()"
            )
    if join == "inner":
        return _inner(tables, beside)
    advice = "" if join is None else '; join="inner" leaves out such rows'
    matched = {first: leading}
    matched |= {party: _in_order(party, table, first, leading, advice) for party, table in others}
    return MatchedRows(
        matched,
        {name: _in_order(name, held, first, leading, advice) for name, held in beside.items()},
    )


def _inner(tables: Mapping[str, Any], beside: Mapping[str, Any]) -> MatchedRows:
    """The rows that every index holds, in the first table's order."""
    (first, leading), *_ = tables.items()
    for party, table in tables.items():
        if not has_own_index(table):
            raise ConfigError(
                f'join = "inner": the rows of {party} have no ids to join by; give a pandas table '
                "with set_index(the column of ids)"
            )
    indexed = {name: held for name, held in {**tables, **beside}.items() if _has_index(held)}
    common = leading.index
    for name, held in indexed.items():
        if not held.index.equals(leading.index):
            _check_unique(held.index, name, name, first)
        shared = common[common.isin(held.index)]
        if not len(shared):
            ids = [repr(index[0]) for index in (common, held.index) if len(index)]
            shown = f", where ids are such as {' and '.join(ids)}" if len(ids) > 1 else ""
            raise DataError(f'join = "inner": {first} and {name} share no row{shown}')
        common = shared
    kept = np.asarray(leading.index.isin(common))

    def taken(name: str, held: Any) -> Any:
        if held is None:
            return None
        if name in indexed:
            return held[kept] if held.index.equals(leading.index) else held.loc[common]
        values = np.asarray(held)
        if len(values) != len(kept):
            raise DataError(f"{first}: {name} has {len(values)} rows, {first} has {len(kept)}")
        return values[kept]

    return MatchedRows(
        {party: taken(party, table) for party, table in tables.items()},
        {name: taken(name, held) for name, held in beside.items()},
        kept,
    )


def _has_index(table: Any) -> bool:
    return hasattr(table, "iloc") and hasattr(table, "index")


def has_own_index(table: Any) -> bool:
    """Whether ``table`` has a pandas index that does more than number its rows."""
    return _has_index(table) and not _is_counted(table.index)


def _is_counted(index: Any) -> bool:
    """Whether ``index`` is pandas' default, which only numbers the rows from 0."""
    return type(index).__name__ == "RangeIndex" and index.start == 0 and index.step == 1


def _check_unique(index: Any, party: str, name: str, first: str) -> None:
    if not index.is_unique:
        again = index[index.duplicated()][0]
        raise DataError(
            f"{party}: row {again!r} of its index is there more than once, so that rows of "
            f"{name} and {first} cannot be matched"
        )


def _in_order(name: str, table: Any, first: str, leading: Any, advice: str) -> Any:
    """``table`` in the order of the rows of ``leading``."""
    if not (_has_index(table) and _has_index(leading)):
        return table
    ours, theirs = table.index, leading.index
    if ours.equals(theirs):
        return table
    if _is_counted(ours) and _is_counted(theirs):
        return table  # the lengths differ, which a later check refuses
    _check_unique(ours, name, name, first)
    for party, lacking in ((name, theirs.difference(ours)), (first, ours.difference(theirs))):
        if len(lacking):
            shown = ", ".join(map(repr, lacking[:_SHOWN]))
            other = first if party == name else name
            raise DataError(
                f"{party}: {len(lacking)} rows of {other} are not in its index, such as {shown}"
                f"{advice}"
            )
    return table.loc[theirs]
