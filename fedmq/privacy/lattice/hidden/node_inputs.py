"""What does the label holder bring to the choice of a candidate? What it knows of the node.

Gains in a circuit are those of integers: 2^(2·g_bits - h_bits) times those of real numbers. The
numbers are the same but for their exponents, so that they are rounded in the same places.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.gradients import FixedPoint
from fedmq.boosting.params import TrainParams
from fedmq.boosting.splits import SMALLEST_GAIN, node_gains
from fedmq.errors import DataError
from fedmq.privacy.garbling.float_bits import float_bits
from fedmq.privacy.lattice.hidden.field import Field
from fedmq.privacy.lattice.hidden.gain_circuit import GAIN_BIAS, node_input_bits
from fedmq.privacy.oblivious_transfer.wide_integers import bits_of, wide

__all__ = ["NodeInputs"]

_LARGEST_EXPONENT = 126  # of a gain that float32 has
_NO_GAIN = float(np.ldexp(2.0 - 2.0**-23, 127))  # larger than any


@dataclass(frozen=True, slots=True, eq=False)
class NodeInputs:
    """Of each node ``totals`` int64 (nodes, 2), and bits by name: bool (bits, nodes)."""

    totals: NDArray[np.int64]
    bits: dict[str, NDArray[np.bool_]]

    @classmethod
    def of(
        cls,
        totals: NDArray[np.int64],
        best: NDArray[np.float32],
        scale: FixedPoint,
        params: TrainParams,
        field: Field,
    ) -> NodeInputs:
        """Of nodes with these sums, and the gain of the label holder's ``best`` candidate.

        ``best`` float32 (nodes,), -inf where it has none; it wins ties.

        Raises:
            DataError: sums, or lambda, do not fit the field, or gains could leave float32.
        """
        _check(totals, scale, field)
        count = len(totals)
        real = scale.to_float(totals)
        least = np.float32(params.gamma)
        below = np.nextafter(least, np.float32(-np.inf)) if least > 0 else np.float32(0)
        to_beat = np.maximum(best, np.maximum(below, SMALLEST_GAIN)).astype(np.float64)
        shift = 2 * scale.g_bits - scale.h_bits
        constants = {
            "lambda": _lambda(params.reg_lambda, scale, field),
            "least weight": _least_weight(params.min_child_weight, scale, field),
        }
        bits = {
            name: bits_of(wide(np.full(count, number, np.uint64)), node_input_bits(field)[name])
            for name, number in constants.items()
        }
        bits["H"] = bits_of(wide(totals[:, 1]), field.bits)
        bits["node gain"] = _gain_bits(node_gains(real, params).astype(np.float64), shift)
        bits["to beat"] = _gain_bits(to_beat, shift)
        return cls(totals, bits)


def _check(totals: NDArray[np.int64], scale: FixedPoint, field: Field) -> None:
    g, h = np.abs(totals[:, 0]), totals[:, 1]
    if not ((g < field.bound) & (h >= 0) & (h < field.bound)).all():
        raise DataError(
            f"sums of gradients that leave {field.bits - 2} bits, as hidden ones may not"
        )
    if field.square_bits - 2 * scale.g_bits + max(scale.h_bits, 0) > _LARGEST_EXPONENT:
        raise DataError("gradients are too large for hidden sums: float32 has no such gains")


def _lambda(reg_lambda: float, scale: FixedPoint, field: Field) -> int:
    """Lambda as hessians are counted."""
    scaled = math.ldexp(float(np.float32(reg_lambda)), scale.h_bits)
    if scaled >= 1 << (field.weight_bits - 1) or not scaled.is_integer():
        raise DataError(
            f"reg_lambda = {reg_lambda} is no number of {field.weight_bits - 1} bits in units of "
            f"hidden hessians, 2^-{scale.h_bits}"
        )
    return int(scaled)


def _least_weight(min_child_weight: float, scale: FixedPoint, field: Field) -> int:
    """The least hessian of a side as hessians are counted: at least 1, as none is no side."""
    scaled = math.ldexp(float(np.float32(min_child_weight)), scale.h_bits)
    return min(max(1, math.ceil(scaled)), field.bound)


def _gain_bits(gains: NDArray[np.float64], shift: int) -> NDArray[np.bool_]:
    """Gains as the circuit has them; none of its own lie beyond those that are let go."""
    scaled = np.ldexp(gains, shift)
    scaled = np.where(scaled < 2.0 ** (1 - GAIN_BIAS), 0.0, np.minimum(scaled, _NO_GAIN))
    return float_bits(scaled, GAIN_BIAS)
