"""Monotone constraints as XGBoost takes them: a sign for each column of the joined table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedmq.boosting.params import TrainParams
from fedmq.errors import ConfigError
from fedmq.party.data.data_frame import PartyFeatures
from fedmq.simulation.tables import ACTIVE

__all__ = ["by_name", "columns_of", "in_order", "parsed", "with_signs"]

_NAME = "monotone_constraints"


def parsed(params: TrainParams | Mapping[str, Any] | None) -> tuple[TrainParams, list[Any] | None]:
    """``params``, and their signs where these have no names of columns; else None.

    Raises:
        ConfigError: a parameter is unknown or wrong.
    """
    if isinstance(params, TrainParams):
        return params, None
    given = dict(params or {})
    signs = in_order(given.get(_NAME))
    if signs is not None:
        del given[_NAME]
    return TrainParams.parse(given, "params"), signs


def in_order(given: Any) -> list[Any] | None:
    """The signs of a tuple, a list, an array or a text such as "(1,0,-1)"; None of aught else.

    Raises:
        ConfigError: it is another text.
    """
    if isinstance(given, str):
        try:
            return [int(sign) for sign in given.strip(" ()[]").split(",")]
        except ValueError:
            raise ConfigError(
                f"{_NAME} = {given!r}: a sign for each column is needed, such as '(1,0,-1)'"
            ) from None
    if isinstance(given, np.ndarray):
        given = given.tolist()
    return list(given) if isinstance(given, Sequence) else None


def by_name(signs: Sequence[Any], names: Sequence[str]) -> dict[str, Any]:
    """The ``signs`` that say something, by the column of each.

    Raises:
        ConfigError: there are more or fewer columns than signs.
    """
    if len(signs) != len(names):
        raise ConfigError(
            f"{_NAME}: {len(signs)} signs for {len(names)} columns, {', '.join(names)}"
        )
    return {name: sign for name, sign in zip(names, signs, strict=True) if sign != 0}


def columns_of(
    features: Mapping[str, Sequence[str]],
    category_columns: Mapping[str, Mapping[str, Sequence[str]]],
) -> list[str]:
    """A training's names of all columns, of which those of categories have several features.

    Both by party: the ``features``, and the ``category_columns`` with the features of each.
    """
    names: list[str] = []
    for party, own in features.items():
        categories = category_columns[party].items()
        column_of = {feature: column for column, several in categories for feature in several}
        columns = dict.fromkeys(column_of.get(feature, feature) for feature in own)
        names += columns if party == ACTIVE else [f"{party}.{column}" for column in columns]
    return names


def with_signs(
    params: TrainParams, signs: Sequence[Any] | None, tables: Mapping[str, PartyFeatures]
) -> TrainParams:
    """``params`` with the ``signs`` of the columns of ``tables``, in order; None: as they are.

    Raises:
        ConfigError: there are more or fewer columns, or one has no such sign.
    """
    if signs is None:
        return params
    features = {party: table.names for party, table in tables.items()}
    categories = {party: table.category_columns for party, table in tables.items()}
    named = by_name(signs, columns_of(features, categories))
    return TrainParams.parse({**params.model_dump(exclude_unset=True), _NAME: named}, "params")
