"""The gradients of one tree, as every engine takes them.

In the order of the file: row weights, first margins, and integers of fixed point, whose sums are
exact in any order.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmq.boosting import machine_sums
from fedmq.boosting.machine_sums import FEWEST_ROWS, can_bound
from fedmq.boosting.node_rows import masked, taken
from fedmq.boosting.objectives.objective import Objective
from fedmq.boosting.objectives.registry import objective_of
from fedmq.boosting.params import TrainParams
from fedmq.boosting.sampling import one_side_sample, rounding_lots, salt_of, sampled_rows
from fedmq.errors import DataError

__all__ = [
    "RESOLUTION_BITS",
    "FixedPoint",
    "Gradients",
    "base_margins",
    "first_margins",
    "most_value_bits",
    "row_weights",
]


def row_weights(values: ArrayLike, where: str) -> NDArray[np.float32]:
    """``values`` (rows,) as weights: float32 (rows,).

    Raises:
        DataError: a weight is negative, infinite or missing; the text names its row, from 1.
    """
    with np.errstate(over="ignore"):
        weights = np.array(values, dtype=np.float32)
    _check(weights, np.isfinite(weights) & (weights >= 0), f"{where}: weight", "0 or more")
    return weights


def base_margins(values: ArrayLike, where: str) -> NDArray[np.float32]:
    """``values`` (rows,) as margins: float32 (rows,).

    Raises:
        DataError: a margin is infinite or missing; the text names its row, counted from 1.
    """
    with np.errstate(over="ignore"):
        margins = np.array(values, dtype=np.float32)
    _check(margins, np.isfinite(margins), f"{where}: base_margin", "finite")
    return margins


def first_margins(values: ArrayLike, rows: int, outputs: int, where: str) -> NDArray[np.float32]:
    """``values`` as the first margins of ``rows`` rows: float32 (rows,), or (rows, outputs).

    Raises:
        DataError: ``values`` are no numbers or have another shape; or as in `base_margins`.
    """
    try:
        given = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        raise DataError(f"{where}: base_margin is no array of numbers") from None
    if given.ndim == 2 and given.shape[1] == 1:
        given = given[:, 0]
    shape = (rows,) if outputs == 1 else (rows, outputs)
    if given.shape != shape:
        raise DataError(f"{where}: base_margin has shape {given.shape}, {shape} is needed")
    return base_margins(given, where)


def _check(values: NDArray[np.float32], fits: NDArray[np.bool_], what: str, wanted: str) -> None:
    if not fits.all():
        row = int(np.argmin(fits.reshape(len(fits), -1).all(axis=1)))
        raise DataError(f"{what} in row {row + 1} is {values[row]}; a number is needed, {wanted}")


RESOLUTION_BITS = 40
"""Default resolution, in bits of the largest gradient of a tree."""

_SUM_BITS = 62

_ROUNDS = np.float64(1.5 * 2**52)  # for numbers up to 2**51
_BITS_OF_ROUNDS = _ROUNDS.view(np.int64)


@dataclass(frozen=True, slots=True)
class FixedPoint:
    """Scales of one tree: g is the integer ``round(g * 2**g_bits)``, h with ``h_bits`` likewise.

    A tree of vector leaves has a g and an h for each output, one after the other.

    ``value_bits``: no encoded number exceeds ``2**value_bits`` in magnitude.
    """

    g_bits: int
    h_bits: int
    value_bits: int

    @classmethod
    def of(cls, gradients: NDArray[np.float32]) -> FixedPoint:
        """Scales that fit ``gradients`` (rows, 2 * outputs) of a tree's training rows.

        The resolution is 2**-40 of the power of two above the largest magnitude, or coarser where
        the sum over all rows would leave 62 bits.
        """
        return cls.covering(_largest(gradients), len(gradients))

    @classmethod
    def covering(cls, largest: NDArray[np.floating], rows: int) -> FixedPoint:
        """Scales for ``rows`` rows whose g and h do not exceed ``largest`` (2,)."""
        value_bits = min(RESOLUTION_BITS, _SUM_BITS - max(rows - 1, 0).bit_length())
        exponents = np.frexp(largest)[1].tolist()  # largest < 2**exponent
        return cls(value_bits - exponents[0], value_bits - exponents[1], value_bits)

    @classmethod
    def of_bits(cls, gradients: NDArray[np.float32], bits: int) -> FixedPoint:
        """Scales that round ``gradients`` to ``bits`` bits, the sign of g included.

        ``gradients`` (rows, 2 * outputs). The largest magnitude is 2**(bits - 1), or lies above
        half of it. With 16 bits, int64 holds the sums of any training's rows.
        """
        value_bits = bits - 1
        mantissas, exponents = np.frexp(_largest(gradients))
        g_exponent, h_exponent = (exponents - (mantissas == 0.5)).tolist()
        return cls(value_bits - g_exponent, value_bits - h_exponent, value_bits)

    def round_by_lot(
        self, gradients: NDArray[np.float32], lots: NDArray[np.float64]
    ) -> NDArray[np.int64]:
        """``gradients`` as int64, up or down by ``lots`` in [0, 1): both (rows, 2 * outputs).

        Stochastic rounding, so that the expectation is the gradient itself (Shi et al., NeurIPS
        2022, equation 5). A small hessian may become 0.
        """
        scaled = np.ldexp(gradients.astype(np.float64), self._bits(gradients))
        return np.floor(scaled + lots).astype(np.int64)

    def encode(self, gradients: NDArray[np.float32]) -> NDArray[np.int64]:
        """``gradients`` (rows, 2 * outputs) as int64.

        A positive hessian never rounds to 0: XGBoost treats a side without hessian as empty.
        """
        # A product with a power of two is exact, and taken at once where `ldexp` goes one by one.
        powers = np.ldexp(1.0, self._bits(gradients))
        scaled = np.empty(gradients.shape, np.float64)
        blocks, rest = _blocks(gradients)
        whole = scaled[: blocks.size // len(powers)].reshape(blocks.shape)
        np.multiply(blocks, np.tile(powers, _BLOCK), out=whole, dtype=np.float64)
        np.multiply(rest, powers, out=scaled[len(scaled) - len(rest) :], dtype=np.float64)
        # A sum with this number has no room for fractions: it rounds as `rint` does, and its bits
        # are those of an integer, with no second array.
        scaled += _ROUNDS
        encoded = scaled.view(np.int64)
        encoded -= _BITS_OF_ROUNDS
        hessians = encoded[:, 1::2]
        if hessians.min(initial=1) <= 0:
            np.maximum(hessians, gradients[:, 1::2] > 0, out=hessians)
        return encoded

    def to_float(self, sums: NDArray[np.int64]) -> NDArray[np.float64]:
        """Integer sums (..., 2 * outputs) as float64, rounded once."""
        bits: NDArray[np.int64] = np.array((-self.g_bits, -self.h_bits) * (sums.shape[-1] // 2))
        return np.ldexp(sums.astype(np.float64), bits)

    def _bits(self, numbers: NDArray[np.generic]) -> NDArray[np.int64]:
        """The bits of each column: g, h, g, h and so on."""
        return np.array((self.g_bits, self.h_bits) * (numbers.shape[-1] // 2))

    def rescaled(self, sums: NDArray[np.int64], other: FixedPoint) -> NDArray[np.int64]:
        """Sums (..., 2) of the grid ``other`` on this one, cut off where they leave 62 bits."""
        shifts = np.array([self.g_bits - other.g_bits, self.h_bits - other.h_bits])
        up, down = np.maximum(shifts, 0), np.minimum(shifts, 0)
        largest = np.int64(1) << np.maximum(_SUM_BITS - up, 0)
        finer = np.clip(sums, -largest, largest) << up
        coarser = np.rint(np.ldexp(finer.astype(np.float64), down)).astype(np.int64)
        chosen: NDArray[np.int64] = np.where(shifts < 0, coarser, finer)
        return chosen


_BLOCK = 1024  # rows


def _blocks(
    gradients: NDArray[np.float32],
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """``gradients`` (rows, columns) as (blocks, `_BLOCK` * columns), and the rows that are left.

    NumPy is slow along rows of two numbers.
    """
    rows, columns = gradients.shape
    whole = rows - rows % _BLOCK
    return gradients[:whole].reshape(-1, _BLOCK * columns), gradients[whole:]


def _largest(gradients: NDArray[np.float32]) -> NDArray[np.float32]:
    """The largest magnitudes of any g and of any h: (2,)."""
    columns = gradients.shape[1]
    blocks, rest = _blocks(gradients)
    most, least = blocks.max(axis=0, initial=0.0), blocks.min(axis=0, initial=0.0)
    of_rows = np.concatenate((np.maximum(most, -least).reshape(-1, columns), np.abs(rest)))
    magnitudes: NDArray[np.float32] = of_rows.reshape(-1, 2).max(axis=0, initial=0.0)
    return magnitudes


def most_value_bits(params: TrainParams) -> int:
    """The most ``value_bits`` that the fixed point of any of the training's trees has."""
    return RESOLUTION_BITS if params.gradient_bits is None else params.gradient_bits - 1


