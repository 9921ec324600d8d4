"""What was looked up, for as long as it may count as true."""

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
        self._entries = entries
        self._max_age = max_age
        self._clock = clock
        self._kept: dict[str, tuple[float, NDArray[np.float32] | None]] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, ids: Iterable[str]) -> Known:
        """Those of ``ids`` that are known here."""
        oldest = self._clock() - self._max_age
        found = {}
        for each in ids:
            entry = self._kept.get(each)
            if entry is not None and entry[0] > oldest:
                found[each] = entry[1]
        return found

    def put(self, known: Known) -> None:
        """Keep ``known`` from now on."""
        now = self._clock()
        for each, values in known.items():
            self._kept.pop(each, None)  # what is new goes to the end
            self._kept[each] = now, values
        while len(self._kept) > self._entries:
            del self._kept[next(iter(self._kept))]
