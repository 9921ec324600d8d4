"""What does each half compute between two parcels, and how do tables flow meanwhile?

Tables flow in parcels; a few travel while others are made. Two batches are garbled and
evaluated side by side. The active party asks for another parcel whenever it begins one, so neither
side holds many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedmq.privacy.garbling.half_gates import Evaluation, Garbling, Labels
from fedmq.privacy.lattice.hidden.circuits import taken_bits
from fedmq.privacy.lattice.hidden.evaluator import LevelEvaluator
from fedmq.privacy.lattice.hidden.gains import EvaluateGains, EvaluateMore, stretches_of
from fedmq.privacy.lattice.hidden.garbler import LevelGarbler
from fedmq.privacy.lattice.hidden.level import (
    HiddenLevel,
    Unpacked,
    bits_in,
    extensions_in,
    extensions_of,
    pieces_of,
)
from fedmq.privacy.oblivious_transfer.extension import BLOCK_WORDS
from fedmq.privacy.plan import PARCELS_AHEAD, Compute, Exchange, Plan, Reply, Values

__all__ = [
    "LevelStep",
    "choose_carries",
    "choose_labels",
    "choose_squares",
    "close_evaluation",
    "close_garbling",
    "close_link",
    "computed",
    "evaluated",
    "follow",
    "garble_link",
    "garbled",
    "offer_carries",
    "offer_squares",
    "take_labels",
]

_SIDE_BY_SIDE = 2  # batches


def garbled(garbler: LevelGarbler, first: int) -> Plan[list[Labels]]:
    """Send all batches, in a talk about node ``first``; labels of their gains.

    The parcel that follows them may leave at once.
    """
    gains: list[Labels] = []
    sent = 0
    for group in _groups(garbler.level):
        made = yield Compute([garbler.batch(batch) for batch in group])
        under_way: list[Garbling] = [garbling for _, garbling in made]
        while made:
            for parcel, _ in made:
                yield from _asked_for(sent)
                yield Reply(first, pieces_of(parcel))
                sent += 1
            numbers = _unfinished(under_way)
            made = yield Compute([garbler.more(under_way[number]) for number in numbers])
            for number, (_, garbling) in zip(numbers, made, strict=True):
                under_way[number] = garbling
        gains += [garbling.outputs["gain"] for garbling in under_way]
    yield from _asked_for(sent)
    return gains


def evaluated(evaluator: LevelEvaluator, first: int) -> Plan[list[Labels]]:
    """Evaluate all batches as they come; labels of their gains. Another parcel follows them."""
    gains: list[Labels] = []
    unasked = stretches_of(evaluator.level) + 1 - PARCELS_AHEAD
    for group in _groups(evaluator.level):
        under_way: list[Evaluation] = []
        numbers = list(range(len(group)))
        while numbers:
            steps: list[EvaluateGains | EvaluateMore] = []
            for number in numbers:
                parcel = yield Exchange()
                if unasked > 0:
                    yield Reply(first, pieces_of())
                    unasked -= 1
                if under_way:
                    steps.append(evaluator.more(under_way[number], parcel))
                else:
                    steps.append(evaluator.batch(group[number], parcel))
            found = yield Compute(steps)
            under_way = under_way or list(found)
            for number, evaluation in zip(numbers, found, strict=True):
                under_way[number] = evaluation
            numbers = _unfinished(under_way)
        gains += [evaluation.outputs["gain"] for evaluation in under_way]
    return gains


def _groups(level: HiddenLevel) -> Iterator[list[slice]]:
    batches = list(level.batches())
    for start in range(0, len(batches), _SIDE_BY_SIDE):
        yield batches[start : start + _SIDE_BY_SIDE]


def _unfinished(under_way: Sequence[Garbling] | Sequence[Evaluation]) -> list[int]:
    """The numbers of the batches that miss pieces."""
    return [number for number, half in enumerate(under_way) if half.missing]


def _asked_for(sent: int) -> Plan[None]:
    """Wait for the request of a parcel after ``sent`` others."""
    if sent >= PARCELS_AHEAD:
        yield Exchange()


# What does each half compute between two parcels? A method of it, from bytes to bytes.
#
# A half travels to a worker process, and returns with its new state.


Half = TypeVar("Half", LevelEvaluator, LevelGarbler)

Made = Sequence[NDArray[Any]]
"""The arrays of the next parcel."""


@dataclass(frozen=True, eq=False)
class LevelStep(Generic[Half]):
    """The half behind ``step``, and the arrays of its next parcel.

    Raises `MessageError` for a malformed ``parcel`` of the other half, or transfers that were not
    the same in all columns.
    """

    label: ClassVar[str] = "HiddenLevel"
    step: Callable[..., Made]
    half: Half = field(repr=False)
    parcel: Sequence[Values]
    more: tuple[Any, ...] = field(default=(), repr=False)

    def run(self) -> tuple[Half, Made]:
        return self.half, self.step(self.half, Unpacked(self.parcel), *self.more)


def computed(
    step: Callable[..., Made],
    half: Half,
    parcel: Sequence[Values] = (),
    *more: Any,
) -> Plan[tuple[Half, Made]]:
    """The plan of one step."""
    [behind] = yield Compute([LevelStep(step, half, parcel, more)])
    found: tuple[Half, Made] = behind
    return found


def choose_carries(evaluator: LevelEvaluator, _: Unpacked) -> Made:
    """The active party's first parcel after the opening one."""
    return list(extensions_of(evaluator.choose_carries()))