@dataclass(frozen=True, slots=True, eq=False)
class Gradients:
    """Fixed-point g and h of all rows: ``pairs`` int64 (rows, 2), zero for rows without any.

    With vector leaves ``pairs`` are (rows, 2 * outputs): g and h of the first output, of the
    second, and so on. Sums have the same columns.

    ``carried`` bool (rows,): training rows that the tree's sample holds, and whose weight is not 0.
    ``params``: the training's, for engines whose two halves share the scoring.

    ``gradient_bits`` rounds the pairs to that many bits; ``unrounded`` and ``unrounded_scale`` then
    keep the original gradients for leaves.
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

        With several classes ``margins`` are (rows, classes); the gradients are those of the tree's
        class, or of all classes for vector leaves. ``weight`` (rows,) says how often each row
        counts; None where all count once. ``objective`` replaces the objective that ``params``
        name.
        """
        chosen = sampled_rows(len(labels), params.subsample, seed=params.seed, tree=tree)
        carried = training & chosen
        if weight is not None:
            # Other parties count the rows of a sum: a row that adds nothing must not count.
            carried &= weight > 0
        # Over all training rows: a caller's function may identify rows by position.
        learning = masked(margins, training), masked(labels, training)
        weights = None if weight is None else masked(weight, training)
        floats = (objective or objective_of(params)).gradients(*learning, weights)
        floats = masked(floats, masked(carried, training))
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
        pairs = scale.encode(floats)
        if len(pairs) < len(labels):
            encoded, pairs = pairs, np.zeros((len(labels), floats.shape[1]), dtype=np.int64)
            pairs[carried] = encoded
        if params.gradient_bits is None:
            return cls(tree, pairs, carried, scale, params)
        salt = salt_of(labels)
        lots = rounding_lots(*floats.shape, seed=params.seed, tree=tree, salt=salt)
        rounded = np.zeros_like(pairs)
        rounded_scale = FixedPoint.of_bits(floats, params.gradient_bits)
        rounded[carried] = rounded_scale.round_by_lot(floats, lots)
        return cls(tree, rounded, carried, rounded_scale, params, pairs, scale)

    def bounds(self, rows: NDArray[np.integer]) -> NDArray[np.int64]:
        """Bounds of sums over any of ``rows``: int64 (2, columns), least and most by column.

        The sums of the negative and of the positive entries; together they are the totals.
        """
        if len(rows) >= FEWEST_ROWS and can_bound(self.pairs):
            return machine_sums.bounds(self.pairs, rows)
        columns = self._columns_of(rows)
        most = np.maximum(columns, 0).sum(axis=1)
        return np.stack((columns.sum(axis=1) - most, most))

    def totals(self, rows: NDArray[np.integer]) -> NDArray[np.int64]:
        """The sums of g and h over ``rows``: int64 (columns,)."""
        columns = self._columns_of(rows)
        sums: NDArray[np.int64] = columns.sum(axis=1)
        return sums

    def _columns_of(self, rows: NDArray[np.integer]) -> NDArray[np.int64]:
        """The pairs of ``rows``, ascending, as int64 (columns, rows)."""
        return np.ascontiguousarray(taken(self.pairs, rows).T)  # sums along rows are slow

    def unrounded_totals(self, rows: NDArray[np.integer]) -> NDArray[np.float64] | None:
        """The sums over ``rows`` before rounding, float64 (columns,); None without rounding."""
        if self.unrounded is None or self.unrounded_scale is None:
            return None
        return self.unrounded_scale.to_float(self.unrounded[rows].sum(axis=0))
