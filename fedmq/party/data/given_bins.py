"""Which of a party's columns are cut as ``bins`` of its ``[data]`` says."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping

from fedmq.boosting.binning import ColumnBins
from fedmq.errors import DataError
from fedmq.party.configuration.data import DataSection
from fedmq.party.data.table import Table

__all__ = ["checked_bins", "kept_bins", "wrong_bins"]

_SHOWN = 8


def checked_bins(where: str, data: DataSection, table: Table) -> Mapping[str, ColumnBins]:
    """``data.bins``, by feature of the whole ``table`` of the party ``where``.

    Raises:
        DataError: one of them is no column of numbers.
    """
    of_categories = {name for names in table.category_columns.values() for name in names}
    numbers = [name for name in table.features if name not in of_categories]
    for problem in wrong_bins(
        f"{where}: {data.place}: data.bins", data.bins, numbers, table.category_columns
    ):
        raise DataError(problem)
    return data.bins


def wrong_bins(
    where: str,
    bins: Mapping[str, ColumnBins],
    numbers: Collection[str],
    categories: Collection[str],
) -> Iterator[str]:
    """A line for each of the ``bins`` that belong to none of the ``numbers``.

    ``numbers``: features; ``categories``: columns.
    """
    for name in bins:
        if name in categories:
            yield (
                f"{where}: column {name!r} holds categories, which no cut parts; take "
                'it out of bins, or declare it a "number" under types'
            )
        elif name not in numbers:
            near = difflib.get_close_matches(name, list(numbers), n=1)
            guess = f"; did you mean {near[0]!r}?" if near else ""
            parts = [feature for feature in numbers if feature.startswith(f"{name}.")]
            some = ", ".join(map(repr, parts or list(numbers)[:_SHOWN])) or "none"
            what = "is a date, whose numbers are" if parts else "is none of the columns of numbers,"
            yield f"{where}: {name!r} {what} {some}{guess * (not parts)}"


def kept_bins(bins: Mapping[str, ColumnBins], features: Collection[str]) -> dict[str, ColumnBins]:
    """The ``bins`` of these ``features``."""
    return {name: given for name, given in bins.items() if name in features}
