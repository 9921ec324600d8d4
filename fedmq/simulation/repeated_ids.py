"""How is the active party's table, with several rows of one person, matched by its index?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fedmq.errors import ConfigError, DataError
from fedmq.simulation.tables import Join, MatchedRows, by_index, has_own_index

__all__ = ["by_person", "check_duplicates"]


def check_duplicates(duplicates: str) -> None:
    """Raise ConfigError unless ``duplicates`` says how rows of one person count."""
    if duplicates not in ("each", "hidden"):
        raise ConfigError(f'duplicates = {duplicates!r}: use "each" or "hidden"')


def by_person(tables: Mapping[str, Any], beside: Mapping[str, Any], join: Join) -> MatchedRows:
    """``tables`` and what stands ``beside`` the first of them; its rows keep their order.

    Every other table has one row for each person of the first table's index, in the order in which
    they first appear there; `MatchedRows.person` says whose the first table's rows are.

    Raises:
        ConfigError: a table has no index of ids.
        DataError: as `by_index`, or what stands beside has another index, or another length.
    """
    (first, leading), *others = tables.items()
    for party, table in tables.items():
        if not has_own_index(table):
            raise ConfigError(
                f'duplicates = "hidden": the rows of {party} have no ids to match people by; give '
                "a pandas table with set_index(the column of ids)"
            )
    index = leading.index
    person, _ = index.factorize()
    matched = by_index({first: leading[~index.duplicated()], **dict(others)}, join=join)
    known = np.ones(person.max(initial=-1) + 1, np.bool_) if matched.kept is None else matched.kept
    rows = known[person]
    taken = {}
    for name, held in beside.items():
        if hasattr(held, "index") and not held.index.equals(index):
            raise DataError(
                f"{name}: its index is another than that of {first}; where people have several "
                "rows, both need the same one, row by row"
            )
        values = None if held is None else np.asarray(held)
        if values is None or values.ndim == 0:  # one number for all rows
            taken[name] = values
            continue
        if len(values) != len(rows):
            raise DataError(f"{first}: {name} has {len(values)} rows, {first} has {len(rows)}")
        taken[name] = values[rows]
    return replace(
        matched,
        tables={**matched.tables, first: leading[rows]},
        beside=taken,
        kept=None if matched.kept is None else rows,
        person=(np.cumsum(known) - 1)[person[rows]].astype(np.int32),
    )
