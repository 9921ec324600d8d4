"""The random numbers of C++'s standard library, as XGBoost's Linux packages draw them.

``std::mt19937`` is given by the standard; what distributions make of it, by libstdc++.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

__all__ = ["StandardRandom"]

_WORD = 1 << 32


class StandardRandom:
    """A ``std::mt19937`` of this ``seed``, of which it takes the lowest 32 bits."""

    def __init__(self, seed: int) -> None:
        self._engine = np.random.RandomState(seed % _WORD)

    def word(self) -> int:
        """The next 32 bits."""
        return int.from_bytes(self._engine.bytes(4), "little")

    def uniform(self) -> float:
        """``std::uniform_real_distribution<double>(0, 1)``: two words, the low one first."""
        low, high = self.word(), self.word()
        drawn = (float(low) + float(high) * _WORD) / (float(_WORD) * _WORD)
        return min(drawn, float(np.nextafter(1.0, 0.0)))

    def below(self, count: int) -> int:
        """``std::uniform_int_distribution<size_t>(0, count - 1)``, for a ``count`` below 2^32.

        The product's high word, unless its low one falls into the part that would be drawn more
        often than the rest (Lemire, arXiv 1805.10941).
        """
        product = self.word() * count
        while product % _WORD < _WORD % count:
            product = self.word() * count
        return product // _WORD

    def weighted(self, weights: Sequence[float]) -> int:
        """``std::discrete_distribution``: a place, as likely as its weight; float64 (n,)."""
        if len(weights) < 2:
            return 0  # nothing is drawn
        shares = np.array(weights) / float(np.cumsum(np.array(weights, np.float64))[-1])
        ends = np.cumsum(shares)
        ends[-1] = 1.0
        return int(np.searchsorted(ends, self.uniform(), side="left"))
