"""In which order do both halves of a level talk to each other?

The parcels are in the table of `fedmq.privacy.lattice.hidden`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedmq.privacy.lattice.hidden.evaluator import LevelEvaluator
from fedmq.privacy.lattice.hidden.garbler import LevelGarbler
from fedmq.privacy.lattice.hidden.parcels import Unpacked, packed_bits, pieces_of
from fedmq.privacy.lattice.hidden.steps import computed, evaluated, garbled
from fedmq.privacy.plan import Exchange, Handed, HandOn, Plan, Reply

__all__ = ["evaluate_level", "garble_level", "garble_links"]

Winners = tuple[NDArray[np.bool_], NDArray[np.int64]]


def evaluate_level(
    evaluator: LevelEvaluator, first: int
) -> Plan[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
    """Which nodes the passive party won, and which were crowded: bool (nodes,) each.

    ``first``: the node under which parcels travel.
    """
    yield Reply(first, pieces_of())  # both sides take tweaks in this order
    evaluator, made = yield from computed(LevelEvaluator.begin, evaluator)
    if evaluator.filter is not None:
        for step in (
            LevelEvaluator.choose_factors,
            LevelEvaluator.choose_products,
            LevelEvaluator.choose_quotient_labels,
        ):
            parcel = yield Exchange(pieces_of(*made))
            evaluator, made = yield from computed(step, evaluator, parcel)
        yield Reply(first, pieces_of(*made))
        found = yield from evaluated(evaluator.stages, first)
        parcel = yield Exchange()
        evaluator, made = yield from computed(LevelEvaluator.close_filter, evaluator, parcel, found)
        parcel = yield Exchange(pieces_of(*made))
        evaluator, made = yield from computed(LevelEvaluator.begin_gains, evaluator, parcel)
    for step in (LevelEvaluator.choose_squares, LevelEvaluator.choose_labels):
        parcel = yield Exchange(pieces_of(*made))
        evaluator, made = yield from computed(step, evaluator, parcel)
    yield Reply(first, pieces_of(*made))
    found = yield from evaluated(evaluator.stages, first)
    parcel = yield Exchange()
    evaluator, _ = yield from computed(LevelEvaluator.close, evaluator, parcel, found)
    if not evaluator.level.place.is_first:
        leader = yield Handed()
        evaluator, made = yield from computed(LevelEvaluator.follow, evaluator, leader)
        parcel = yield Exchange(pieces_of(*made))
        evaluator, _ = yield from computed(LevelEvaluator.close_link, evaluator, parcel)
    owners = yield from _owners(evaluator, first)
    won: NDArray[np.bool_] = owners == evaluator.level.place.number
    yield Reply(first, pieces_of(evaluator.claim(won)))
    return won, evaluator.crowded


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
    """Which nodes were won: bool (nodes,), and by which candidates: int64 (nodes,)."""
    garbler = yield from garble_links(garbler, first)
    return garbler.winners(Unpacked((yield Exchange())))


def garble_links(garbler: LevelGarbler, first: int) -> Plan[LevelGarbler]:
    """All of a level but the active party's claim."""
    parcel = yield Exchange()
    garbler, made = yield from computed(LevelGarbler.begin, garbler, parcel)
    parcel = yield Exchange(pieces_of(*made))
    if garbler.filter is not None:
        for step in (LevelGarbler.offer_factors, LevelGarbler.offer_products):
            garbler, made = yield from computed(step, garbler, parcel)
            parcel = yield Exchange(pieces_of(*made))
        garbler, _ = yield from computed(LevelGarbler.take_quotient_labels, garbler, parcel)
        found = yield from garbled(garbler.stages, first)
        garbler, made = yield from computed(LevelGarbler.close_filter, garbler, (), found)
        for step in (LevelGarbler.offer_entries, LevelGarbler.begin_gains):
            parcel = yield Exchange(pieces_of(*made))
            garbler, made = yield from computed(step, garbler, parcel)
        parcel = yield Exchange(pieces_of(*made))
    garbler, made = yield from computed(LevelGarbler.offer_squares, garbler, parcel)
    parcel = yield Exchange(pieces_of(*made))
    garbler, _ = yield from computed(LevelGarbler.take_labels, garbler, parcel)
    found = yield from garbled(garbler.stages, first)
    garbler, made = yield from computed(LevelGarbler.close, garbler, (), found)
    place = garbler.level.place
    if not place.is_first:
        parcel = yield Exchange(pieces_of(*made))
        handed = Unpacked((yield Handed()))
        garbler, made = yield from computed(LevelGarbler.follow, garbler, parcel, handed)
    yield Reply(first, pieces_of(*made))
    if not place.is_last:
        yield HandOn(first, pieces_of(packed_bits(garbler.handed())))
    return garbler
