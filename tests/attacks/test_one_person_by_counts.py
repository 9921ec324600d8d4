"""An active party has shared people counted again and again, to learn whether one is among them."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from numpy.typing import NDArray

from fedmq.messages import overlap
from fedmq.messages.array import Array
from fedmq.privacy.noisy_count import drawn_noise, told
from fedmq.privacy.set_intersection import IdList, blind, blind_ids, sort_points
from fedmq.protocol.events import Effect, Received, RunPlan, Send, Start
from fedmq.protocol.machine import Machine, run_inline
from fedmq.protocol.overlap.passive import OverlapLimits
from tests.protocol.alignment.alignments import Own
from tests.protocol.overlap.counts import machines

PEOPLE = 500
A_DAY = 50
"""Counts of a day, as `most_alignments_per_day` has them where it is left out."""


def guessed(counts: int, trials: int = 4000) -> float:
    """How often the mean of ``counts`` numbers tells 500 people from 501."""
    random = Random(7)
    right = 0
    for trial in range(trials):
        more = trial % 2
        seen = [told(PEOPLE + more, drawn_noise(random)) for _ in range(counts)]
        right += (np.mean(seen) > PEOPLE + 0.5) == bool(more)
    return right / trials


@pytest.mark.parametrize(("counts", "most"), [(1, 0.54), (A_DAY, 0.60)])
def test_rounded_counts_of_a_day_hardly_tell_whether_one_person_is_shared(
    counts: int, most: float
) -> None:
    trials = 4000 if counts == 1 else 1000
    assert guessed(counts, trials) < most


def test_a_party_that_counts_and_lies_learns_which_of_its_ids_the_other_holds() -> None:
    """With a key for each id it recognises them in the list that comes back, as documented."""
    names = [f"p{number}" for number in range(30)]
    bank = Own(names[:20])
    guesses = names[10:]
    made = machines({"bank": bank, "telco": Own(guesses)}, {"telco": OverlapLimits(exact=True)})
    active = made["bank"]
    active.handle(Start())
    effects = active.handle(Received("telco", overlap.OverlapAccept(rows=len(guesses))))
    theirs = points_of(active, effects)

    pairs = [(bytes([number]) * 32, name) for number, name in enumerate(guesses, start=1)]
    own = np.concatenate([blind_ids.bind(key, IdList.of([name])).run() for key, name in pairs])
    ordered = sort_points.bind([own]).run().points
    body = overlap.ShuffledIds(owner="telco", start=0, rows=len(own), points=Array.of(ordered))
    back = {row.tobytes() for row in points_of(active, active.handle(Received("telco", body)))}
    held = {
        name
        for key, name in pairs
        if {row.tobytes() for row in blind.bind(key, theirs).run()} & back
    }
    assert held == set(names[10:20])


def points_of(machine: Machine, effects: Sequence[Effect]) -> NDArray[np.uint8]:
    """The points of the list that leaves ``machine``."""
    found = []
    waiting = list(effects)
    while waiting:
        effect = waiting.pop(0)
        if isinstance(effect, RunPlan):
            waiting += machine.handle(run_inline(effect))
        elif isinstance(effect, Send) and isinstance(effect.body, overlap.ShuffledIds):
            found.append(effect.body.points.numpy())
    return np.concatenate(found)
