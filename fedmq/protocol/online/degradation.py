"""What was guessed or unknown, so that a batch of scores does not rest on data alone?"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["Degradation"]


class Degradation:
    """Of ``rows`` rows and their pairs (row * ``trees`` + tree), by index of the owner."""

    def __init__(self, rows: int, trees: int) -> None:
        self._rows = rows
        self._trees = trees
        self._unknown: dict[int, NDArray[np.bool_]] = {}
        self._guessed: dict[int, NDArray[np.bool_]] = {}

    def unknown(self, owner: int, rows: NDArray[np.int64]) -> None:
        """``owner`` does not know ``rows``."""
        if len(rows):
            self._unknown.setdefault(owner, np.zeros(self._rows, np.bool_))[rows] = True

    def guessed(self, owner: int, pairs: NDArray[np.int64]) -> None:
        """Directions of ``pairs`` at ``owner`` were guessed."""
        pairs_in_all = self._rows * self._trees
        self._guessed.setdefault(owner, np.zeros(pairs_in_all, np.bool_))[pairs] = True

    def forget(self, pairs: NDArray[np.int64]) -> None:
        """``pairs`` start over."""
        for guessed in self._guessed.values():
            guessed[pairs] = False

    def of(
        self, start: int, stop: int, parties: Sequence[str]
    ) -> tuple[dict[str, NDArray[np.bool_]], dict[str, float]]:
        """By party: which rows from ``start`` to ``stop`` it lacks; the share of pairs guessed."""
        pairs = slice(start * self._trees, stop * self._trees)
        return (
            {
                parties[owner]: mask[start:stop]
                for owner, mask in self._unknown.items()
                if mask[start:stop].any()
            },
            {
                parties[owner]: float(mask[pairs].mean())
                for owner, mask in self._guessed.items()
                if mask[pairs].any()
            },
        )
