"""The gradients of one tree, as every engine takes them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.fixed_point import RESOLUTION_BITS, FixedPoint
from fedmq.boosting.objectives.objective import Objective
from fedmq.boosting.objectives.registry import objective_of
from fedmq.boosting.params import TrainParams
from fedmq.boosting.sampling import one_side_sample, rounding_lots, salt_of, sampled_rows

__all__ = ["Gradients", "most_value_bits"]


def most_value_bits(params: TrainParams) -> int:
    """The most ``value_bits`` that the fixed point of any of the training's trees has."""
    return RESOLUTION_BITS if params.gradient_bits is None else params.gradient_bits - 1


@dataclass(frozen=True, slots=True, eq=False)
class Gradients:
    """Fixed-point g and h of all rows: ``pairs`` int64 (rows, 2), zero for rows without any.

    Of a tree of vector leaves ``pairs`` are (rows, 2 * outputs): g and h of the first output, of
    the second, and so on; so are all sums made of them.

    ``carried`` bool (rows,): training rows that the tree's sample holds, and whose weight is not 0.
    ``params``: the training's, for engines whose two halves share the scoring.

    With ``gradient_bits`` the pairs are rounded to so few bits; ``unrounded`` and
    ``unrounded_scale`` are then the gradients as they were, for leaves.
    """

    tree: int
    pairs: NDArray[np.int64]
    carried: NDArray[np.bool_]
    scale: FixedPoint
    params: TrainParams
    unrounded: NDArray[np.int64] | None = None
    unrounded_scale: FixedPoint | None = None

    @classmethod
    def of(
        cls,
        margins: NDArray[np.float32],
        labels: NDArray[np.float32],
        training: NDArray[np.bool_],
        params: TrainParams,
        tree: int,
        weight: NDArray[np.float32] | None = None,
        objective: Objective | None = None,
    ) -> Gradients:
        """Gradients of the objective at ``margins`` (rows,) for the rows that ``tree`` sees.

        Of several classes, at ``margins`` (rows, classes), those of the class of ``tree``, or of
        all that its leaves have numbers for.
        ``weight`` (rows,) says how often each row counts; None where all count once.
        ``objective``: in place of the one that ``params`` name.
        """
        chosen = sampled_rows(len(labels), params.subsample, seed=params.seed, tree=tree)
        carried = training & chosen
        if weight is not None:
            # Other parties count the rows of a sum: who adds nothing to it is not to be counted.
            carried &= weight > 0
        # Of all training rows: a caller's own function may know them by their places.
        floats = (objective or objective_of(params)).gradients(
            margins[training], labels[training], None if weight is None else weight[training]
        )[carried[training]]
        if floats.ndim == 3:
            floats = (
                floats.reshape(len(floats), -1)
                if params.vector_outputs > 1
                else np.ascontiguousarray(floats[:, params.output_of(tree)])
            )
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
        pairs = np.zeros((len(labels), floats.shape[1]), dtype=np.int64)
        pairs[carried] = scale.encode(floats)
        if params.gradient_bits is None:
            return cls(tree, pairs, carried, scale, params)
        salt = salt_of(labels)
        lots = rounding_lots(*floats.shape, seed=params.seed, tree=tree, salt=salt)
        rounded = np.zeros_like(pairs)
        rounded_scale = FixedPoint.of_bits(floats, params.gradient_bits)
        rounded[carried] = rounded_scale.round_by_lot(floats, lots)
        return cls(tree, rounded, carried, rounded_scale, params, pairs, scale)

    def bounds(self, rows: NDArray[np.integer]) -> NDArray[np.int64]:
        """What sums over some of ``rows`` can be: int64 (2, columns), least and most of
        each column of ``pairs``.

        The sums of what is negative, and of what is positive; together they are the totals.
        """
        # Sums along rows are slow, and so are pairs chosen by brackets.
        columns = np.ascontiguousarray(self.pairs.take(rows, axis=0).T)
        most = np.maximum(columns, 0).sum(axis=1)
        return np.stack((columns.sum(axis=1) - most, most))

    def totals(self, rows: NDArray[np.integer]) -> NDArray[np.int64]:
        """The sums of g and h over ``rows``: int64 (columns,)."""
        columns = np.ascontiguousarray(self.pairs.take(rows, axis=0).T)
        sums: NDArray[np.int64] = columns.sum(axis=1)
        return sums

    def unrounded_totals(self, rows: NDArray[np.integer]) -> NDArray[np.float64] | None:
        """The sums over ``rows`` as they were before rounding, float64 (columns,); None if none
        was."""
        if self.unrounded is None or self.unrounded_scale is None:
            return None
        return self.unrounded_scale.to_float(self.unrounded[rows].sum(axis=0))
