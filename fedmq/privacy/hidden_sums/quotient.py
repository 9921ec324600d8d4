"""Which circuits find the few candidates that may be the best, and the best one of these?

A short quotient tells what is near the best of all: `fedmq.privacy.hidden_sums.filter` says of
what, and why the best candidate is among them. A longer one ranks those few, and tells whether it
is long enough.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from fedmq.privacy.garbling.circuit import (
    FALSE,
    TRUE,
    Circuit,
    Word,
    at_least,
    constant,
    difference,
    difference_and_order,
    select,
    sum_and_carry,
    total,
)
from fedmq.privacy.garbling.half_gates import Labels
from fedmq.privacy.garbling.schedule import Schedule
from fedmq.privacy.hidden_sums.circuits import Run
from fedmq.privacy.hidden_sums.filter import MOST_SLOTS, FilterLevel, Precision
from fedmq.privacy.hidden_sums.shares import Field

__all__ = [
    "FAR_FILTER_ANDS",
    "FILTER_ANDS",
    "RANKED_ANDS",
    "candidate_in_slot",
    "chosen_slots",
    "fine_schedule",
    "pick_schedule",
    "quotient_inputs",
    "quotient_schedule",
    "ranked_candidates",
    "ranked_inputs",
    "ranked_schedule",
    "slots_in_order",
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

    In units of a quotient's last bit, 2^-9 where it is short. They have one bit more, which stands
    for all that is 2 or more. ``low`` is 0 unless both sides are certainly heavy enough.
    """
    c = Circuit()
    _quotient(c, precision)
    return Schedule.of(c)


@cache
def fine_schedule(precision: Precision, field: Field) -> Schedule:
    """The same, and the ``sums`` of a candidate in a slot."""
    c = Circuit(shallow=True)
    _quotient(c, precision)
    c.shallow = False  # for the quotient takes more layers than these sums in any way
    bits = 2 * field.bits
    c.output("sums", total(c, c.input("own sums", bits), c.input("other sums", bits)))
    return Schedule.of(c)


def _quotient(c: Circuit, precision: Precision) -> None:
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


_BLOCK_BITS = 4
_BLOCK = 1 << _BLOCK_BITS  # candidates that wait for each other in a circuit: blocks run at once
_COUNT_BITS = 6  # of which the highest stands for all that is 32 or more


@cache
def count_schedule() -> Schedule:
    """The ``count`` of a block's candidates that are ``near``."""
    c = Circuit()
    c.output("count", [*_counted(c, c.input("near", _BLOCK)), FALSE])
    return Schedule.of(c)


def _counted(c: Circuit, flags: Sequence[int]) -> Word:
    if len(flags) < 2:
        return list(flags)
    middle = len(flags) // 2 + 1
    halves = _counted(c, flags[1:middle]), _counted(c, flags[middle:])
    found, carry = sum_and_carry(c, *halves, flags[0])
    return [*found, carry]


@cache
def joined_counts_schedule() -> Schedule:
    """The ``sum`` of two counts."""
    c = Circuit()
    left, right = c.input("left", _COUNT_BITS), c.input("right", _COUNT_BITS)
    found, carry = sum_and_carry(c, left[:-1], right[:-1])
    c.output("sum", [*found, c.any_of([left[-1], right[-1], carry])])
    return Schedule.of(c)


@cache
def block_schedule() -> Schedule:
    """The ``place`` in its block of each slot's candidate, and whether it is ``held`` there.

    Slots take the candidates that are ``near`` in their order, so many of which stand ``before``
    the block. One state goes along the candidates: which slot is the next.
    """
    c = Circuit()
    near, before = c.input("near", _BLOCK), c.input("before", _COUNT_BITS)
    slot_bits = (MOST_SLOTS - 1).bit_length()
    following = [c.inverse(c.any_of(before[slot_bits:]))]
    for bit in reversed(before[:slot_bits]):
        moved = [c.both(here, bit) for here in following]
        pairs = zip(following, moved, strict=True)
        following = [wire for here, there in pairs for wire in (c.xor(here, there), there)]
    place = [[FALSE] * _BLOCK_BITS for _ in range(MOST_SLOTS)]
    held = [FALSE] * MOST_SLOTS
    for number, flag in enumerate(near):
        taken = [c.both(flag, here) for here in following]
        following = [
            c.xor(c.xor(here, own), last)
            for here, own, last in zip(following, taken, [FALSE, *taken[:-1]], strict=True)
        ]
        for slot, wire in enumerate(taken):
            held[slot] = c.xor(held[slot], wire)
            for bit in range(_BLOCK_BITS):
                if number >> bit & 1:
                    place[slot][bit] = c.xor(place[slot][bit], wire)
    c.output("place", [bit for word in place for bit in word])
    c.output("held", held)
    return Schedule.of(c)