def offer_carries(garbler: LevelGarbler, parcel: Unpacked) -> Made:
    """The passive party's answer."""
    [sent] = extensions_in(parcel, garbler.level.carry_transfers)
    return [garbler.offer_carries(sent)]


def choose_squares(evaluator: LevelEvaluator, parcel: Unpacked) -> Made:
    """The active party's second parcel."""
    carries = parcel.take(np.uint64, (evaluator.level.carry_transfers, 1, BLOCK_WORDS))
    parcel.end()
    return list(extensions_of(*evaluator.choose_squares(carries)))


def offer_squares(garbler: LevelGarbler, parcel: Unpacked) -> Made:
    """The passive party's answer."""
    level = garbler.level
    sent = extensions_in(parcel, level.share_transfers, level.total_transfers)
    return garbler.offer_squares(*sent)


def choose_labels(evaluator: LevelEvaluator, parcel: Unpacked) -> Made:
    """The active party's third parcel."""
    level = evaluator.level
    cross = parcel.take(np.uint64, (level.share_transfers, 1, BLOCK_WORDS))
    totals = parcel.take(np.uint64, (level.total_transfers, level.candidates, BLOCK_WORDS))
    parcel.end()
    return list(extensions_of(*evaluator.choose_labels(cross, totals)))


def take_labels(garbler: LevelGarbler, parcel: Unpacked) -> Made:
    """Take the labels that the passive party garbles with; the batches follow."""
    level = garbler.level
    garbler.take_labels(*extensions_in(parcel, level.candidate_labels, level.node_labels))
    return ()


def close_garbling(garbler: LevelGarbler, _: Unpacked, gains: Sequence[Labels]) -> Made:
    """The parcel after all batches."""
    return list(garbler.close(gains))


def close_evaluation(evaluator: LevelEvaluator, parcel: Unpacked, gains: Sequence[Labels]) -> Made:
    """Finish all batches on the active party's side; send nothing."""
    evaluator.close(gains, parcel)
    return ()


def follow(evaluator: LevelEvaluator, handed: Unpacked) -> Made:
    """The fourth parcel of the active party, by its shares of the best so far."""
    place, nodes = evaluator.level.place, evaluator.level.nodes
    leader = bits_in(handed, (sum(taken_bits(place).values()), nodes))
    return list(extensions_of(evaluator.follow(leader)))


def garble_link(garbler: LevelGarbler, parcel: Unpacked, handed: Sequence[Values]) -> Made:
    """The passive party's answer, by the ``handed`` shares of the best so far."""
    level = garbler.level
    [taken] = extensions_in(parcel, level.taken_labels)
    share = bits_in(Unpacked(handed), (sum(taken_bits(level.place).values()), level.nodes))
    return list(garbler.follow(taken, share))


def close_link(evaluator: LevelEvaluator, parcel: Unpacked) -> Made:
    """Finish the link on the active party's side; send nothing."""
    evaluator.close_link(parcel)
    return ()
