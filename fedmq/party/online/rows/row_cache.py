"""Rows that were looked up, for as long as they count as fresh."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

__all__ = ["Known", "RowCache"]

Known = Mapping[str, NDArray[np.float32] | None]
"""By id, the values of its row; None where there is no such row."""


class RowCache:
    """At most ``entries`` ids, each for ``max_age`` seconds of ``clock``; the oldest go first."""

    def __init__(self, entries: int, max_age: float, clock: Callable[[], float]) -> None:
        self._most_entries = entries
        self._max_age = max_age
        self._clock = clock
        self._entries: dict[str, tuple[float, NDArray[np.float32] | None]] = {}
        """By id, in the order in which they came: when its row was looked up, and its values."""

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, ids: Iterable[str]) -> Known:
        """Those of ``ids`` that are here and fresh."""
        oldest = self._clock() - self._max_age
        found = {}
        for name in ids:
            entry = self._entries.get(name)
            if entry is not None and entry[0] > oldest:
                found[name] = entry[1]
        return found

    def put(self, known: Known) -> None:
        """Keep ``known`` from now on."""
        now = self._clock()
        for name, values in known.items():
            self._entries.pop(name, None)  # so that it goes to the end
            self._entries[name] = now, values
        while len(self._entries) > self._most_entries:
            del self._entries[next(iter(self._entries))]
