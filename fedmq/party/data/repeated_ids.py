"""How are several rows of one person told apart? By a number behind the id.

With ``duplicates = "each"`` at the active party the second row of P1 is named P1#2. Other parties
hear of P1 alone, and of how many rows it has; with ``"hidden"`` of P1 alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import DataError
from fedmq.party.configuration.data import DataSection

__all__ = [
    "SEPARATOR",
    "has_several",
    "numbered",
    "people_of",
    "refuse_several",
    "row_names",
    "rows_of_each",
    "rows_of_people",
]

SEPARATOR = "#"


def row_names(people: Iterable[str]) -> list[str]:
    """The names of rows whose ``people`` stand side by side."""
    return [
        person if number == 1 else f"{person}{SEPARATOR}{number}"
        for person, rows in groupby(people)
        for number, _ in enumerate(rows, start=1)
    ]


def people_of(data: DataSection, names: Sequence[str]) -> tuple[str, ...]:
    """The people whose rows have these ``names`` in ``data``."""
    if not data.counts_each:
        return tuple(names)
    return tuple(name.partition(SEPARATOR)[0] for name in names)


def rows_of_people(
    data: DataSection, names: Sequence[str]
) -> tuple[list[str], NDArray[np.uint32] | None]:
    """Each person once, in the order of ``names``, and the rows of each that others hear of.

    None: they hear of one each.
    """
    people = people_of(data, names)
    counts = [(person, sum(1 for _ in rows)) for person, rows in groupby(people)]
    rows = np.array([count for _, count in counts], np.uint32)
    told = data.duplicates == "each" and bool((rows > 1).any())
    return [person for person, _ in counts], rows if told else None


def rows_of_each(held: Iterable[str], people: Sequence[str]) -> list[str]:
    """All rows of ``people`` among those that are ``held``, person by person."""
    names: dict[str, list[str]] = {}
    for name in held:
        names.setdefault(name.partition(SEPARATOR)[0], []).append(name)
    return [name for person in people for name in names.get(person, [person])]


def numbered(people: Sequence[str]) -> NDArray[np.int32]:
    """The number of each row's person, in the order in which ``people`` come first: (rows,)."""
    places = {person: place for place, person in enumerate(dict.fromkeys(people))}
    return np.array([places[person] for person in people], np.int32)


def has_several(people: Sequence[str]) -> bool:
    """Whether somebody has several of these rows."""
    return len(set(people)) < len(people)


def refuse_several(party: str, data: DataSection) -> None:
    """Raise DataError if ``data`` has several rows of a person, and ``party`` is a passive one."""
    if data.counts_each:
        raise DataError(
            f'{party}: duplicates = "{data.duplicates}" is for the active party, which has the '
            'labels; say which row counts: duplicates = "first" or "last"'
        )
