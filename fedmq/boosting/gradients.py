"""The gradients of one tree, as every engine takes them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.fixed_point import FixedPoint
from fedmq.boosting.objective import OBJECTIVES
from fedmq.boosting.params import TrainParams
from fedmq.boosting.sampling import one_side_sample, salt_of, sampled_rows

__all__ = ["Gradients"]


@dataclass(frozen=True, slots=True, eq=False)
class Gradients:
    """Fixed-point g and h of all rows: ``pairs`` int64 (rows, 2), zero for rows without any.

    ``carried`` bool (rows,): training rows that the tree's sample holds. ``params``: the
    training's, for engines whose two halves share the scoring.
    """

    tree: int
    pairs: NDArray[np.int64]
    carried: NDArray[np.bool_]
    scale: FixedPoint
    params: TrainParams

    @classmethod
    def of(
        cls,
        margins: NDArray[np.float32],
        labels: NDArray[np.float32],
        training: NDArray[np.bool_],
        params: TrainParams,
        tree: int,
    ) -> Gradients:
        """Gradients of the objective at ``margins`` (rows,) for the rows that ``tree`` sees."""
        chosen = sampled_rows(len(labels), params.subsample, seed=params.seed, tree=tree)
        carried = training & chosen
        floats = OBJECTIVES[params.objective].gradients(margins[carried], labels[carried])
        if params.goss:
            chosen_rows, weights = one_side_sample(
                floats[:, 0],
                params.top_rate,
                params.other_rate,
                seed=params.seed,
                tree=tree,
                salt=salt_of(labels),
            )
            held = np.flatnonzero(carried)[chosen_rows]
            floats = floats[chosen_rows] * weights[:, np.newaxis]
            carried = np.zeros(len(labels), np.bool_)
            carried[held] = True
        scale = FixedPoint.of(floats)
        pairs = np.zeros((len(labels), 2), dtype=np.int64)
        pairs[carried] = scale.encode(floats)
        return cls(tree, pairs, carried, scale, params)

    def totals(self, rows: NDArray[np.integer]) -> NDArray[np.int64]:
        """The sums of g and h over ``rows``: int64 (2,)."""
        sums: NDArray[np.int64] = self.pairs[rows].sum(axis=0)
        return sums
