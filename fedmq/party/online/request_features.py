"""What values has a row whose features come with the request?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import DataError

__all__ = ["RequestRow", "features_of_request"]

RequestRow = Mapping[str, float | str | None]
"""A number by feature, or the category by column; None is missing."""


def features_of_request(
    party: str, features: Sequence[str], rows: Sequence[RequestRow]
) -> NDArray[np.float32]:
    """The values of ``features`` by row, float32 (rows, features); NaN for an omitted feature.

    A category column COLUMN comes as its text, ``{COLUMN: CATEGORY}``, or as the features made
    from it, ``{COLUMN=CATEGORY: 1}``. A category that the training did not see matches none.

    Raises:
        DataError: a name is none of ``party``'s, or a value is no finite float32; the message names
            row and feature.
    """
    places = {name: place for place, name in enumerate(features)}
    categories = _categories(features)
    values = np.full((len(rows), len(places)), np.nan, np.float64)
    for number, row in enumerate(rows):
        for name, value in row.items():
            where = f"features.{number}.{name}"
            if name in places:
                values[number, places[name]] = _number(value, where)
            elif name not in categories:
                raise DataError(f"{where}: the model has no such feature of {party}")
            elif value is not None:
                values[number, list(categories[name].values())] = 0
                place = categories[name].get(_text(value))
                if place is not None:
                    values[number, place] = 1
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32)
    if np.isinf(narrow).any():
        number, column = np.argwhere(np.isinf(narrow))[0].tolist()
        what = "infinite" if np.isinf(values[number, column]) else "beyond float32"
        raise DataError(f"features.{number}.{features[column]}: {what}")
    return narrow


def _categories(features: Sequence[str]) -> Mapping[str, Mapping[str, int]]:
    """By column: the place of each of its categories among ``features``, named COLUMN=CATEGORY.

    If a name has several ``=``, any of them may separate column and category.
    """
    found: dict[str, dict[str, int]] = {}
    for place, name in enumerate(features):
        for at, letter in enumerate(name):
            if letter == "=":
                found.setdefault(name[:at], {})[name[at + 1 :]] = place
    return found


def _number(value: float | str | None, where: str) -> float:
    if isinstance(value, str):
        raise DataError(f"{where}: string is no number: {value[:40]!r}")
    return np.nan if value is None else value


def _text(value: float | str) -> str:
    """Write a category as tables do: whole numbers without a decimal point."""
    if isinstance(value, str):
        return value.strip()
    return str(int(value)) if float(value).is_integer() else str(value)
