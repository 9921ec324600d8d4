"""How do both halves of a level talk to each other, and what do they compute between two parcels?

Tables flow in parcels; a few travel while others are made. Two batches are garbled and
evaluated side by side. The active party asks for another parcel whenever it begins one, so neither
side holds many. The parcels are in the table of `fedmq.privacy.hidden_sums`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedmq.privacy.engine import Winner
from fedmq.privacy.garbling.half_gates import Evaluation, Garbling, Labels
from fedmq.privacy.hidden_sums.evaluator import LevelEvaluator
from fedmq.privacy.hidden_sums.garbler import LevelGarbler
from fedmq.privacy.hidden_sums.sides import Made, Unpacked, packed_bits, pieces_of
from fedmq.privacy.hidden_sums.stages import (
    EvaluateBatch,
    EvaluateMore,
    EvaluatorStage,
    GarbleMore,
    GarblerStage,
)
from fedmq.privacy.plan import PARCELS_AHEAD, Compute, Exchange, Handed, HandOn, Plan, Reply, Values

__all__ = [
    "EvaluateLevel",
    "GarbleLevel",
    "Learned",
    "LevelStep",
    "evaluate_level",
    "evaluated",
    "garble_level",
    "garble_links",
    "garbled",
]

_SIDE_BY_SIDE = 2  # batches

Outputs = Mapping[str, Labels]


def garbled(garbler: LevelGarbler, first: int) -> Plan[list[Outputs]]:
    """Send all batches of its stages, in a talk about node ``first``; labels of their outputs.

    The parcel that follows them may leave at once.
    """
    # What is garbled need not travel to workers any more.
    stages, garbler.stages = garbler.stages, ()
    begun, garbler.begun = garbler.begun, []
    found: list[list[Outputs]] = [[] for _ in stages]
    sent = 0
    for group in _groups(stages):
        made = begun or (yield Compute([stages[number].batch(batch) for number, batch in group]))
        under_way: list[Garbling] = [garbling for _, garbling in made]
        while made:
            for parcel, _ in made:
                yield from _asked_for(sent)
                yield Reply(first, pieces_of(parcel))
                sent += 1
            missing = _unfinished(under_way)
            made = yield Compute(
                [
                    GarbleMore(stages[group[place][0]].stage.circuit, under_way[place])
                    for place in missing
                ]
            )
            for place, (_, garbling) in zip(missing, made, strict=True):
                under_way[place] = garbling
        for (number, _), garbling in zip(group, under_way, strict=True):
            found[number].append(_by_themselves(garbling.outputs))
        begun = []
    yield from _asked_for(sent)
    return [_joined(outputs) for outputs in found]


def evaluated(evaluator: LevelEvaluator, first: int) -> Plan[list[Outputs]]:
    """Evaluate all batches as they come; labels of their outputs. Another parcel follows them."""
    stages, evaluator.stages = evaluator.stages, ()
    found: list[list[Outputs]] = [[] for _ in stages]
    unasked = sum(half.batches.stretches for half in stages) + 1 - PARCELS_AHEAD
    for group in _groups(stages):
        under_way: list[Evaluation] = []
        missing = list(range(len(group)))
        while missing:
            steps: list[EvaluateBatch | EvaluateMore] = []
            for place in missing:
                parcel = yield Exchange()
                if unasked > 0:
                    yield Reply(first, pieces_of())
                    unasked -= 1
                number, batch = group[place]
                if under_way:
                    circuit = stages[number].stage.circuit
                    steps.append(EvaluateMore(circuit, under_way[place], parcel))
                else:
                    steps.append(stages[number].batch(batch, parcel))
            evaluations = yield Compute(steps)
            under_way = under_way or list(evaluations)
            for place, evaluation in zip(missing, evaluations, strict=True):
                under_way[place] = evaluation
            missing = _unfinished(under_way)
        for (number, _), evaluation in zip(group, under_way, strict=True):
            found[number].append(_by_themselves(evaluation.outputs))
    return [_joined(outputs) for outputs in found]


def _groups(
    stages: Sequence[GarblerStage] | Sequence[EvaluatorStage],
) -> Iterator[list[tuple[int, slice]]]:
    """Batches by the number of their stage, as many as are made side by side."""
    batches = [
        (number, batch)
        for number, slices in enumerate([half.batches.slices for half in stages])
        for batch in slices
    ]
    for start in range(0, len(batches), _SIDE_BY_SIDE):
        yield batches[start : start + _SIDE_BY_SIDE]


def _unfinished(under_way: Sequence[Garbling] | Sequence[Evaluation]) -> list[int]:
    """The numbers of the batches that miss pieces."""
    return [number for number, half in enumerate(under_way) if half.missing]


def _asked_for(sent: int) -> Plan[None]:
    """Wait for the request of a parcel after ``sent`` others."""
    if sent >= PARCELS_AHEAD:
        yield Exchange()


def _by_themselves(outputs: Outputs) -> Outputs:
    """Labels without the memory of a result that held a stretch of tables as well."""
    return {name: labels.copy() for name, labels in outputs.items()}


def _joined(outputs: Sequence[Outputs]) -> Outputs:
    """The labels of all instances."""
    return {name: np.concatenate([batch[name] for batch in outputs], axis=1) for name in outputs[0]}


# What does each half compute between two parcels? A method of it, from bytes to bytes.
#
# A half travels to a worker process, and returns with its new state.


Half = TypeVar("Half", LevelEvaluator, LevelGarbler)


@dataclass(frozen=True, eq=False)
class LevelStep(Generic[Half]):
    """The half behind ``step``, a method of it, and the arrays of its next parcel.

    Raises `MessageError` for a malformed ``parcel`` of the other half, or transfers that were not
    the same in all columns.
    """

    label: ClassVar[str] = "HiddenLevel"
    step: Callable[..., Made]
    half: Half = field(repr=False)
    parcel: Sequence[Values]
    more: tuple[Any, ...] = field(default=(), repr=False)

    @property
    def brief(self) -> bool:
        return self.half.level.is_brief

    def run(self) -> tuple[Half, Made]:
        return self.half, self.step(self.half, Unpacked(self.parcel), *self.more)


@dataclass(frozen=True, eq=False)
class GarbleLevel(LevelStep[LevelGarbler]):
    """A step behind which the method ``close`` follows at once, if it garbled all that there is."""

    label: ClassVar[str] = "GarbleLevel"
    close: Callable[..., Made] = field(kw_only=True)

    def run(self) -> tuple[LevelGarbler, Made]:
        half, made = super().run()
        found = half.garbled_whole()
        return half, self.close(half, Unpacked(()), found) if found else made


@dataclass(frozen=True, eq=False)
class EvaluateLevel(LevelStep[LevelEvaluator]):
    """A step that takes the outputs of all that there is: of one ``batch``, evaluated before it."""

    label: ClassVar[str] = "EvaluateLevel"
    batch: EvaluateBatch = field(kw_only=True)

    def run(self) -> tuple[LevelEvaluator, Made]:
        outputs = self.batch.run().outputs
        return self.half, self.step(self.half, Unpacked(self.parcel), [outputs])


@dataclass(slots=True, eq=False)
class _Course(Generic[Half]):
    """A ``half`` behind its last step, and what that ``made``: what these replace is freed."""

    half: Half
    made: Made = field(default_factory=list)

    def go(
        self, step: Callable[..., Made], parcel: Sequence[Values] = (), *more: Any
    ) -> Plan[None]:
        """The plan of one step."""
        yield from self.compute(LevelStep(step, self.half, parcel, more))

    def compute(self, step: LevelStep[Half]) -> Plan[None]:
        """The same of a ``step`` that is more than its method."""
        [(self.half, self.made)] = yield Compute([step])

    def parcel(self) -> Sequence[Values]:
        """What the last step made, once."""
        made, self.made = self.made, []
        return pieces_of(*made)


# In which order do both halves of a level talk to each other?

Winners = Sequence[Winner | None]
"""By node."""


@dataclass(frozen=True, slots=True, eq=False)
class Learned:
    """What the active party learns of a level: bool (nodes,) each.

    Nodes that the passive party ``won``, that were ``crowded``, ``overfull`` even of their slots,
    and whose ranks were ``doubtful``.
    """

    won: NDArray[np.bool_]
    crowded: NDArray[np.bool_]
    overfull: NDArray[np.bool_]
    doubtful: NDArray[np.bool_]


def evaluate_level(evaluator: LevelEvaluator, first: int) -> Plan[Learned]:
    """What the active party learns.

    ``first``: the node under which parcels travel.
    """
    circuit = evaluator.level.circuit
    yield Reply(first, pieces_of(circuit.told()))  # both sides take tweaks in this order
    course = _Course(evaluator)
    del evaluator  # each step leaves another half behind
    if course.half.sets is not None:
        yield from course.go(LevelEvaluator.choose_set_labels)
        yield Reply(first, course.parcel())
        yield from _evaluate(course, first, LevelEvaluator.close_sets)
    yield from course.go(LevelEvaluator.begin)
    if course.half.filter is not None:
        yield from _evaluate_rounds(course, first, LevelEvaluator.close_filter)
        yield from course.go(LevelEvaluator.take_entries, (yield Exchange(course.parcel())))
    if course.half.rankings:
        yield from _evaluate_rounds(course, first, LevelEvaluator.begin_gains)
    if course.half.asks_for_gains:
        yield from _evaluate_rounds(course, first, LevelEvaluator.close)
    if not course.half.level.place.is_first:
        yield from course.go(LevelEvaluator.follow, (yield Handed()))
        yield from course.go(LevelEvaluator.close_link, (yield Exchange(course.parcel())))
    evaluator = course.half
    owners = yield from _owners(evaluator, first)
    won: NDArray[np.bool_] = owners == evaluator.level.place.number
    # Behind labels of doubts.
    yield Reply(first, pieces_of(*course.made, evaluator.claim(won)))
    overfull = evaluator.whole & evaluator.fit
    return Learned(won, evaluator.crowded, overfull, evaluator.doubtful)


def _evaluate_rounds(
    course: _Course[LevelEvaluator], first: int, close: Callable[..., Made]
) -> Plan[None]:
    """Evaluate round by round, of which the first has begun, and ``close`` all of them."""
    found: list[Outputs] = []
    while True:
        if course.half.rounds.take_numbers:
            parcel = yield Exchange(course.parcel())
            yield from course.go(LevelEvaluator.choose_labels, parcel)
            del parcel
        yield Reply(first, course.parcel())
        if not course.half.rounds:
            break
        found += yield from evaluated(course.half, first)
        yield from course.go(LevelEvaluator.begin_round)
    yield from _evaluate(course, first, close, found)


def _evaluate(
    course: _Course[LevelEvaluator],
    first: int,
    close: Callable[..., Made],
    before: Sequence[Outputs] = (),
) -> Plan[None]:
    """Evaluate all batches, and ``close`` them, and those ``before``, by the parcel behind them."""
    if before or sum(stage.batches.stretches for stage in course.half.stages) > 1:
        found = yield from evaluated(course.half, first)
        yield from course.go(close, (yield Exchange()), [*before, *found])
        return
    [stage], course.half.stages = course.half.stages, ()
    batch = stage.batch(stage.batches.slices[0], (yield Exchange()))
    yield from course.compute(EvaluateLevel(close, course.half, (yield Exchange()), batch=batch))


def _owners(evaluator: LevelEvaluator, first: int) -> Plan[NDArray[np.int64]]:
    """The winner of each node: the last party's plan tells the first one's, and so on."""
    place, nodes = evaluator.level.place, evaluator.level.nodes
    if place.is_last:
        owners = evaluator.owners()
    else:
        yield HandOn(first, pieces_of(packed_bits(evaluator.leader())))
        owners = Unpacked((yield Handed())).take(np.int64, (nodes,))
    if place.parties > 1 and place.number != place.parties - 1:
        yield HandOn(first, pieces_of(owners))
    return owners


def garble_level(garbler: LevelGarbler, first: int) -> Plan[Winners]:
    """The winner of each node, a candidate or a set; None of those that were not won."""
    garbler = yield from garble_links(garbler, first)
    return garbler.named(garbler.claim or Unpacked((yield Exchange())))


def garble_links(garbler: LevelGarbler, first: int) -> Plan[LevelGarbler]:
    """All of a level but the active party's claim, unless it comes with labels of doubts."""
    course = _Course(garbler)
    del garbler  # each step leaves another half behind
    parcel = yield Exchange()
    if course.half.sets is not None:
        take, close = LevelGarbler.take_set_labels, LevelGarbler.close_sets
        yield from _garble(course, first, take, parcel, close)
        parcel = yield Exchange(course.parcel())
    yield from course.go(LevelGarbler.begin, parcel)
    del parcel
    if course.half.filter is not None:
        yield from _garble_rounds(course, first, LevelGarbler.close_filter)
        for step in (LevelGarbler.offer_entries, LevelGarbler.read_entries):
            yield from course.go(step, (yield Exchange(course.parcel())))
    if course.half.rankings:
        yield from _garble_rounds(course, first, LevelGarbler.close_ranking)
        parcel = yield Exchange(course.parcel())
        if course.half.takes_claim(Unpacked(parcel)):
            return course.half
        yield from course.go(LevelGarbler.begin_gains, parcel)
        del parcel
    yield from _garble_rounds(course, first, LevelGarbler.close)
    place = course.half.level.place
    if not place.is_first:
        parcel = yield Exchange(course.parcel())
        handed = Unpacked((yield Handed()))
        yield from course.go(LevelGarbler.follow, parcel, handed)
    yield Reply(first, course.parcel())
    if not place.is_last:
        yield HandOn(first, pieces_of(packed_bits(course.half.handed())))
    return course.half


