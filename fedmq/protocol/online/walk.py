"""Where does each pair of row and tree stand, and who moves it on?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.served_forest import ServedForest
from fedmq.boosting.model.tree import LEAF
from fedmq.protocol.online.computations import Descend, Descended

__all__ = ["Walk"]

_ARRIVED = 0
_GATHERING = -1
_COLLECTED = -2


class Walk:
    """The pairs (row * trees + tree) of a batch of ``rows`` rows, each at a node of its tree.

    A pair is held by a descent or a question, known by their numbers. What comes late finds the
    pair held by another one, and leaves it alone.
    """

    def __init__(self, served: ServedForest, rows: int) -> None:
        self.nodes = np.tile(served.forest.roots, rows)
        """The node of each pair: int32 (pairs,)."""
        self._served = served
        self._holder = np.full(len(self.nodes), _GATHERING, dtype=np.int64)

    @property
    def unmoved(self) -> NDArray[np.int64]:
        """The pairs that have not set out."""
        return np.flatnonzero(self._holder == _GATHERING)

    @property
    def collected(self) -> tuple[NDArray[np.int64], NDArray[np.int16]]:
        """The pairs that stand at records of other owners who were not asked yet; the owners."""
        pairs = np.flatnonzero(self._holder == _COLLECTED)
        return pairs, self._served.forest.owner[self.nodes[pairs]]

    def hold(self, pairs: NDArray[np.int64], number: int) -> None:
        """From now on ``pairs`` are held by the descent or question ``number``."""
        self._holder[pairs] = number

    def held(self, pairs: NDArray[np.int64], number: int) -> NDArray[np.int64]:
        """Those of ``pairs`` that ``number`` holds."""
        held: NDArray[np.int64] = pairs[self._holder[pairs] == number]
        return held

    def descent(
        self,
        number: int,
        pairs: NDArray[np.int64],
        values: NDArray[np.float32],
        bitmaps: Mapping[int, NDArray[np.bool_]],
        away: frozenset[int],
    ) -> Descend:
        """The descent ``number`` of ``pairs``, as far as directions are at hand."""
        self.hold(pairs, number)
        return Descend(self._served, values, bitmaps, away, pairs, self.nodes[pairs])

    def descended(
        self, number: int, done: Descended
    ) -> tuple[NDArray[np.int64], Mapping[int, NDArray[np.int64]]]:
        """Take the end of a descent: the pairs that arrived, and the pairs guessed by owner."""
        mine = self._holder[done.pairs] == number
        pairs, nodes = done.pairs[mine], done.nodes[mine]
        guessed = {owner: self.held(pairs_of, number) for owner, pairs_of in done.guessed.items()}
        self.nodes[pairs] = nodes
        arrived = pairs[self._served.forest.owner[nodes] == LEAF]
        self._holder[pairs] = _COLLECTED
        self._holder[arrived] = _ARRIVED
        return arrived, guessed

    def moved(
        self, number: int, pairs: NDArray[np.int64], nodes: NDArray[np.int32]
    ) -> NDArray[np.int64]:
        """Take the answer to question ``number``: ``pairs`` go on at ``nodes``; those it moved."""
        mine = self._holder[pairs] == number
        moved: NDArray[np.int64] = pairs[mine]
        self.nodes[moved] = nodes[mine]
        return moved

    def leaves(self, start: int, stop: int) -> NDArray[np.int32] | None:
        """Where the rows from ``start`` to ``stop`` ended (rows, trees); None while some walk."""
        trees = self._served.trees
        pairs = slice(start * trees, stop * trees)
        if not (self._holder[pairs] == _ARRIVED).all():
            return None
        return self.nodes[pairs].reshape(-1, trees)

    def walking(self, start: int, stop: int) -> NDArray[np.int64]:
        """The pairs of the rows from ``start`` to ``stop`` that have not arrived."""
        trees = self._served.trees
        pairs = np.arange(start * trees, stop * trees)
        walking: NDArray[np.int64] = pairs[self._holder[pairs] != _ARRIVED]
        return walking

    def restart(self, rows: Sequence[int]) -> NDArray[np.int64]:
        """Take ``rows`` back to the roots; their pairs."""
        trees = self._served.trees
        pairs = (np.array(rows, np.int64)[:, None] * trees + np.arange(trees)).ravel()
        self.nodes[pairs] = np.tile(self._served.forest.roots, len(rows))
        return pairs
