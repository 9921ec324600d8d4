"""What does each half compute between two parcels, and how do tables flow meanwhile?

Tables flow in parcels; a few travel while others are made. Two batches are garbled and
evaluated side by side. The active party asks for another parcel whenever it begins one, so neither
side holds many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np

from fedmq.privacy.garbling.half_gates import Evaluation, Garbling, Labels
from fedmq.privacy.lattice.hidden.evaluator import LevelEvaluator
from fedmq.privacy.lattice.hidden.garbler import LevelGarbler
from fedmq.privacy.lattice.hidden.parcels import Unpacked, pieces_of
from fedmq.privacy.lattice.hidden.sides import Made
from fedmq.privacy.lattice.hidden.stages import (
    EvaluateBatch,
    EvaluateMore,
    EvaluatorStage,
    GarbleMore,
    GarblerStage,
)
from fedmq.privacy.plan import PARCELS_AHEAD, Compute, Exchange, Plan, Reply, Values

__all__ = ["LevelStep", "computed", "evaluated", "garbled"]

_SIDE_BY_SIDE = 2  # batches

Outputs = Mapping[str, Labels]


def garbled(stages: Sequence[GarblerStage], first: int) -> Plan[list[Outputs]]:
    """Send all batches of ``stages``, in a talk about node ``first``; labels of their outputs.

    The parcel that follows them may leave at once.
    """
    found: list[list[Outputs]] = [[] for _ in stages]
    sent = 0
    for group in _groups(stages):
        made = yield Compute([stages[number].batch(batch) for number, batch in group])
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
            found[number].append(garbling.outputs)
    yield from _asked_for(sent)
    return [_joined(outputs) for outputs in found]


def evaluated(stages: Sequence[EvaluatorStage], first: int) -> Plan[list[Outputs]]:
    """Evaluate all batches as they come; labels of their outputs. Another parcel follows them."""
    found: list[list[Outputs]] = [[] for _ in stages]
    unasked = sum(half.stage.stretches for half in stages) + 1 - PARCELS_AHEAD
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
            found[number].append(evaluation.outputs)
    return [_joined(outputs) for outputs in found]


def _groups(
    stages: Sequence[GarblerStage] | Sequence[EvaluatorStage],
) -> Iterator[list[tuple[int, slice]]]:
    """Batches by the number of their stage, as many as are made side by side."""
    of_stages = [half.stage for half in stages]
    batches = [
        (number, batch) for number, stage in enumerate(of_stages) for batch in stage.batches()
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
