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


def test_who_asks_with_a_key_for_each_part_of_a_list_makes_one_person_count_many_times() -> None:
    """With 5 keys for one person, and a fifth of the other's list under all of them."""
    names = [f"p{number}" for number in range(20)]
    keys = [bytes([number]) * 32 for number in range(1, 6)]
    probe = np.concatenate([blind_ids.bind(key, IdList.of(["p7"])).run() for key in keys])
    strangers = blind_ids.bind(keys[0], IdList.of([f"x{number}" for number in range(15)])).run()
    made = machines({"bank": Own(names), "telco": Own(names)}, {"telco": OverlapLimits(True, 0)})
    telco = made["telco"]
    opening = overlap.OverlapOpen(name="customers", parties=("bank", "telco"), normalise=())
    [preparing] = telco.handle(Received("bank", opening))
    telco.handle(run_inline(preparing))
    theirs = points_of(telco, telco.handle(Received("bank", overlap.OverlapBegin())))
    told = sent_back(telco, "bank", np.concatenate([probe, strangers]))
    assert told == []
    # Which fifth holds the person is unknown: here the one with it is taken, by telco's own key.
    whose = blind_ids.bind(telco_key(), IdList.of(["p7"])).run().tobytes()
    found = [number for number, point in enumerate(theirs) if point.tobytes() == whose]
    fifth = theirs[[*found, *(number for number in range(20) if number not in found)][:4]]
    [count] = sent_back(
        telco, "telco", np.concatenate([blind.bind(key, fifth).run() for key in keys])
    )
    assert count.people == 5


def telco_key() -> bytes:
    """The key of the second party of `machines`, as its seed draws it."""
    return np.random.default_rng(0).bytes(64)[32:]


def sent_back(
    machine: Machine, owner: str, points: NDArray[np.uint8]
) -> list[overlap.OverlapCount]:
    """The number that ``machine`` tells once the list of ``owner`` has come from the bank."""
    ordered = sort_points.bind([points]).run().points
    body = overlap.ShuffledIds(owner=owner, start=0, rows=len(points), points=Array.of(ordered))
    waiting, told = list(machine.handle(Received("bank", body))), []
    while waiting:
        effect = waiting.pop(0)
        if isinstance(effect, RunPlan):
            waiting += machine.handle(run_inline(effect))
        elif isinstance(effect, Send) and isinstance(effect.body, overlap.OverlapCount):
            told.append(effect.body)
    return told
