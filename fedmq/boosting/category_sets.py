"""Which sets of its categories may a column send right?

As XGBoost 3.2 partitions a column (``EnumeratePart`` of ``evaluate_splits.h``): its categories are
put in the order of the weights that they would have alone in the node; sets are the beginnings of
that order, first with missing values on the left, then with missing values on the right.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.candidates import CandidateTable
from fedmq.boosting.fixed_point import FixedPoint
from fedmq.boosting.monotone import UNBOUNDED
from fedmq.boosting.params import TrainParams
from fedmq.boosting.split import node_weights

__all__ = ["CategorySet", "SetScan", "first_named"]


class CategorySet(NamedTuple):
    """A split: the categories of the candidates ``right`` go right, all others of the column left.

    Missing values go left where ``default_left`` says.
    """

    right: NDArray[np.uint32]
    default_left: bool


@dataclass(frozen=True, slots=True, eq=False)
class SetScan:
    """The sets of a column in the order in which XGBoost scans them, ``len(self)`` of them.

    ``candidates`` (n,) are those of its categories, in the order that decides ties; ``order`` puts
    them in the order of their weights. ``left`` int64 (sets, columns): what goes left of each set.
    """

    candidates: NDArray[np.int64]
    order: NDArray[np.intp]
    left: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        candidates: NDArray[np.int64],
        left: NDArray[np.int64],
        total: NDArray[np.int64],
        scale: FixedPoint,
        params: TrainParams,
    ) -> SetScan:
        """Scan a node with the sums ``total`` (2,), of whose candidates ``left`` (C, 2) go left.

        Right of a category's candidate is that category alone.
        """
        alone = total - left[candidates]
        weights = node_weights(scale.to_float(alone), params, UNBOUNDED)
        order = np.argsort(weights, kind="stable")
        steps = min(params.max_cat_threshold, len(candidates)) - 1
        summed = np.cumsum(alone[order], axis=0)
        backward = summed[-1] - summed[::-1][1 : steps + 1]
        return cls(candidates, order, np.concatenate((total - summed[:steps], backward)))

    def __len__(self) -> int:
        return len(self.left)

    def split(self, place: int) -> CategorySet:
        """The set at this place of the scan."""
        steps = len(self) // 2
        forward = place < steps
        count = place + 1 if forward else len(self.candidates) - 1 - (place - steps)
        right = np.sort(self.candidates[self.order[:count]]).astype(np.uint32)
        return CategorySet(right, default_left=forward)


def first_named(
    table: CandidateTable, named: NDArray[np.integer], sets: Sequence[CategorySet]
) -> int | CategorySet:
    """Of candidates ``named`` and of ``sets`` that tie, the one of the first column: XGBoost's."""
    columns = table.columns
    first: dict[int, int | CategorySet] = {
        int(columns[candidate]): int(candidate) for candidate in np.sort(named)[::-1]
    }
    first |= {int(columns[split.right[0]]): split for split in sets}
    return first[min(first)]
