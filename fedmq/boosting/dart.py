"""Which trees does a round of DART leave out, and what does each tree weigh?

DART (Rashmi and Gilad-Bachrach, arXiv 1505.01866) as in XGBoost's ``gbtree.cc``, draws included: a
round grows from the margins without some trees, and is weighed against them. XGBoost 3.2 draws even
before the first tree, and its column sampler draws once. Parallel trees weigh by their own share of
``eta``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from fedmq.boosting.params import OLDEST, TrainParams

__all__ = ["Dart", "StandardRandom"]


class Dart:
    """The ``weights`` of the trees so far, float32, and which of them the round leaves out.

    Both derive from the parameters and the number of rounds, so a training resumed after a crash
    has the same.
    """

    def __init__(self, params: TrainParams, rounds: int = 0) -> None:
        self.weights: list[np.float32] = []
        self.dropped: tuple[int, ...] = ()
        """Numbers of trees, ascending."""
        self._params = params
        self._is_oldest = params.xgboost_arithmetic == OLDEST
        self._random = StandardRandom(params.seed)
        self._drop()
        for _ in range(rounds):
            self.end_round()

    def end_round(self) -> None:
        """Weigh the trees of the finished round and the dropped ones, and begin the next round."""
        added = self._params.trees_per_round
        rate = np.float32(self._params.eta)
        if self._is_oldest:
            rate = np.float32(rate / added)
        count = len(self.dropped)
        if not count:
            self.weights += [np.float32(1)] * added
        elif self._params.normalize_type == "forest":
            self._weigh(1 / (1 + float(rate)), 1 / (1 + float(rate)))
        else:
            together = float(np.float32(count) + rate)
            self._weigh(count / together, 1 / together)
        if len(self.weights) == added and self._is_oldest:
            self._random.word()  # XGBoost's sampler of columns takes its seed in the first round
        self._drop()

    def _weigh(self, factor: float, weight: float) -> None:
        for tree in self.dropped:
            self.weights[tree] *= np.float32(factor)
        self.weights += [np.float32(weight)] * self._params.trees_per_round

    def _drop(self) -> None:
        params = self._params
        skip, rate = np.float32(params.skip_drop), np.float32(params.rate_drop)
        self.dropped = ()
        if not self.weights and not self._is_oldest:
            return
        if skip > 0 and self._random.uniform() < skip:
            return
        trees = range(len(self.weights))
        if params.sample_type == "weighted":
            total = np.float32(0)
            for weight in self.weights:
                total += weight
            chances = [rate * np.float32(len(trees)) * weight / total for weight in self.weights]
        else:
            chances = [rate] * len(trees)
        self.dropped = tuple(tree for tree in trees if self._random.uniform() < chances[tree])
        if params.one_drop and trees and not self.dropped:
            self.dropped = (self._one(),)

    def _one(self) -> int:
        if self._params.sample_type == "weighted":
            return self._random.weighted(list(map(float, self.weights)))
        return self._random.below(len(self.weights))


_WORD = 1 << 32


class StandardRandom:
    """A ``std::mt19937`` under the lowest 32 bits of ``seed``.

    The random numbers of C++'s standard library, as XGBoost's Linux packages draw them:
    the standard defines ``std::mt19937``, and libstdc++ the distributions.
    """

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

        The result is the product's high word. A low word in the overrepresented part is drawn again
        (Lemire, arXiv 1805.10941).
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