@cache
def more_schedule(slots: tuple[int, ...]) -> Schedule:
    """Whether the ``count`` of candidates that are near is ``more`` than each of ``slots``."""
    c = Circuit()
    count = c.input("count", _COUNT_BITS)
    c.output("more", [at_least(c, count, constant(held + 1, _COUNT_BITS)) for held in slots])
    return Schedule.of(c)


def slots_in_order(
    near: Labels, bits: int, slots: tuple[int, ...], run: Run
) -> Generator[Any, Any, dict[str, Labels]]:
    """Labels of the ``index`` of each of the first candidates that are ``near``, and of ``more``.

    ``near`` (nodes, candidates, 2); ``index`` (most slots * ``bits``, nodes, 2), 0 for unused ones;
    ``more`` (counts of ``slots``, nodes, 2), as `more_schedule` has it.
    """
    nodes, candidates, words = near.shape
    blocks = -(-candidates // _BLOCK)
    # What fills up the last block is known not to be near: both sides use the label 0 for it.
    flags = np.zeros((nodes, blocks * _BLOCK, words), np.uint64)
    flags[:, :candidates] = near
    flags = flags.reshape(nodes * blocks, _BLOCK, words).transpose(1, 0, 2)
    inputs = {"near": np.ascontiguousarray(flags)}
    counts = (yield from run(count_schedule(), inputs))["count"]
    before, count = yield from _counts_before(counts.reshape(-1, nodes, blocks, words), run)
    inputs["before"] = before.reshape(counts.shape)
    found = yield from run(block_schedule(), inputs)
    held = found["held"].reshape(MOST_SLOTS, nodes, blocks, words)
    place = found["place"].reshape(MOST_SLOTS, _BLOCK_BITS, nodes, blocks, words)
    number = np.arange(blocks)
    index = [np.bitwise_xor.reduce(place, axis=3)[:, :bits]] + [
        np.bitwise_xor.reduce(held[:, :, number >> bit & 1 > 0], axis=2)[:, np.newaxis]
        for bit in range(bits - _BLOCK_BITS)
    ]
    more = yield from run(more_schedule(slots), {"count": count})
    joined = np.concatenate(index, axis=1)
    return {"index": joined.reshape(-1, nodes, words), "more": more["more"]}


def _counts_before(counts: Labels, run: Run) -> Generator[Any, Any, tuple[Labels, Labels]]:
    """The sums of all ``counts`` (bits, nodes, n, 2) before each one, and of all of them."""
    every = counts.shape[2]
    if every == 1:
        return np.zeros_like(counts), counts[:, :, 0]
    paired = every // 2 * 2
    left, right = counts[:, :, 0:paired:2], counts[:, :, 1:paired:2]
    pairs = yield from _joined_counts(left, right, run)
    joined = np.concatenate([pairs, counts[:, :, paired:]], axis=2)
    before_pairs, count = yield from _counts_before(joined, run)
    before = np.empty_like(counts)
    before[:, :, 0::2] = before_pairs
    before[:, :, 1::2] = yield from _joined_counts(before_pairs[:, :, : every // 2], left, run)
    return before, count


def _joined_counts(left: Labels, right: Labels, run: Run) -> Generator[Any, Any, Labels]:
    flat = {
        name: side.reshape(_COUNT_BITS, -1, 2) for name, side in (("left", left), ("right", right))
    }
    found = yield from run(joined_counts_schedule(), flat)
    return found["sum"].reshape(left.shape)


def chosen_slots(
    level: FilterLevel, found: Mapping[str, Labels], to_beat: Labels, run: Run
) -> Generator[Any, Any, dict[str, Labels]]:
    """Labels of each node's ``index`` (most slots * bits, nodes, 2) and ``more`` (.., nodes, 2).

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
    near = (yield from run(near_schedule(bits), inputs))["near"].reshape(nodes, candidates, 2)
    return (yield from slots_in_order(near, level.index_bits, level.slots, run))


def candidate_in_slot(
    level: FilterLevel, index: Labels, slot: Labels, run: Run
) -> Generator[Any, Any, Labels]:
    """Labels of the candidate in each node's ``slot``, by `chosen_slots`' ``index`` of them."""
    schedule = pick_schedule(len(index) // level.index_bits, level.index_bits)
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


FILTER_ANDS = 400
"""At least as many as the filter takes of a candidate: circuits that tell it take time to make."""

FAR_FILTER_ANDS = 800
"""The same of quotients that reach far."""


# Which of the few candidates in slots gains most? That with the largest of longer quotients, unless
# another one is too near.
#
# The bounds are those of the filter: what XGBoost's roundings move is less than half a unit, so a
# candidate whose ``low`` is above another's ``high`` gains more by any arithmetic. Candidates with
# equal sums tie, and so do those with exchanged sides, whatever their quotients are: the first of
# them stays, as slots are in XGBoost's order.


RANKED_ANDS = 2_000
"""At least as many as quotients and ranks take of a slot."""


def ranked_inputs(precision: Precision, field: Field) -> dict[str, int]:
    """The active party's inputs of each node to `ranked_schedule`, and their bits.

    ``to beat`` and ``beaten`` are those of `NodeFactors`; ``unranked``: a node that does not fit.
    """
    bits = precision.quotient_bits + 1
    return {"to beat": bits, "beaten": bits, "unranked": 1, "G": field.bits, "H": field.bits}


@cache
def ranked_schedule(precision: Precision, field: Field, slots: int, alone: bool) -> Schedule:
    """The slot of the best candidate, as ``index``, its ``low`` and ``sums``.

    ``doubtful``: whether another one may be as good and does not tie, or, ``alone``, whether
    ``to beat`` may be as much. Nothing is doubtful that is surely beaten.
    """
    c = Circuit(shallow=True)
    bits = precision.quotient_bits + 1
    low, high = (_words(c.input(name, slots * bits), bits) for name in ("low", "high"))
    may = c.input("may", slots)
    sums = _words(c.input("sums", slots * 2 * field.bits), 2 * field.bits)
    known = {name: c.input(name, size) for name, size in ranked_inputs(precision, field).items()}
    best, best_sums = low[0], sums[0]
    for slot in range(1, slots):
        stays = at_least(c, best, low[slot])
        best = select(c, stays, best, low[slot])
        best_sums = select(c, stays, best_sums, sums[slot])
    h, g = best_sums[: field.bits], best_sums[field.bits :]
    exchanged = [*difference(c, known["H"], h), *difference(c, known["G"], g)]
    differ = [c.both(_differ(c, held, best_sums), _differ(c, held, exchanged)) for held in sums]
    index, behind = constant(0, (slots - 1).bit_length()), TRUE
    for slot in range(1, slots):  # none of the slots before ties with the best
        behind = c.both(behind, differ[slot - 1])
        first = c.both(behind, c.inverse(differ[slot]))
        index = [c.xor(bit, first) if slot >> at & 1 else bit for at, bit in enumerate(index)]
    reaches = c.any_of(
        [
            c.both(able, at_least(c, word, known["to beat"]))
            for able, word in zip(may, high, strict=True)
        ]
    )
    doubts = [
        c.both(c.both(able, other), at_least(c, word, best))
        for able, other, word in zip(may, differ, high, strict=True)
    ]
    if alone:
        doubts.append(at_least(c, known["beaten"], best))
    c.output("index", index)
    c.output("low", best)
    c.output("sums", best_sums)
    doubtful = c.both(reaches, c.any_of(doubts))
    c.output("doubtful", [c.either(known["unranked"][0], doubtful)])
    return Schedule.of(c)


def _words(wires: Word, bits: int) -> list[Word]:
    return [wires[start : start + bits] for start in range(0, len(wires), bits)]


def _differ(c: Circuit, left: Word, right: Word) -> int:
    return c.any_of([c.xor(x, y) for x, y in zip(left, right, strict=True)])


def ranked_candidates(
    ranking: FilterLevel,
    found: Mapping[str, Labels],
    known: Mapping[str, Labels],
    field: Field,
    alone: bool,
    run: Run,
) -> Generator[Any, Any, dict[str, Labels]]:
    """Labels of `ranked_schedule`'s outputs, of those of `fine_schedule` for all slots.

    ``known``: labels of `ranked_inputs`, (bits, nodes, 2).
    """
    nodes, slots = ranking.nodes, ranking.candidates
    inputs = dict(known)
    for name in ("low", "high", "may", "sums"):
        by_slot = found[name].reshape(-1, nodes, slots, 2).transpose(2, 0, 1, 3)
        inputs[name] = by_slot.reshape(-1, nodes, 2)
    schedule = ranked_schedule(ranking.precision, field, slots, alone)
    return (yield from run(schedule, inputs))
