"""The active party keeps all answers to many sealed questions, decrypts them, and looks for bits.

What the first party says is a number for each leaf, what the last one says a number for each block
of leaves. None of them has anything to do with the leaf at which a person ends. In mode bitmap the
same look at the answers finds every bit.
"""

from __future__ import annotations

import numpy as np
import pytest

from fedmq.boosting.metrics import auc
from fedmq.messages.online import OnlineBitmaps, OnlineProducts, OnlineRows, OnlineSealed
from fedmq.privacy.sealed_scores.ciphertexts import Answered, read_plaintexts
from fedmq.privacy.sealed_scores.modulus import to_slots
from fedmq.privacy.sealed_scores.parameters import (
    BLOCK_SLOTS,
    BLOCKS,
)
from tests.how_often import seldom
from tests.protocol.online.online_schedule import OnlineSchedule
from tests.protocol.online.sealed_parties import Sealing
from tests.protocol.online.test_online import World


@pytest.mark.parametrize("people", [500, *seldom(10_000)])
def test_numbers_of_answers_tell_no_leaf(people: int) -> None:
    sealing = Sealing(World(rows=people, trees=20))
    packing, parties = sealing.model.packing, sealing.parties()
    assert packing.slots > 3 * BLOCK_SLOTS
    schedule = OnlineSchedule([sealing.batch(np.arange(people))], parties)
    schedule.run()
    first, last = sealing.model.chain

    told: dict[str, list[np.ndarray]] = {first: [], last: []}
    truth: dict[str, list[np.ndarray]] = {first: [], last: []}
    asked = {body.hop: body for _, _, body in schedule.sent if isinstance(body, OnlineSealed)}
    for party, _, body in schedule.sent:
        if not isinstance(body, OnlineProducts):
            continue
        rows = [int(name[1:]) for name in asked[body.hop].ids]
        answers = [Answered(*p) for p in zip(body.masks.values, body.numbers.values, strict=True)]
        numbers = to_slots(read_plaintexts(answers, sealing.model.secret))
        allowed = {
            name: parties[name].share.share.allowed(sealing.world.columns[name][rows])
            for name in (first, last)
        }
        if party == first:
            used = packing.laid_out(np.ones((len(rows), packing.slots), np.int64)) == 1
            told[first].append(numbers[used])
            truth[first].append(packing.laid_out(allowed[first].astype(np.int64))[used])
        else:
            weights, _ = sealing.model.slots.weights(sealing.world.columns["active"][rows])
            weights *= allowed[first] & allowed[last]
            laid = packing.laid_out(np.rint(weights * 2**40).astype(np.int64))
            sums = laid.reshape(-1, BLOCK_SLOTS, BLOCKS).sum(axis=1).ravel()
            used = packing.runs(len(rows)) >= 0
            told[last].append(numbers.ravel()[used])
            truth[last].append(sums[used] > 0)
    for party in (first, last):
        bits = np.concatenate(truth[party])
        fewest = min(bits.sum(), len(bits) - bits.sum())
        assert abs(found_out(bits, np.concatenate(told[party])) - 0.5) < 5 * 0.3 / np.sqrt(fewest)


def test_answers_in_mode_bitmap_tell_every_leaf() -> None:
    sealing, people = Sealing(world := World(rows=500, trees=20)), np.arange(500)
    schedule = OnlineSchedule([world.batch(people, mode="bitmap")], world.shares)
    schedule.run()
    asked = {body.hop: body for _, _, body in schedule.sent if isinstance(body, OnlineRows)}
    answers = [sent for sent in schedule.sent if isinstance(sent[2], OnlineBitmaps)]
    assert {party for party, _, _ in answers} == set(sealing.model.chain)
    for party, _, body in answers:
        assert isinstance(body, OnlineBitmaps)
        rows = [int(name[1:]) for name in asked[body.hop].ids]
        share = sealing.parties()[party].share.share
        left = body.left.numpy().reshape(len(rows), -1)[:, share.ranges.record]
        told = share.ranges.allowed(left, share.packing.slots)
        assert found_out(share.allowed(world.columns[party][rows]), told) == 1.0


def found_out(bits: np.ndarray, numbers: np.ndarray) -> float:
    """How often the larger of two numbers stands where a leaf is allowed, of two it is not."""
    assert 0.05 < bits.mean() < 0.95
    return auc(bits.ravel().astype(np.float32), numbers.ravel().astype(np.float32))
