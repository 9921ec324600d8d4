"""What scores are estimated to take is what they take: as many questions, as many bytes."""

from __future__ import annotations

import numpy as np
import pytest

from fedmq import TrainParams, simulate
from fedmq.messages.codec import pack_body
from fedmq.party.operations.broker import BrokerLatency
from fedmq.protocol.online.options import Mode
from fedmq.simulation import score_estimate
from fedmq.simulation.score_estimate import estimate_scores
from tests.protocol.online.online_schedule import ACTIVE, OnlineSchedule
from tests.protocol.online.sealed_parties import Sealing
from tests.protocol.online.test_online import World

NEARBY = BrokerLatency(0.0, 0.0)
MODES: tuple[Mode, ...] = ("hop", "bitmap", "sealed")


@pytest.fixture(scope="module")
def world() -> World:
    return World(rows=250, trees=20)


@pytest.mark.parametrize("mode", MODES)
def test_bytes_of_a_person_are_those_of_a_batch(world: World, mode: Mode) -> None:
    found = estimate_scores(world.model.share, NEARBY)[mode]
    people = np.arange(250)
    if mode == "sealed":
        sealing = Sealing(world)
        schedule = OnlineSchedule([sealing.batch(people)], sealing.parties())
    else:
        schedule = OnlineSchedule([world.batch(people, mode=mode)], world.shares)
    schedule.run()
    sent = dict.fromkeys((ACTIVE, *world.shares), 0)
    for party, _, body in schedule.sent:
        sent[party] += len(pack_body(body)) + score_estimate._OVERHEAD_BYTES
    active, *others = world.model.share.parties
    names = {active: ACTIVE, **{party: party for party in others}}
    if mode == "bitmap":  # a question is ids alone, which are shorter here
        del names[active]
    for party in names:
        cost = found.parties[party]
        assert 0.7 < cost.bytes_sent * len(people) / sent[names[party]] < 1.3
        assert cost.core_seconds > 0


def test_a_far_broker_takes_its_time_for_each_question(world: World) -> None:
    near = estimate_scores(world.model.share, NEARBY)
    far = estimate_scores(world.model.share, BrokerLatency(0.1, 0.0, is_far=True))
    for mode in MODES:
        ways = 2 * near[mode].rounds * score_estimate._STAGES
        assert far[mode].alone > 0.1 * ways
        assert near[mode].alone < 0.1
    assert [near[mode].rounds for mode in ("bitmap", "sealed")] == [1, 2]


def test_a_model_that_asks_nobody_costs_no_byte() -> None:
    table = np.random.default_rng(0).normal(size=(200, 3))
    model = simulate(
        active=table,
        label=(table[:, 0] > 0).astype(int),
        passive={"telco": np.zeros((200, 1))},
        params=TrainParams(num_boost_round=2, max_depth=2),
        engine="plain",
    )
    for cost in estimate_scores(model.share, NEARBY).values():
        assert [one.bytes_sent for one in cost.parties.values()] == [0]


def test_too_many_leaves_leave_mode_sealed_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(score_estimate, "MOST_CIPHERTEXTS", 0)
    assert estimate_scores(world.model.share, NEARBY).keys() == {"hop", "bitmap"}
