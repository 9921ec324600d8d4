"""What callers say of the bins of columns, by party and column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fedmq.boosting.binning import ColumnBins
from fedmq.errors import ConfigError
from fedmq.party.configuration.data import column_bins
from fedmq.party.data.data_frame import PartyFeatures
from fedmq.party.data.given_bins import wrong_bins

__all__ = ["joined_places", "with_bins"]


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
