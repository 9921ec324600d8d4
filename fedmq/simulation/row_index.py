"""Which row of one party's pandas table is which row of another's? Their indexes tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedmq.errors import DataError

__all__ = ["MatchedRows", "by_index"]

_SHOWN = 3  # rows that a message quotes


@dataclass(frozen=True, slots=True)
class MatchedRows:
    """Tables by party, and columns beside the label by name, in one order of rows."""

    tables: Mapping[str, Any]
    beside: Mapping[str, Any]


def by_index(tables: Mapping[str, Any], beside: Mapping[str, Any] | None = None) -> MatchedRows:
    """``tables`` and what stands ``beside`` the first of them, in the first table's order of rows.

    Pandas objects with an index of their own are matched by it. What has none, an array or a frame
    of Polars, is taken in the order in which it is; that of a table next to others only if these
    have none either, or pandas' 0, 1, 2, ...

    Raises:
        DataError: an index lacks rows of another, repeats some in another order, or is missing.
    """
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
    matched = {first: leading}
    matched |= {party: _in_order(party, table, first, leading) for party, table in others}
    return MatchedRows(
        matched, {name: _in_order(name, held, first, leading) for name, held in beside.items()}
    )


def _has_index(table: Any) -> bool:
    return hasattr(table, "iloc") and hasattr(table, "index")


def _is_counted(index: Any) -> bool:
    """Whether ``index`` is pandas' own, which numbers the rows from 0 and says nothing of them."""
    return type(index).__name__ == "RangeIndex" and index.start == 0 and index.step == 1


def _in_order(name: str, table: Any, first: str, leading: Any) -> Any:
    """``table`` in the order of the rows of ``leading``."""
    if not (_has_index(table) and _has_index(leading)):
        return table
    ours, theirs = table.index, leading.index
    if ours.equals(theirs):
        return table
    if _is_counted(ours) and _is_counted(theirs):
        return table  # of other lengths, which is refused in its own words
    for party, index in ((name, ours), (first, theirs)):
        if not index.is_unique:
            again = index[index.duplicated()][0]
            raise DataError(
                f"{party}: row {again!r} of its index is there more than once, so that rows of "
                f"{name} and {first} cannot be matched"
            )
    for party, lacking in ((name, theirs.difference(ours)), (first, ours.difference(theirs))):
        if len(lacking):
            shown = ", ".join(map(repr, lacking[:_SHOWN]))
            other = first if party == name else name
            raise DataError(
                f"{party}: {len(lacking)} rows of {other} are not in its index, such as {shown}"
            )
    return table.loc[theirs]
