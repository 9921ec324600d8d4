"""How do tables flow? In parcels, of which a few travel while others are made and evaluated.

Two batches are garbled and evaluated side by side. The label holder asks for one parcel more
whenever it begins with one, so that neither side holds many of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from fedmq.privacy.garbling.half_gates import Evaluation, Garbling, Labels
from fedmq.privacy.lattice.hidden.evaluator import LevelEvaluator
from fedmq.privacy.lattice.hidden.gain_batches import EvaluateGains, EvaluateMore, stretches_of
from fedmq.privacy.lattice.hidden.garbler import LevelGarbler
from fedmq.privacy.lattice.hidden.level import Level
from fedmq.privacy.lattice.hidden.parcels import pieces_of
from fedmq.privacy.plan import PARCELS_AHEAD, Compute, Exchange, Plan, Reply

__all__ = ["evaluated", "garbled"]

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


def _groups(level: Level) -> Iterator[list[slice]]:
    batches = list(level.batches())
    for start in range(0, len(batches), _SIDE_BY_SIDE):
        yield batches[start : start + _SIDE_BY_SIDE]


def _unfinished(under_way: Sequence[Garbling] | Sequence[Evaluation]) -> list[int]:
    """The numbers of those that miss pieces."""
    return [number for number, half in enumerate(under_way) if half.missing]


def _asked_for(sent: int) -> Plan[None]:
    """Wait until a parcel behind ``sent`` others is wanted."""
    if sent >= PARCELS_AHEAD:
        yield Exchange()
