"""Both sides learn who won, the passive party which candidate, and the active party no sum."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedmq.errors import MessageError
from fedmq.privacy.engine import ALONE
from fedmq.privacy.hidden_sums.garbler import LevelGarbler
from fedmq.privacy.hidden_sums.level import HiddenLevel, evaluator_bytes, garbler_bytes
from fedmq.privacy.hidden_sums.sides import Unpacked, pieces_of
from tests.how_often import seldom
from tests.privacy.hidden_sums.drawn_level import SQUARED, DrawnLevel
from tests.privacy.hidden_sums.driven import size
from tests.privacy.hidden_sums.filtered import factors_of
from tests.privacy.hidden_sums.level_chain import claimed, linked
from tests.privacy.hidden_sums.level_pair import LevelPair, Told

NOTHING = -np.inf


def drawn(nodes: int, candidates: int, seed: int = 0, **kind: float) -> DrawnLevel:
    return DrawnLevel.of(np.random.default_rng(seed), nodes, candidates, rows=500, **kind)


def own_gains(level: DrawnLevel, *shares: float) -> np.ndarray:
    """The active party's best gains, as parts of the passive party's, node by node in turn."""
    best = level.gains.max(axis=1)
    parts = np.resize(np.array(shares, np.float32), len(best))
    return np.maximum(best, np.float32(0)) * parts


def check(level: DrawnLevel, to_beat: np.ndarray, told: Told) -> list[bool]:
    won, index = level.winners(to_beat)
    assert told.seen_won == told.won == won
    assert told.index == index
    return won


@pytest.mark.parametrize("candidates", [*seldom(1, 2, 3), 7, 8, *seldom(33)])
def test_the_winner_of_any_number_of_candidates(candidates: int) -> None:
    level = drawn(6, candidates, candidates)
    to_beat = own_gains(level, 0, 0.5, 2)
    won = check(level, to_beat, LevelPair().run(level, to_beat))
    assert {True, False} <= set(won)


@pytest.mark.parametrize(
    "kind",
    [
        {"reg_lambda": 0.0, "min_child_weight": 0.0},
        *seldom(
            {"xgboost_arithmetic": "3.4"},
            {"reg_alpha": 0.5, "constrained": True, "interactions": 2},
            {"min_child_weight": 5.0, "gamma": 1.5},
            {"objective": SQUARED},
            {"gradient_bits": 4},
            {"xgboost_arithmetic": "3.4", "max_delta_step": 0.3},
            {"reg_lambda": 1e-20, "min_child_weight": 0.1},
        ),
    ],
    ids=str,
)
def test_the_winner_by_any_rules(kind: dict[str, float]) -> None:
    level = drawn(5, 40, 3, **kind)
    to_beat = own_gains(level, 0, 0, 0, 0.99, 1.01)
    assert any(check(level, to_beat, LevelPair().run(level, to_beat)))


def test_more_candidates_than_slots_are_near_the_best_of_some_nodes() -> None:
    level = drawn(6, 78)
    to_beat = own_gains(level, 0.5, 0)
    told = LevelPair().run(level, to_beat)
    assert sum(check(level, to_beat, told)) >= 5
    assert 0 < sum(told.crowded) < 6
    whole = LevelPair().run(level, to_beat, factors=[None] * 6)
    assert (whole.won, whole.index) == (told.won, told.index)
    assert not any(whole.crowded)
    assert whole.bytes < 160_000 * 6 * 78


@pytest.mark.parametrize("arithmetic", ["3.2", *seldom("3.4")])
def test_long_quotients_tell_candidates_of_a_crowded_node_apart(arithmetic: str) -> None:
    random, kind = np.random.default_rng(2), {"xgboost_arithmetic": arithmetic}
    level = DrawnLevel.of(random, 6, 78, rows=20_000, **kind)
    to_beat = own_gains(level, 0.5, 0)
    pair = LevelPair()
    assert any(pair.run(level, to_beat).crowded)
    level = replace(level, far=True)
    told = pair.run(level, to_beat)
    assert sum(check(level, to_beat, told)) >= 5
    assert not any(told.crowded)
    assert told.bytes < 40_000 * 6 * 78
    hidden = HiddenLevel(level.circuit.ranked_at(ALONE), 6, 78)
    assert sum(map(size, told.received)) <= garbler_bytes(hidden)
    assert sum(map(size, told.sent)) <= evaluator_bytes(hidden)


def test_a_node_that_long_quotients_do_not_fit_goes_the_long_way() -> None:
    level = replace(drawn(3, 20), far=True)
    to_beat = own_gains(level, 0.5, 0, 2)
    first, *others = factors_of(level, to_beat)
    assert first is not None
    told = LevelPair().run(level, to_beat, factors=[None, *others])
    check(level, to_beat, told)


@pytest.mark.parametrize("far", [False, True], ids=["short", "far"])
@pytest.mark.parametrize("arithmetic", ["3.2", *seldom("3.4")])
def test_a_crowded_node_has_sixteen_slots(arithmetic: str, far: bool) -> None:
    """Of six candidates that gain nearly the same, and of thirty, which do not fit."""
    level = replace(drawn(3, 60, 3, xgboost_arithmetic=arithmetic), far=far)
    left, best = level.left.copy(), level.gains.argmax(axis=1)
    for node, count in enumerate((1, 6, 30)):
        left[node, :count] = left[node, best[node]]
        left[node, :count, 0] += np.arange(count) << (8 if far else 25)
        g, h = map(int, level.totals[node])
        left[node, count:] = [g // 2, h // 2]
    level = replace(level, left=left)
    to_beat = np.full(3, NOTHING, np.float32)
    pair = LevelPair()
    told = pair.run(level, to_beat)
    assert all(check(level, to_beat, told))
    assert told.crowded == [False, not far, True]
    assert told.overfull == [False, False, True]
    whole = pair.run(level, to_beat, factors=[None] * 3)
    assert (whole.won, whole.index) == (told.won, told.index)
    assert pair.run(level, to_beat, apart=True).index == told.index


def test_few_candidates_near_the_best_take_an_eighth_of_the_bytes() -> None:
    level = drawn(4, 78)
    to_beat = own_gains(level, 0.7, 0.99, 0.5, 2)
    told = LevelPair().run(level, to_beat)
    check(level, to_beat, told)
    assert not any(told.crowded)
    assert told.bytes < 22_000 * 4 * 78


@pytest.mark.parametrize(("arithmetic", "waits"), [("3.2", 5), ("3.4", 5)])
def test_how_often_the_active_party_waits_for_an_answer(arithmetic: str, waits: int) -> None:
    """Requests of further tables, which are empty, leave before the last ones are needed."""
    level = drawn(3, 40, 3, xgboost_arithmetic=arithmetic)
    told = LevelPair().run(level, own_gains(level, 2, 0.99, 0.99))
    *asked, claim = [parcel for parcel in told.sent if size(parcel)]
    assert len(asked) == waits
    assert size(claim) < 500


def test_halves_that_compute_in_other_processes() -> None:
    level = drawn(3, 20)
    to_beat = own_gains(level, 0.5, 0, 2)
    check(level, to_beat, LevelPair().run(level, to_beat, apart=True))


def test_among_equals_the_first_wins_and_the_active_party_before_all() -> None:
    level = drawn(4, 9)
    left = level.left.copy()
    best = level.gains.argmax(axis=1)
    for node, first in enumerate((0, 3, 7, 8)):
        left[node, [first, 8]] = left[node, best[node]]
        others = [place for place in range(9) if place not in (first, 8)]
        left[node, others] = 0
        left[node, others[-1]] = level.totals[node]
    level = replace(level, left=left)
    told = LevelPair().run(level, own_gains(level, 0))
    assert told.index == [0, 3, 7, 8]
    check(level, own_gains(level, 0), told)
    told = LevelPair().run(level, own_gains(level, 1))
    assert not any(told.won + told.seen_won)
    just_below = np.nextafter(own_gains(level, 1), np.float32(0))
    assert all(LevelPair().run(level, just_below).won)


def test_a_node_without_a_candidate_that_may_win() -> None:
    level = drawn(3, 5)
    left = level.left.copy()
    left[0] = 0
    left[1] = level.totals[1]
    left[2] = level.totals[2] // 2  # gains next to nothing: less than 1e-6
    level = replace(level, left=left)
    to_beat = np.full(3, NOTHING, np.float32)
    assert check(level, to_beat, LevelPair().run(level, to_beat)) == [False] * 3


@pytest.mark.parametrize("gamma", [*seldom(0.0), 0.5], ids=["no gamma", "gamma"])
def test_a_gain_must_reach_gamma_and_not_exceed_it(gamma: float) -> None:
    level = drawn(8, 30, gamma=gamma)
    to_beat = np.full(8, NOTHING, np.float32)
    check(level, to_beat, LevelPair().run(level, to_beat))
    gains = level.gains.max(axis=1)
    exact = replace(level, params=level.params.model_copy(update={"gamma": float(gains[0])}))
    assert check(exact, to_beat, LevelPair().run(exact, to_beat))[0]


def test_levels_of_a_session_follow_one_another() -> None:
    pair = LevelPair()
    for seed in range(3):
        level = drawn(2**seed, 11, seed)
        check(level, own_gains(level, 0.5), pair.run(level, own_gains(level, 0.5)))
    assert pair.tweaks[0].start == pair.tweaks[1].start > 0


def test_what_the_active_party_receives_is_even_whoever_wins() -> None:
    level = drawn(2, 20)
    for factor in (0.0, 2.0):
        told = LevelPair().run(level, own_gains(level, factor))
        for parcel in told.received:
            if size(parcel) > 100_000:
                received = np.concatenate([piece["bytes"] for piece in parcel])
                assert abs(np.unpackbits(received).mean() - 0.5) < 0.005


def test_a_level_that_begins_anew_is_sent_otherwise() -> None:
    level = drawn(1, 4)
    pair = LevelPair()
    one, two = (
        pair.run(level, own_gains(level, 0), seed).received for seed in (b"s" * 32, b"t" * 32)
    )
    assert list(map(size, one)) == list(map(size, two))
    for first, second in zip(one, two, strict=True):
        if size(first) > 1000:
            assert (first[0]["bytes"] == second[0]["bytes"]).mean() < 0.01


@pytest.mark.parametrize(
    ("parcel", "why"),
    [
        ([{"bytes": np.zeros((3,), np.uint8)}], "a parcel of 3 bytes, which is too short"),
        ([{"bytes": np.zeros((3,), np.int64)}], "a parcel of other pieces than bytes"),
        ([{"other": np.zeros((3,), np.uint8)}], "a parcel of other pieces than bytes"),
    ],
    ids=["short", "words", "other"],
)
def test_a_malformed_parcel_is_refused(parcel: list, why: str) -> None:
    level = drawn(1, 9)
    evaluator, garbler = LevelPair().halves(level, own_gains(level, 0))
    with pytest.raises(MessageError, match=why):
        garbler.begin(Unpacked(parcel))
    first = Unpacked(pieces_of(*evaluator.begin(Unpacked([]))))
    garbler = LevelPair().halves(level, own_gains(level, 0))[1]
    garbler.begin(first)
    with pytest.raises(MessageError, match=why):
        evaluator.choose_labels(Unpacked(parcel))


def claimed_level(share: float) -> tuple[LevelGarbler, np.ndarray]:
    """Who garbled a level of three nodes, and what the active party may claim of it."""
    level = drawn(3, 5)
    evaluator, garbler = LevelPair().halves(level, own_gains(level, share))
    linked([evaluator], [garbler])
    return garbler, evaluator.claim(np.ones(3, np.bool_))


def test_an_active_party_that_claims_no_win_is_believed() -> None:
    garbler, labels = claimed_level(0)
    won, index = claimed(garbler, np.zeros_like(labels))
    assert not won.any()
    assert not index.any()


def test_an_active_party_cannot_claim_a_win_that_is_none() -> None:
    garbler, labels = claimed_level(2)
    with pytest.raises(MessageError, match="that no circuit has shown"):
        claimed(garbler, labels)


@pytest.mark.parametrize("bit", [0, 1, 2, 3])
def test_an_active_party_cannot_claim_another_candidate(bit: int) -> None:
    garbler, labels = claimed_level(0)
    assert claimed(garbler, labels)[0].all()
    colour = np.array([1, 0], np.uint64)
    for forged in (labels[bit, 1] ^ colour, labels[bit, 0], np.zeros(2, np.uint64)):
        other = labels.copy()
        other[bit, 1] = forged
        with pytest.raises(MessageError, match="that no circuit has shown"):
            claimed(garbler, other)


def test_a_step_of_a_small_level_takes_less_than_the_way_to_a_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    circuit = drawn(1, 8).circuit
    few, many, unfiltered = (
        HiddenLevel(circuit, nodes, candidates)
        for nodes, candidates in ((4, 256), (4, 257), (4, 7))
    )
    monkeypatch.setattr("fedmq.privacy.hidden_sums.level.is_available", lambda: True)
    assert [level.is_brief for level in (few, many, unfiltered)] == [True, False, False]

    monkeypatch.setattr("fedmq.privacy.hidden_sums.level.is_available", lambda: False)
    assert not few.is_brief
