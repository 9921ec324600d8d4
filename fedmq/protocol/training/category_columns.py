"""Which columns of a party hold categories, and which of them are split by sets?"""

from __future__ import annotations

from collections.abc import Mapping

from fedmq.boosting.binning import Cuts
from fedmq.protocol.training.tables import ActiveTable, PassiveTable

__all__ = ["category_places", "columns_by_sets"]


def category_places(table: ActiveTable | PassiveTable) -> Mapping[str, tuple[int, ...]]:
    """By column of categories, where its features stand; ascending."""
    places = {name: place for place, name in enumerate(table.features)}
    columns = {
        column: tuple(sorted(places[name] for name in names if name in places))
        for column, names in table.category_columns.items()
    }
    return {column: held for column, held in columns.items() if held}


def columns_by_sets(table: ActiveTable | PassiveTable, cuts: Cuts) -> dict[str, tuple[int, ...]]:
    """The columns that ``cuts`` of ``table`` split by sets, as a `LookupTable` has them."""
    chosen = {}
    for column, held in category_places(table).items():
        if held in cuts.category_columns:
            occurring = cuts.categories(held)
            chosen[column] = (*occurring, *sorted(set(held) - set(occurring)))
    return chosen
