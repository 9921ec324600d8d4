"""What an active party receives of a level, made up by who knows no more than what it learns.

That is who won, and which nodes were crowded or doubtful. Lindell, "How to Simulate It" (2017):
what can be made up of the result alone tells no more than the result does. Of half gates and
colours: Zahur, Rosulek and Evans, "Two Halves Make a Whole", 2015.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import numpy as np

from fedmq.privacy.hidden_sums.evaluator import LevelEvaluator
from fedmq.privacy.hidden_sums.sides import extension_arrays
from fedmq.privacy.hidden_sums.steps import Learned, LevelStep, evaluate_level
from fedmq.privacy.oblivious_transfer.extension import ExtensionReceiver, Tweaks
from fedmq.privacy.plan import Compute, Exchange
from tests.privacy.hidden_sums.driven import Parcel


def made_up(
    evaluator: LevelEvaluator,
    learned: Learned,
    sizes: Sequence[int],
    chooser: ExtensionReceiver,
    seed: int,
) -> tuple[Learned, list[Parcel]]:
    """What the half concludes of parcels of ``sizes``, and the parcels.

    All is random but colours, by which the result is what was ``learned``, and an extension of
    random choices, which ``chooser`` makes as any passive party does.
    """
    random = np.random.default_rng(seed)
    parcels = [[{"bytes": random.integers(0, 256, count, np.uint8)}] for count in sizes]
    coming = iter(parcels)
    plan = evaluate_level(evaluator, 1)
    value: Any = None
    last: Parcel = []
    while True:
        try:
            step = plan.send(value)
        except StopIteration as end:
            return end.value, parcels
        value = None
        if isinstance(step, Exchange):
            value = last = next(coming)
        elif isinstance(step, Compute):
            for computation in step.computations:
                if isinstance(computation, LevelStep):
                    _colour(computation, last, learned)
                    if computation.step is LevelEvaluator.take_entries:
                        _choose(computation.half, last, chooser, random)
            value = [computation.run() for computation in step.computations]


def _colour(step: LevelStep[LevelEvaluator], parcel: Parcel, learned: Learned) -> None:
    """Set the colours at the end of a parcel: of crowded or doubtful nodes, and of owners."""
    data = parcel[0]["bytes"] if parcel else np.empty(0, np.uint8)
    if step.step is LevelEvaluator.close_filter:
        half = _tried(step)
        more = ~np.logical_or.accumulate([nodes for nodes, _ in half._groups])
        wanted = np.stack([learned.crowded, learned.overfull])[-len(more) :, half.fit]
        colours = np.packbits(more ^ wanted)
        data[len(data) - len(colours) :] ^= colours
    elif step.step is LevelEvaluator.begin_gains:
        half = _tried(step)
        wrong = half.doubtful ^ learned.doubtful
        colours = np.concatenate([np.packbits(wrong[nodes]) for nodes, _ in half._slots])
        data[len(data) - len(colours) :] ^= colours
        wanted = learned.won & ~learned.doubtful
        _colour_owners(data[: len(data) - len(colours)], half, wanted, ~half.whole)
    elif step.step is LevelEvaluator.close:
        half = _tried(step)
        _colour_owners(data, half, learned.won, ~half._sure)


def _colour_owners(
    data: np.ndarray, half: LevelEvaluator, wanted: np.ndarray, linked: np.ndarray
) -> None:
    """Set the colours of owners at the end, of the ``linked`` nodes."""
    wrong = ((half.owners() == 1) ^ wanted)[linked]
    data[len(data) - 8 * len(wrong) :: 8] ^= wrong.astype(np.uint8)


def _choose(
    half: LevelEvaluator, parcel: Parcel, chooser: ExtensionReceiver, random: np.random.Generator
) -> None:
    """Put choices among the active party's tables at the end of a parcel."""
    assert half.filter is not None
    slots = sum(slots * int(nodes.sum()) for nodes, slots in half._groups)
    count = slots * half.filter.level.index_bits
    start = half._back.tweaks.start
    sent, _ = chooser.extend(random.random(count) < 0.5, Tweaks(start, start + count))
    message = np.concatenate([part.reshape(-1) for part in extension_arrays(sent)])
    data = parcel[0]["bytes"]
    data[len(data) - len(message) :] = message


def _tried(step: LevelStep[LevelEvaluator]) -> LevelEvaluator:
    half, _ = deepcopy(step).run()
    return half
