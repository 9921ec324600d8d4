"""Rows that are scored after each tree: among those of the training, or of tables of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import ConfigError, DataError
from fedmq.party.data.data_frame import PartyFeatures, trained_columns
from fedmq.simulation.tables import (
    ACTIVE,
    Join,
    MatchedRows,
    by_index,
    column_of_rows,
    row_mask,
)

__all__ = ["RowSet", "TrainingTables", "joined", "training_tables"]

_ONE_SET = "eval"
_TABLES = ("active", "passive", "label")
_BESIDE = ("label", "weight", "base_margin")


@dataclass(frozen=True, slots=True)
class RowSet:
    """Rows of all parties: ``values`` float32 (rows, features) by party, ``label`` (rows,).

    ``weight``: how often each row counts, ``base_margin`` where it starts; (rows,) or None.
    ``person`` is that of `MatchedRows`: other parties' ``values`` are then those of people.
    """

    values: Mapping[str, NDArray[np.float32]]
    label: NDArray[Any]
    weight: NDArray[np.float64] | None
    base_margin: NDArray[np.float64] | None
    person: NDArray[np.int32] | None = None

    def __len__(self) -> int:
        return len(self.label)


def joined(
    training: RowSet, sets: Mapping[str, RowSet]
) -> tuple[RowSet, dict[str, NDArray[np.bool_]]]:
    """The ``training`` rows and, below them, those of all ``sets``; and the rows of each set.

    The people of a set are others than those of the training, whatever their ids.

    Raises:
        ConfigError: some have a base margin, and others none.
    """
    every = [training, *sets.values()]
    margins = [rows.base_margin for rows in every if rows.base_margin is not None]
    if len(margins) not in (0, len(every)):
        raise ConfigError(
            "base_margin: give one for the rows to learn from and for all rows to score, or none"
        )
    weighted = any(rows.weight is not None for rows in every)
    weights = [np.ones(len(rows)) if rows.weight is None else rows.weight for rows in every]
    whole = RowSet(
        {
            party: np.concatenate([rows.values[party] for rows in every])
            for party in training.values
        },
        np.concatenate([rows.label for rows in every]),
        np.concatenate(weights) if weighted else None,
        np.concatenate(margins) if margins else None,
        _people_of(every),
    )
    number = np.repeat(np.arange(len(every)), [len(rows) for rows in every])
    return whole, {name: number == place for place, name in enumerate(sets, start=1)}


def _people_of(every: Sequence[RowSet]) -> NDArray[np.int32] | None:
    """Whose each row is, of all sets one after the other; None where rows are people."""
    found: list[NDArray[np.int32]] = []
    people = 0
    for rows in every:
        if rows.person is None:
            return None
        found.append(rows.person + np.int32(people))
        people += int(rows.person.max(initial=-1)) + 1
    return np.concatenate(found)


@dataclass(frozen=True, slots=True)
class TrainingTables:
    """Every party's features, the columns ``beside`` the label, and ``evaluation`` as masks."""

    features: Mapping[str, PartyFeatures]
    beside: Mapping[str, Any]
    evaluation: Any


def training_tables(
    features: Mapping[str, PartyFeatures], matched: MatchedRows, evaluation: Any, join: Join
) -> TrainingTables:
    """The ``matched`` rows and, below them, those of evaluation sets with tables of their own.

    ``features`` are those of the matched tables; ``evaluation`` and ``join`` as `simulate` takes
    them. Masks and numbers of rows are those of the active party's table as it was given.

    Raises:
        ConfigError, DataError: a set names no rows, or has tables of other columns.
    """
    if evaluation is None:
        return TrainingTables(features, matched.beside, None)
    rows = len(features[ACTIVE].values)
    if not isinstance(evaluation, Mapping):
        if matched.kept is not None:
            evaluation = row_mask(evaluation, len(matched.kept))[matched.kept]
        return TrainingTables(features, matched.beside, evaluation)
    if evaluation.keys() >= {*_TABLES}:
        evaluation = {_ONE_SET: evaluation}
    apart = {name: given for name, given in evaluation.items() if isinstance(given, Mapping)}
    kept = np.ones(rows, np.bool_) if matched.kept is None else matched.kept
    masks = {
        name: row_mask(given, len(kept))[kept]
        for name, given in evaluation.items()
        if name not in apart
    }
    if not apart:
        return TrainingTables(features, matched.beside, masks)
    if matched.person is not None:
        raise ConfigError(
            'evaluation: with duplicates = "hidden" a set is rows of the same tables: a mask, or '
            "numbers of rows"
        )
    sets = {name: _set_of_tables(name, given, features, join) for name, given in apart.items()}
    values = {party: held.values for party, held in features.items()}
    whole, added = joined(_row_set(values, matched.beside), sets)
    more = np.zeros(len(whole) - rows, np.bool_)
    masks = {name: np.concatenate((mask, more)) for name, mask in masks.items()} | added
    return TrainingTables(
        {party: held._replace(values=whole.values[party]) for party, held in features.items()},
        {"label": whole.label, "weight": whole.weight, "base_margin": whole.base_margin},
        {name: masks[name] for name in evaluation},
    )


def _set_of_tables(
    name: str, given: Mapping[str, Any], features: Mapping[str, PartyFeatures], join: Join
) -> RowSet:
    """The rows of the evaluation set ``name``, with the ``features`` of the training."""
    where = f"evaluation: set {name!r}"
    taken = (*_TABLES, *_BESIDE[1:])
    for key in (*_TABLES, *given):
        if key not in given:
            raise ConfigError(f"{where} lacks {key!r}: it takes {', '.join(taken)}")
        if key not in taken:
            raise ConfigError(f"{where}: {key!r} is not known; it takes {', '.join(taken)}")
    tables = {ACTIVE: given["active"], **given["passive"]}
    for party in {*features} ^ {*tables}:
        lacks = "is missing" if party in features else "is not of the training"
        raise ConfigError(f"{where}: the table of {party} {lacks}")
    try:
        matched = by_index(tables, {key: given.get(key) for key in _BESIDE}, join)
        values = {
            party: trained_columns(table, party, features[party].names)
            for party, table in matched.tables.items()
        }
        return _row_set(values, matched.beside)
    except DataError as error:
        raise DataError(f"{where}: {error}") from None


def _row_set(values: Mapping[str, NDArray[np.float32]], beside: Mapping[str, Any]) -> RowSet:
    label, weight, base_margin = (
        None if beside[name] is None else column_of_rows(beside[name], name, columns)
        for name, columns in zip(_BESIDE, (None, 1, None), strict=True)
    )
    if label is None:
        raise DataError("the label is missing")
    for what, held in {**values, "weight": weight, "base_margin": base_margin}.items():
        if held is not None and len(held) != len(label):
            raise DataError(f"{what} has {len(held)} rows, there are {len(label)} labels")
    return RowSet(values, label, weight, base_margin)
