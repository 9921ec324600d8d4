"""Which of a party's columns are cut as ``bins`` of its ``[data]``, or a caller, says."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from fedmq.boosting.binning import ColumnBins
from fedmq.errors import ConfigError, DataError
from fedmq.party.configuration.data import DataSection, column_bins
from fedmq.party.data.data_frame import PartyFeatures
from fedmq.party.data.table import Table

__all__ = ["checked_bins", "joined_places", "kept_bins", "with_bins", "wrong_bins"]

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


# As callers of Python give them


def with_bins(
    tables: Mapping[str, PartyFeatures], given: Mapping[str, Mapping[str, Any]] | None
) -> dict[str, PartyFeatures]:
    """``tables`` with the bins that are ``given`` by party and feature, as ``[data]`` has them.

    Raises:
        ConfigError: a party or a column is not among ``tables``, or cuts are wrong.
    """
    if given is None:
        return dict(tables)
    if not isinstance(given, Mapping):
        raise ConfigError('column_bins: write {"PARTY": {"COLUMN": [1000, 2000]}}')
    unknown = next((party for party in given if party not in tables), None)
    if unknown is not None:
        raise ConfigError(
            f"column_bins: {unknown!r} is no party here; there are {', '.join(tables)}"
        )
    return {
        party: table._replace(bins=_of_party(party, table, given.get(party, {})))
        for party, table in tables.items()
    }


def joined_places(
    columns: Mapping[str, Sequence[str]], given: Mapping[str, Mapping[str, Any]] | None
) -> dict[int, ColumnBins]:
    """The bins of the joined ``columns``, by their places, as ``given`` to `with_bins`."""
    joined = [(party, name) for party, names in columns.items() for name in names]
    return {
        place: _bins(given[party][name])
        for place, (party, name) in enumerate(joined)
        if given is not None and name in given.get(party, {})
    }


def _bins(given: Any) -> ColumnBins:
    return column_bins(given.tolist() if hasattr(given, "tolist") else given)


def _of_party(party: str, table: PartyFeatures, given: Any) -> dict[str, ColumnBins]:
    if not isinstance(given, Mapping):
        raise ConfigError(f'column_bins: {party}: write {{"COLUMN": [1000, 2000]}}')
    found = {}
    for name, bins in given.items():
        try:
            found[name] = _bins(bins)
        except ValueError as error:
            raise ConfigError(f"column_bins: {party}, column {name!r}: {error}") from None
    categories = {name for names in table.category_columns.values() for name in names}
    numbers = [name for name in table.names if name not in categories]
    for problem in wrong_bins(f"column_bins: {party}", found, numbers, table.category_columns):
        raise ConfigError(problem)
    return found