def _garble_rounds(
    course: _Course[LevelGarbler], first: int, close: Callable[..., Made]
) -> Plan[None]:
    """Garble round by round, of which the first has begun, and ``close`` all of them."""
    found: list[Outputs] = []
    while True:
        is_last = not course.half.rounds
        if course.half.rounds.take_numbers:
            parcel = yield Exchange(course.parcel())
            if is_last and not found:
                yield from _garble(course, first, LevelGarbler.take_labels, parcel, close)
                return
            yield from course.go(LevelGarbler.take_labels, parcel)
            del parcel
        found += yield from garbled(course.half, first)
        if is_last:
            break
        yield from course.go(LevelGarbler.begin_round, (yield Exchange()))
    yield from course.go(close, (), found)


def _garble(
    course: _Course[LevelGarbler],
    first: int,
    take: Callable[..., Made],
    parcel: Sequence[Values],
    close: Callable[..., Made],
) -> Plan[None]:
    """Take labels by ``take``, send all batches that are garbled with them, and ``close`` these."""
    yield from course.compute(GarbleLevel(take, course.half, parcel, close=close))
    del parcel
    tables, course.half.tables = course.half.tables, None
    if tables is not None:
        yield Reply(first, pieces_of(tables))
        return
    found = yield from garbled(course.half, first)
    yield from course.go(close, (), found)
