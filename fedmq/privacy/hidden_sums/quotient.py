"""Which circuits find the few candidates that may be the best? A short quotient, and who is near.

`fedmq.privacy.hidden_sums.filter` says of what, and why the best candidate is among them.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from functools import cache
from typing import Any

import numpy as np

from fedmq.privacy.garbling.circuit import (
    FALSE,
    TRUE,
    Circuit,
    at_least,
    difference_and_order,
    select,
    sum_and_carry,
    total,
)
from fedmq.privacy.garbling.half_gates import Labels
from fedmq.privacy.garbling.schedule import Schedule
from fedmq.privacy.hidden_sums.circuits import Run
from fedmq.privacy.hidden_sums.filter import FilterLevel, Precision

__all__ = [
    "candidate_in_slot",
    "chosen_slots",
    "filter_ands",
    "pick_schedule",
    "quotient_inputs",
    "quotient_schedule",
    "threshold_bits",
]


def quotient_inputs(precision: Precision) -> dict[str, int]:
    """The shared inputs of each candidate, and their bits."""
    return {"S": precision.square_bits, "V": precision.weight_bits}


def threshold_bits(precision: Precision) -> dict[str, int]:
    """The active party's inputs of each node, and their bits."""
    return {"least weight": precision.weight_bits, "to beat": precision.quotient_bits + 1}


@cache
def quotient_schedule(precision: Precision) -> Schedule:
    """``low`` and ``high``, between which S / V lies, and whether a candidate ``may`` be taken.

    In units of 2^-9, of eleven bits, of which the highest stands for all that is 2 or more. ``low``
    is 0 unless both sides are certainly heavy enough.
    """
    c = Circuit()
    p = precision
    shared = quotient_inputs(p)
    square = total(c, c.input("own S", shared["S"]), c.input("other S", shared["S"]))
    weight = total(c, c.input("own V", shared["V"]), c.input("other V", shared["V"]))
    over, may = difference_and_order(c, weight, c.input("least weight", p.weight_bits))
    heavy = c.both(may, c.any_of(over[p.doubt_bits :]))

    positive = c.inverse(square[-1])
    square = square[:-1]
    saturated = c.either(
        c.any_of(square[p.weight_bits :]),
        at_least(c, square[: p.weight_bits], [FALSE, *weight[:-1]]),
    )
    # Non-restoring division by V, V >> 1, V >> 2 and so on: a remainder lies within plus or minus
    # the last divisor, and a negative one is added to.
    rest = difference_and_order(c, [*square[: p.weight_bits], FALSE], [*weight, FALSE])[0]
    bits = [c.inverse(rest[-1])]
    for place in range(1, p.quotient_bits):
        divisor = weight[place:]
        subtract = bits[-1]
        summand = [c.xor(bit, subtract) for bit in [*divisor, FALSE]]
        rest = total(c, rest[: len(divisor) + 1], summand, subtract)
        bits.append(c.inverse(rest[-1]))
    quotient = bits[::-1]

    known = c.any_of(weight[_LIGHTEST:])
    within = c.both(positive, c.inverse(saturated))
    quotient = [c.both(within, bit) for bit in quotient]
    full = c.both(positive, saturated)
    slack = _slack(c, p, weight)
    high, carry = sum_and_carry(c, quotient, slack[: p.quotient_bits])
    beyond = c.either(c.either(full, slack[p.quotient_bits]), c.either(carry, c.inverse(known)))
    counts = c.both(heavy, known)
    c.output("low", [c.both(counts, bit) for bit in [*quotient, full]])
    c.output("high", [*high, beyond])
    c.output("may", [may])
    return Schedule.of(c)


_LIGHTEST = 6


def _slack(c: Circuit, precision: Precision, weight: list[int]) -> list[int]:
    """`Precision.slacks` of a weight: the lighter, the more."""
    slack = [TRUE, TRUE] + [FALSE] * (precision.quotient_bits - 1)
    reached, top, place = FALSE, len(weight), 2
    for exponent in range(precision.places - 4, _LIGHTEST, -2):
        reached = c.either(reached, c.any_of(weight[exponent:top]))
        top = exponent
        if place < len(slack):
            slack[place] = c.inverse(reached)
            place += 2
    return slack


@cache
def larger_schedule(bits: int) -> Schedule:
    """The ``best`` of two numbers."""
    c = Circuit()
    left, right = c.input("left", bits), c.input("right", bits)
    c.output("best", select(c, at_least(c, left, right), left, right))
    return Schedule.of(c)


