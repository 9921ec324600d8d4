"""What the label holder of a simulation brings: columns, labels, weights, evaluation rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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
from fedmq.party.data.data_frame import PartyFeatures
from fedmq.protocol.training.tables import ActiveTable

__all__ = ["ACTIVE", "SEVERAL_TARGETS", "active_table"]

ACTIVE = "active"
"""The label holder's name in a simulation."""

SEVERAL_TARGETS = "XGBoost has models of several targets, fedmq does not yet"


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
) -> ActiveTable:
    """The table of the ``own`` features and what belongs to its rows, as callers give it.

    Raises:
        DataError: a column is no array of numbers, or of another length than the labels.
    """
    bounds = params.objective == "survival:aft"
    objective = objective_of(params)
    labels = objective.labels(_column(label, "label", 2 if bounds else 1), ACTIVE)
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
            else base_margins(_of_rows(base_margin, "base_margin", rows, params.outputs), ACTIVE)
        ),
        objective=None if obj is None else CustomObjective(obj, objective),
        metric=None if custom_metric is None else CustomMetric(custom_metric, maximize),
        evaluation_sets=sets,
        category_columns=own.category_columns,
    )


def _of_rows(given: Any, what: str, rows: int, columns: int = 1) -> Any:
    values = _column(given, what, columns)
    if columns > 1 and values.ndim == 1:
        raise DataError(f"{ACTIVE}: {what} needs {columns} columns, one per class")
    if len(values) != rows:
        raise DataError(f"{ACTIVE}: {what} has {len(values)} rows, there are {rows} labels")
    return values


def _column(given: Any, what: str, most_columns: int = 1) -> Any:
    try:
        values = given.to_numpy() if hasattr(given, "to_numpy") else np.asarray(given)
    except ValueError:
        raise DataError(f"{ACTIVE}: the {what} is no array, one value per row is needed") from None
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1 and not (values.ndim == 2 and values.shape[1] == most_columns):
        targets = f"; {SEVERAL_TARGETS}" if what == "label" and values.ndim == 2 else ""
        raise DataError(
            f"{ACTIVE}: the {what} has shape {values.shape}, one value per row is needed{targets}"
        )
    if values.dtype.kind not in "fiub":
        raise DataError(f"{ACTIVE}: the {what} holds {values.dtype}, numbers are needed")
    return values


def _evaluation_sets(given: Any, rows: int) -> Mapping[str, NDArray[np.bool_]]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        mask = _mask(given, rows)
        return {"eval": mask} if mask.any() else {}
    for name in given:
        if not isinstance(name, str) or not name or name == "train" or "-" in name:
            raise ConfigError(
                f"evaluation: {name!r} cannot be the name of a set; take a word without hyphens "
                "that is not 'train'"
            )
    sets = {name: _mask(rows_of, rows) for name, rows_of in given.items()}
    empty = next((name for name, mask in sets.items() if not mask.any()), None)
    if empty is not None:
        raise DataError(f"evaluation: set {empty!r} has no rows")
    return sets


def _mask(evaluation: Any, rows: int) -> NDArray[np.bool_]:
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
