"""Which margins has a round of DART, which leaves trees out?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.dart import Dart
from fedmq.boosting.params import TrainParams
from fedmq.privacy.plan import Plan, single

__all__ = ["DartMargins", "DartRound", "TreeIncrements"]


@dataclass(frozen=True, slots=True, eq=False)
class TreeIncrements:
    """What a tree adds to each row, before it is weighed: ``values[codes]``, float32 (rows,).

    A leaf has one value, so that a code of a byte or two stands for it.
    """

    values: NDArray[np.float32]
    codes: NDArray[np.unsignedinteger]

    @classmethod
    def of(cls, increments: NDArray[np.float32]) -> Self:
        """``increments`` (rows,), packed."""
        values, codes = np.unique(increments, return_inverse=True)
        return cls(values, codes.astype(np.min_scalar_type(len(values))))


@dataclass(frozen=True, slots=True, eq=False)
class DartMargins:
    """The margins with all ``trees``, and those without the ``dropped``; of the shape of ``first``.

    Each tree counts ``weights`` times, and adds to the margin that ``outputs`` name. They are added
    one by one in float32, as XGBoost adds them.
    """

    label: ClassVar[str] = "DartMargins"
    first: NDArray[np.float32]
    trees: tuple[TreeIncrements, ...]
    outputs: tuple[int, ...]
    weights: NDArray[np.float32]
    dropped: tuple[int, ...]

    def run(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        whole = self.first.reshape(len(self.first), -1).copy()
        without = whole.copy()
        for number, (tree, output) in enumerate(zip(self.trees, self.outputs, strict=True)):
            added = (tree.values * self.weights[number])[tree.codes]
            whole[:, output] += added
            if number not in self.dropped:
                without[:, output] += added
        shape = self.first.shape
        return whole.reshape(shape), without.reshape(shape)


class DartRound:
    """The ``margin`` from which the trees of a round grow, and the ``evaluated`` one of all trees.

    Both float32 (rows,), or (rows, classes), like the ``first`` margin; :meth:`refresh` makes them.
    """

    def __init__(self, first: NDArray[np.float32], params: TrainParams) -> None:
        self.margin = self.evaluated = first
        self._first = first
        self._params = params
        self._dart = Dart(params)
        self._trees: list[TreeIncrements] = []
        self._last = np.empty(0, np.float32)
        self._stale = False

    @property
    def tree_weights(self) -> tuple[float, ...]:
        """What each tree weighs."""
        return tuple(map(float, self._dart.weights))

    def add(self, increments: NDArray[np.float32]) -> None:
        """The next tree adds ``increments`` (rows,); after the last one a new round begins."""
        self._last = increments
        self._trees.append(TreeIncrements.of(increments))
        if len(self._trees) % self._params.trees_per_round == 0:
            self._dart.end_round()
            self._stale = True

    def refresh(self) -> Plan[None]:
        """Make the margins of a round that has begun."""
        if not self._stale:
            return
        weights = self._dart.weights
        trees = tuple(self._trees[: len(weights)])
        outputs = tuple(self._params.output_of(tree) for tree in range(len(trees)))
        self.evaluated, self.margin = yield from single(
            DartMargins(self._first, trees, outputs, np.array(weights), self._dart.dropped)
        )
        self._stale = False

    def saved(self) -> NDArray[np.float32]:
        """What a checkpoint keeps: what the last tree adds, float32 (rows,)."""
        return self._last

    def restore(self, saved: Sequence[NDArray[np.float32] | None]) -> bool:
        """Go on from the checkpoints of all trees; whether nothing of them is lost."""
        kept = [increments for increments in saved if increments is not None]
        if len(kept) < len(saved):
            return False
        self._trees = [TreeIncrements.of(increments) for increments in kept]
        self._dart = Dart(self._params, len(kept) // self._params.trees_per_round)
        self._stale = True
        return True
