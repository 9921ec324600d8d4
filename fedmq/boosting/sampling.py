"""Rows and columns of a tree, the same on any machine and after any crash.

They derive from (seed, tree, salt) by Philox's raw 64-bit words, which NumPy keeps stable across
versions and platforms, unlike the distributions of its ``Generator``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

__all__ = ["ColumnSampler", "one_side_sample", "rounding_lots", "salt_of", "sampled_rows"]


class _Purpose(IntEnum):
    ROWS = 0
    COLUMNS = 1
    ONE_SIDE = 2
    ROUNDING = 3
    LEVEL_COLUMNS = 4
    NODE_COLUMNS = 5


def salt_of(*held: NDArray[np.generic]) -> int:
    """A secret of 128 bits that derives from arrays of its owner.

    All parties know a training's seed. A draw that uses the salt as well tells other parties
    nothing of labels or columns.
    """
    digest = blake2b(digest_size=16)
    for array in held:
        digest.update(np.ascontiguousarray(array).tobytes())
    return int.from_bytes(digest.digest(), "little")


def sampled_rows(n_rows: int, subsample: float, *, seed: int, tree: int) -> NDArray[np.bool_]:
    """Rows that carry gradients in ``tree``, each with probability ``subsample``; bool."""
    if subsample >= 1:
        return np.ones(n_rows, np.bool_)
    words = _words(n_rows, _Purpose.ROWS, seed, tree, 0)
    return words < np.uint64(math.ldexp(subsample, 64))


@dataclass(frozen=True, slots=True)
class ColumnSampler:
    """The columns that ``tree`` may use: XGBoost's sampler with other random numbers.

    From ``columns`` of them a tree takes the share ``bytree``, each of its levels the share
    ``bylevel`` of those, each node the share ``bynode`` of its level's; at least one.
    ``salt`` is a secret of the columns' owner: others know ``seed``.
    """

    columns: int
    bytree: float
    bylevel: float
    bynode: float
    seed: int
    tree: int
    salt: int = 0

    @property
    def narrows(self) -> bool:
        """Whether a node may have fewer columns than its tree."""
        return self.bylevel < 1 or self.bynode < 1

    def of_tree(self) -> NDArray[np.int32]:
        """The columns of the tree, ascending."""
        return self._drawn(np.arange(self.columns, dtype=np.int32), self.bytree, _Purpose.COLUMNS)

    def of_node(self, node: int, level: int) -> NDArray[np.int32]:
        """The columns of a node, by its heap number, on this level; ascending."""
        of_level = self._drawn(self.of_tree(), self.bylevel, _Purpose.LEVEL_COLUMNS, level)
        return self._drawn(of_level, self.bynode, _Purpose.NODE_COLUMNS, node)

    def _drawn(
        self, columns: NDArray[np.int32], share: float, purpose: _Purpose, *place: int
    ) -> NDArray[np.int32]:
        if share >= 1:
            return columns
        count = max(1, int(np.float32(share) * np.float32(len(columns))))  # as in XGBoost
        words = _words(len(columns), purpose, self.seed, self.tree, self.salt, *place)
        return columns[np.sort(np.argsort(words, kind="stable")[:count])]


def one_side_sample(
    g: NDArray[np.float32],
    top_rate: float,
    other_rate: float,
    *,
    seed: int,
    tree: int,
    salt: int = 0,
) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
    """Rows that a tree grows from, ascending, and the weight of each (float32, same length).

    Gradient-based one-side sampling (Ke et al., "LightGBM", NIPS 2017, Algorithm 2): the
    ``top_rate`` of the rows with the largest |g| have weight 1, ``other_rate`` of the rows, drawn
    from the rest, stand for all the rest: together they weigh as much. Equal gradients are put in
    order by lot, not by row. ``seed`` and ``salt`` together reveal which rows were not drawn by
    lot, and so which have large gradients.
    """
    rows = len(g)
    lots = _words(rows, _Purpose.ONE_SIDE, seed, tree, salt)
    top = math.ceil(top_rate * rows)
    other = min(max(1, math.ceil(other_rate * rows)), rows - top)
    by_size = np.lexsort((lots, -np.abs(g)))
    rest = by_size[top:]
    drawn = rest[np.argsort(lots[rest], kind="stable")[:other]]
    weights = np.zeros(rows, np.float32)
    weights[by_size[:top]] = 1
    if other:
        weights[drawn] = np.float32(len(rest) / other)
    chosen = np.flatnonzero(weights)
    return chosen, weights[chosen]


def rounding_lots(
    n_rows: int, columns: int = 2, *, seed: int, tree: int, salt: int
) -> NDArray[np.float64]:
    """Lots in [0, 1) by which ``tree`` rounds each row's g and h: float64 (rows, columns).

    ``salt`` is a secret of the labels' owner: the lots narrow down the unrounded gradient.
    """
    words = _words(columns * n_rows, _Purpose.ROUNDING, seed, tree, salt)
    return np.ldexp((words >> np.uint64(11)).astype(np.float64), -53).reshape(-1, columns)


def _words(
    n: int, purpose: _Purpose, seed: int, tree: int, salt: int, *place: int
) -> NDArray[np.uint64]:
    sequence = np.random.SeedSequence(seed, spawn_key=(purpose, tree, salt, *place))
    return np.random.Philox(sequence).random_raw(n)
