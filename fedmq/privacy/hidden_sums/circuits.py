"""Which circuits find a node's winner? Gains, bit for bit those of XGBoost, a tournament, a chain.

The square of a sum is rounded once to float32, as the quotients and their sum and difference are.
XGBoost rounds sums and squares to float64 first, which makes another float32 with a chance of about
2^-28 where they are longer than 53 bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.gradients import FixedPoint
from fedmq.boosting.params import TrainParams
from fedmq.boosting.splits import SMALLEST_GAIN, node_gains
from fedmq.errors import DataError
from fedmq.privacy.engine import Place
from fedmq.privacy.garbling.circuit import (
    EXPONENT_BITS,
    MANTISSA_BITS,
    Circuit,
    Float,
    Word,
    at_least,
    constant,
    difference,
    float_bits,
    float_difference,
    float_from_integer,
    float_quotient,
    float_sum,
    select,
    total,
    when,
)
from fedmq.privacy.garbling.half_gates import Labels
from fedmq.privacy.garbling.schedule import Schedule
from fedmq.privacy.hidden_sums.shares import Field
from fedmq.privacy.oblivious_transfer.correlated import bits_of, wide

__all__ = [
    "GAIN_BIAS",
    "GAIN_BITS",
    "NodeInputs",
    "Run",
    "candidate_inputs",
    "gain_schedule",
    "link_schedule",
    "match_schedule",
    "node_input_bits",
    "owner_bits",
    "taken_bits",
    "tournament",
]

GAIN_BIAS = 128
"""The bias of a gain's exponent: quotients of sums lie between 2^-64 and 2^124."""

GAIN_BITS = MANTISSA_BITS + EXPONENT_BITS


def candidate_inputs(field: Field) -> dict[str, int]:
    """The shared inputs of each candidate, and their bits."""
    return {"G_L²": field.square_bits, "G_R²": field.square_bits, "H_L": field.bits}


def node_input_bits(field: Field) -> dict[str, int]:
    """The active party's inputs of each node, and their bits."""
    return {
        "H": field.bits,
        "lambda": field.weight_bits,
        "least weight": field.bits,
        "node gain": GAIN_BITS,
    }


@cache
def gain_schedule(field: Field) -> Schedule:
    """``gain`` of shares ``own …`` of the garbler and ``other …`` of the evaluator.

    A float of 32 bits: 0 where a side is too light, or nothing is gained.
    """
    c = Circuit()
    shared: dict[str, Word] = {}
    for name, bits in candidate_inputs(field).items():
        shared[name] = total(c, c.input(f"own {name}", bits), c.input(f"other {name}", bits))
    known = {name: c.input(name, bits) for name, bits in node_input_bits(field).items()}
    h_left = shared["H_L"]
    h_right = difference(c, known["H"], h_left)
    left = _side_gain(c, shared["G_L²"], h_left, known["lambda"])
    right = _side_gain(c, shared["G_R²"], h_right, known["lambda"])
    sides = float_sum(c, left, right)
    gain, gains_something = float_difference(c, sides, Float.of(known["node gain"]))
    heavy = c.both(
        at_least(c, h_left, known["least weight"]), at_least(c, h_right, known["least weight"])
    )
    c.output("gain", when(c, c.both(heavy, gains_something), gain.word))
    return Schedule.of(c)


def _side_gain(c: Circuit, square: Word, hessian: Word, reg_lambda: Word) -> Float:
    """G² / (H + lambda)."""
    below = float_from_integer(c, total(c, hessian, reg_lambda), 1)
    return float_quotient(c, float_from_integer(c, square, 1), below, GAIN_BIAS)


# Which of all candidates gains most? Neighbours meet, and the better one goes on.
#
# Candidates stand in canonical order, and the right one of two wins only if it gains more: among
# equals the first one wins, as with XGBoost. Indices are bits of the circuit, which the active
# party never learns.


Run = Callable[[Schedule, Mapping[str, Labels]], Generator[Any, Any, dict[str, Labels]]]
"""Garble or evaluate a circuit: yields while tables leave or come, and returns its outputs."""


def tournament(gains: Labels, nodes: int, run: Run) -> Generator[Any, Any, dict[str, Labels]]:
    """Labels of the best ``gain`` (32, nodes, 2), and of its ``index`` (rounds, nodes, 2).

    ``gains`` (32, nodes * candidates, 2).
    """
    best = gains.reshape(GAIN_BITS, nodes, -1, 2)
    index = best[:0]
    while best.shape[2] > 1:
        best, index = yield from _round(best, index, run)
    return {"gain": best[:, :, 0], "index": index[:, :, 0]}


