"""What a column of words may hold instead, and the keys of a party's file that would say so."""

from __future__ import annotations

import re
from collections.abc import Collection
from datetime import datetime

from fedmq.party.data.number_spelling import NumberSpelling

__all__ = ["likely_meaning"]

_SPELLINGS = (
    NumberSpelling(".", ","),
    NumberSpelling(",", ""),
    NumberSpelling(",", "."),
    NumberSpelling(".", "'"),
    NumberSpelling(".", " "),
)
_FORMS = ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y")
_ISO = re.compile(r"\d{4}-\d\d-\d\d([T ].*)?")


def likely_meaning(name: str, cells: Collection[str]) -> str:
    """Numbers or dates, if all ``cells`` of the column ``name`` spell such; else empty."""
    if not cells:
        return ""
    for spelling in _SPELLINGS:
        marks = spelling.thousands + spelling.decimal.replace(".", "")
        if any(mark in cell for mark in marks for cell in cells) and all(
            map(spelling.reads, cells)
        ):
            return f"its cells look like numbers with {_keys(spelling)}"
    if all(_ISO.fullmatch(cell) and _is_date(cell[:10], "%Y-%m-%d") for cell in cells):
        return f'its cells look like dates: [data.columns.{name}] with kind = "date"'
    for form in _FORMS:
        if all(_is_date(cell, form) for cell in cells):
            return (
                f'its cells look like dates: [data.columns.{name}] with kind = "date" and '
                f'format = "{form}"'
            )
    return ""


def _keys(spelling: NumberSpelling) -> str:
    decimal = [f'decimal = "{spelling.decimal}"'] * (spelling.decimal != ".")
    thousands = [f'thousands = "{spelling.thousands}"'] * bool(spelling.thousands)
    return " and ".join([*decimal, *thousands])


def _is_date(cell: str, form: str) -> bool:
    try:
        datetime.strptime(cell, form)
    except ValueError:
        return False
    return True