@cache
def near_schedule(bits: int) -> Schedule:
    """Whether a candidate is ``near`` the best."""
    c = Circuit()
    high, best, may = c.input("high", bits), c.input("best", bits), c.input("may", 1)
    c.output("near", [c.both(may[0], at_least(c, high, best))])
    return Schedule.of(c)


@cache
def slots_schedule(candidates: int, slots: int) -> Schedule:
    """The ``index`` of each of the first candidates that are ``near``, and whether there are more.

    Indices of unused slots are 0. One state goes along the candidates: which slot is the next.
    """
    c = Circuit()
    near = c.input("near", candidates)
    bits = max(1, (candidates - 1).bit_length())
    index = [[FALSE] * bits for _ in range(slots)]
    following = [TRUE] + [FALSE] * slots
    more = FALSE
    for number, flag in enumerate(near):
        taken = [c.both(flag, here) for here in following]
        more = c.either(more, taken[slots])
        for slot in range(slots):
            following[slot] = c.xor(following[slot], taken[slot])
            following[slot + 1] = c.xor(following[slot + 1], taken[slot])
            for bit in range(bits):
                if number >> bit & 1:
                    index[slot][bit] = c.xor(index[slot][bit], taken[slot])
    c.output("index", [bit for word in index for bit in word])
    c.output("more", [more])
    return Schedule.of(c)


def chosen_slots(
    level: FilterLevel, found: Mapping[str, Labels], to_beat: Labels, run: Run
) -> Generator[Any, Any, dict[str, Labels]]:
    """Labels of each node's ``index`` (slots * bits, nodes, 2) and ``more`` (1, nodes, 2).

    ``found``: those of `quotient_schedule`, of all candidates; ``to_beat`` (11, nodes, 2).
    """
    nodes, candidates = level.nodes, level.candidates
    bits = level.precision.quotient_bits + 1
    low = found["low"].reshape(bits, nodes, candidates, 2)
    while low.shape[2] > 1:
        paired = low.shape[2] // 2 * 2
        sides = {
            name: low[:, :, start:paired:2].reshape(bits, -1, 2)
            for name, start in (("left", 0), ("right", 1))
        }
        better = (yield from run(larger_schedule(bits), sides))["best"]
        low = np.concatenate([better.reshape(bits, nodes, -1, 2), low[:, :, paired:]], axis=2)
    best = yield from run(larger_schedule(bits), {"left": low[:, :, 0], "right": to_beat})
    inputs = {
        "high": found["high"],
        "may": found["may"],
        "best": np.repeat(best["best"], candidates, axis=1),
    }
    near = (yield from run(near_schedule(bits), inputs))["near"]
    in_rows = near.reshape(nodes, candidates, 2).transpose(1, 0, 2)
    slots = slots_schedule(candidates, level.slots)
    chosen: dict[str, Labels] = yield from run(slots, {"near": np.ascontiguousarray(in_rows)})
    return chosen


def candidate_in_slot(
    level: FilterLevel, index: Labels, slot: Labels, run: Run
) -> Generator[Any, Any, Labels]:
    """Labels of the candidate in each node's ``slot``, by `chosen_slots`' ``index`` of them."""
    schedule = pick_schedule(level.slots, level.index_bits)
    return (yield from run(schedule, {"index": index, "slot": slot}))["picked"]


@cache
def pick_schedule(slots: int, bits: int) -> Schedule:
    """The ``picked`` one of the indices of all slots: that of ``slot``."""
    c = Circuit()
    index = c.input("index", slots * bits)
    slot = c.input("slot", (slots - 1).bit_length())
    words = [index[start : start + bits] for start in range(0, len(index), bits)]
    for bit in slot:
        words = [
            select(c, bit, words[at + 1], words[at]) if at + 1 < len(words) else words[at]
            for at in range(0, len(words), 2)
        ]
    c.output("picked", words[0])
    return Schedule.of(c)


def filter_ands(level: FilterLevel) -> int:
    """The ANDs of `chosen_slots`."""
    bits = level.precision.quotient_bits + 1
    matches = larger_schedule(bits).ands * level.candidates  # the last one with what is to beat
    near = near_schedule(bits).ands * level.candidates
    return (matches + near + slots_schedule(level.candidates, level.slots).ands) * level.nodes
