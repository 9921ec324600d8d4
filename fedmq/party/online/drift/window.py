"""The people who were scored last, as counts by bin: a window that slides in blocks."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.population_stability import BinnedColumn, stability_index

__all__ = ["DriftWindow"]

_BLOCKS = 20


class DriftWindow:
    """About the last ``rows`` rows, counted in the bins of ``columns``."""

    def __init__(self, columns: Sequence[BinnedColumn], rows: int) -> None:
        self.columns = tuple(columns)
        self._most = rows
        self._blocks: deque[list[NDArray[np.int64]]] = deque([self._empty()])
        self._sizes: deque[int] = deque([0])

    @property
    def rows(self) -> int:
        """How many rows are in the window."""
        return sum(self._sizes)

    def add(self, values: NDArray[np.float32]) -> None:
        """Count ``values``, float32 (rows, columns); the oldest block leaves for a new one."""
        step = max(1, self._most // _BLOCKS)
        while len(values):
            if self._sizes[-1] >= step:
                self._blocks.append(self._empty())
                self._sizes.append(0)
            part, values = np.split(values, [step - self._sizes[-1]])
            for at, column in enumerate(self.columns):
                self._blocks[-1][at] += column.count(part[:, at])
            self._sizes[-1] += len(part)
        while self.rows - self._sizes[0] >= self._most:
            self._blocks.popleft()
            self._sizes.popleft()

    def indices(self) -> dict[str, float]:
        """The population stability index of each column, by its name."""
        return {
            column.name: stability_index(
                column.counts, np.sum([block[at] for block in self._blocks], axis=0)
            )
            for at, column in enumerate(self.columns)
        }

    def saved(self) -> list[Any]:
        """What :meth:`restore` takes, as plain data."""
        return [
            [size, [counts.tolist() for counts in block]]
            for size, block in zip(self._sizes, self._blocks, strict=True)
        ]

    def restore(self, saved: list[Any]) -> None:
        """Go on with what was ``saved``; ValueError where it was counted in other bins."""
        blocks = [[np.array(counts, np.int64) for counts in block] for _, block in saved]
        shapes = [(len(column.counts),) for column in self.columns]
        if any([counts.shape for counts in block] != shapes for block in blocks):
            raise ValueError("other bins")
        self._blocks = deque(blocks or [self._empty()])
        self._sizes = deque([int(size) for size, _ in saved] or [0])

    def _empty(self) -> list[NDArray[np.int64]]:
        return [np.zeros(len(column.counts), np.int64) for column in self.columns]