def _round(best: Labels, index: Labels, run: Run) -> Generator[Any, Any, tuple[Labels, Labels]]:
    """Half as many candidates, whose indices are one bit longer."""
    nodes, candidates = best.shape[1:3]
    paired = candidates // 2 * 2
    inputs = {}
    for side, start in (("left", 0), ("right", 1)):
        inputs[f"{side} gain"] = _flat(best[:, :, start:paired:2])
        inputs[f"{side} index"] = _flat(index[:, :, start:paired:2])
    found = yield from run(match_schedule(len(index)), inputs)
    best, index = (
        np.concatenate([found[name].reshape(-1, nodes, paired // 2, 2), alone], axis=2)
        for name, alone in (
            ("gain", best[:, :, paired:]),
            ("index", _with_zero(index[:, :, paired:])),
        )
    )
    return best, index


def _flat(labels: Labels) -> Labels:
    bits, nodes, candidates, _ = labels.shape
    return labels.reshape(bits, nodes * candidates, 2)


def _with_zero(index: Labels) -> Labels:
    """``index`` with one more bit, known to be 0: both sides use the label 0 for it."""
    return np.concatenate([index, np.zeros((1, *index.shape[1:]), np.uint64)])


@cache
def match_schedule(bits: int) -> Schedule:
    """The larger ``gain``, and its ``index`` with one bit more: 1 for the right one."""
    c = Circuit()
    gains = [c.input(f"{side} gain", GAIN_BITS) for side in ("left", "right")]
    indices = [c.input(f"{side} index", bits) for side in ("left", "right")]
    left_stays = at_least(c, *gains)
    c.output("gain", select(c, left_stays, *gains))
    c.output("index", [*select(c, left_stays, *indices), c.inverse(left_stays)])
    return Schedule.of(c)


# Which of several passive parties wins? They stand in a chain, and each hands on the best so far.
#
# A link compares the best candidate of one passive party with the best before it: the active
# party's, or that of the chain so far. The earlier one wins ties, as the first column does with
# XGBoost. The result is shared: the active party reads its colours, the passive party hands its own
# colours on to the next, and neither learns a bit of it.


def taken_bits(place: Place) -> dict[str, int]:
    """The inputs of a link from the best so far: its gain, and its owner unless known."""
    bits = {"to beat": GAIN_BITS}
    return bits if place.is_first else bits | {"owner": owner_bits(place.number - 1)}


def owner_bits(number: int) -> int:
    """Bits of the owner's number behind the link of party ``number``."""
    return number.bit_length()


@cache
def link_schedule(place: Place, index_bits: int) -> Schedule:
    """The best of this party and of those before it: its ``owner``, and ``gain`` for the next.

    ``won``: whether it is this party's; ``index``: of the candidate, 0 where not won.
    """
    c = Circuit()
    gain, index = c.input("gain", GAIN_BITS), c.input("index", index_bits)
    taken = {name: c.input(name, bits) for name, bits in taken_bits(place).items()}
    before = taken.get("owner", constant(0, owner_bits(place.number)))
    stays = at_least(c, taken["to beat"], gain)
    won = c.inverse(stays)
    c.output("won", [won])
    c.output("index", when(c, won, index))
    c.output("owner", select(c, won, constant(place.number, owner_bits(place.number)), before))
    if not place.is_last:
        c.output("gain", select(c, stays, taken["to beat"], gain))
    return Schedule.of(c)


# What does the active party bring to the choice of a candidate? What it knows of the node.
#
# Gains in a circuit are those of integers: 2^(2·g_bits - h_bits) times those of real numbers. The
# numbers are the same but for their exponents, so that they are rounded in the same places.


_LARGEST_EXPONENT = 126  # of a gain that float32 has
_NO_GAIN = float(np.ldexp(2.0 - 2.0**-23, 127))  # larger than any


@dataclass(frozen=True, slots=True, eq=False)
class NodeInputs:
    """The active party's inputs: ``totals`` int64 (nodes, 2), bits by name bool (bits, nodes)."""

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
        """The inputs of nodes with these sums and the gain of the active party's ``best``.

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
    """Lambda in the fixed point of hessians."""
    scaled = math.ldexp(float(np.float32(reg_lambda)), scale.h_bits)
    if scaled >= 1 << (field.weight_bits - 1) or not scaled.is_integer():
        raise DataError(
            f"reg_lambda = {reg_lambda} is no number of {field.weight_bits - 1} bits in units of "
            f"hidden hessians, 2^-{scale.h_bits}"
        )
    return int(scaled)


def _least_weight(min_child_weight: float, scale: FixedPoint, field: Field) -> int:
    """The least hessian of a side in fixed point: at least 1, since a side needs some."""
    scaled = math.ldexp(float(np.float32(min_child_weight)), scale.h_bits)
    return min(max(1, math.ceil(scaled)), field.bound)


def _gain_bits(gains: NDArray[np.float64], shift: int) -> NDArray[np.bool_]:
    """Gains as the circuit has them; none of its own lie beyond those that are let go."""
    scaled = np.ldexp(gains, shift)
    scaled = np.where(scaled < 2.0 ** (1 - GAIN_BIAS), 0.0, np.minimum(scaled, _NO_GAIN))
    return float_bits(scaled, GAIN_BIAS)
