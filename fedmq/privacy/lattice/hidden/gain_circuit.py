"""What is a candidate's gain, bit for bit that of XGBoost? Named parts of gates, one a line.

The square of a sum is rounded once to float32, as the quotients and their sum and difference are.
XGBoost rounds sums and squares to float64 first, which makes another float32 with a chance of about
2^-28 where they are longer than 53 bits.
"""

from __future__ import annotations

from functools import cache

from fedmq.privacy.garbling.circuit import Circuit, Word
from fedmq.privacy.garbling.float_bits import EXPONENT_BITS, MANTISSA_BITS
from fedmq.privacy.garbling.floats import (
    Float,
    float_difference,
    float_from_integer,
    float_quotient,
    float_sum,
)
from fedmq.privacy.garbling.integers import at_least, difference, total, when
from fedmq.privacy.garbling.schedule import Schedule
from fedmq.privacy.lattice.hidden.field import Field

__all__ = ["GAIN_BIAS", "GAIN_BITS", "candidate_inputs", "gain_schedule", "node_input_bits"]

GAIN_BIAS = 128
"""Of a gain's exponent: quotients of sums lie between 2^-64 and 2^124."""

GAIN_BITS = MANTISSA_BITS + EXPONENT_BITS


def candidate_inputs(field: Field) -> dict[str, int]:
    """What is shared of each candidate, and its bits."""
    return {"G_L²": field.square_bits, "G_R²": field.square_bits, "H_L": field.bits}


def node_input_bits(field: Field) -> dict[str, int]:
    """What the label holder knows of each node, and its bits."""
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
