"""Which splits and leaves does a monotone constraint allow?

A column of sign 1 may only raise the prediction, one of sign -1 only lower it. As XGBoost 3.2 has
it (``TreeEvaluator`` of ``split_evaluator.h``): the weights on both sides of a split of such a
column are in order, and no leaf below one side passes the middle between them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["UNBOUNDED", "MonotoneNode", "WeightBounds"]

_LARGEST = np.finfo(np.float32).max


@dataclass(frozen=True, slots=True)
class WeightBounds:
    """The least and the most that weights below a node may be, before eta."""

    lower: np.float32
    upper: np.float32

    def clipped(self, weights: NDArray[np.float32]) -> NDArray[np.float32]:
        """``weights`` moved to the nearer bound where they pass it."""
        return np.clip(weights, self.lower, self.upper)

    def below(
        self, sign: int, left: NDArray[np.float32], right: NDArray[np.float32]
    ) -> tuple[WeightBounds, WeightBounds]:
        """The bounds of both children of a split with these weights, by a column of ``sign``."""
        middle = np.float32((left + right) / np.float32(2))
        lower, upper = WeightBounds(self.lower, middle), WeightBounds(middle, self.upper)
        return (lower, upper) if sign > 0 else (upper, lower)


UNBOUNDED = WeightBounds(-_LARGEST, _LARGEST)


@dataclass(frozen=True, slots=True, eq=False)
class MonotoneNode:
    """A node whose candidates have ``signs``, int8 (C,): those of their columns.

    ``bounds`` hold below it, ``above`` below its parent.
    """

    signs: NDArray[np.int8]
    bounds: WeightBounds
    above: WeightBounds

    def allows(self, left: NDArray[np.float32], right: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Which candidates, float32 (..., C) on either side, have their weights in order."""
        rises, falls = left <= right, left >= right
        return np.where(self.signs > 0, rises, np.where(self.signs < 0, falls, True))
