"""The filter keeps the best candidate of every node, whatever its sums and their shares are."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedmq.boosting.gradients import FixedPoint
from fedmq.boosting.params import OLDEST, TrainParams
from fedmq.privacy.garbling.half_gates import Labels
from fedmq.privacy.garbling.schedule import Schedule, in_the_clear
from fedmq.privacy.hidden_sums.active import Filtering
from fedmq.privacy.hidden_sums.filter import (
    MOST_SLOTS,
    SLOTS,
    FilterLevel,
    KnownNode,
    NodeFactors,
    Precision,
    Unfit,
)
from fedmq.privacy.hidden_sums.quotient import (
    FAR_FILTER_ANDS,
    FILTER_ANDS,
    chosen_slots,
    pick_schedule,
    quotient_inputs,
    quotient_schedule,
    slots_in_order,
)
from fedmq.privacy.hidden_sums.shares import Field
from fedmq.privacy.hidden_sums.sides import finished
from fedmq.privacy.oblivious_transfer.correlated import bits_of, subtract, wide
from tests.how_often import seldom
from tests.privacy.hidden_sums.drawn_level import DrawnLevel
from tests.privacy.hidden_sums.filtered import KINDS, broken, compared, factors_of, quotients

FIELDS = (6, 17, 30, 45, 46, 50, 57, 60, 62, 64)


def right(level: DrawnLevel, to_beat: np.ndarray, seed: int = 0) -> int:
    """Check that no winner is missed, and no bound broken; the number of nodes that fit."""
    for kind in ("", "fine", "far"):
        found = compared(level, to_beat, np.random.default_rng(seed), kind)
        assert (found.missed, found.broken) == (0, 0)
    return found.nodes - found.unfit


@pytest.mark.parametrize("arithmetic", [OLDEST, *seldom("3.4")])
@pytest.mark.parametrize("kind", KINDS, ids=lambda name: name.replace(" ", "-"))
def test_no_winner_is_missed_and_no_bound_broken(kind: str, arithmetic: str) -> None:
    random = np.random.default_rng(7)
    level = DrawnLevel.of(random, 12, 100, **{"xgboost_arithmetic": arithmetic, **KINDS[kind]})
    best = np.maximum(level.gains.max(axis=1), 0)
    parts = np.resize(np.array([0.5, 0, 0.99, 1, 2], np.float32), len(best))
    right(level, np.where(parts > 0, best * parts, -np.inf))


@pytest.mark.parametrize("bits", FIELDS)
def test_the_circuit_adds_more_than_the_bounds_ask_for(bits: int) -> None:
    Precision.of(Field(bits)).check()
    Precision.fine(Field(bits)).check()
    Precision.far(Field(bits)).check()
    with pytest.raises(ValueError, match="is needed"):
        replace(Precision.of(Field(bits)), d_bits=12).check()


def test_all_shares_of_the_sums_of_a_small_ring() -> None:
    field, scale = Field(6), FixedPoint(0, 0, 3)
    c = Precision.of(field)
    params = TrainParams(min_child_weight=2.0, xgboost_arithmetic=OLDEST)
    total = np.array([3, 13])
    g, h = (part.ravel() for part in np.meshgrid([-15, -4, 0, 9, 15], [0, 1, 2, 6, 11, 13]))
    sums = np.stack([g, h], axis=-1)
    p = np.arange(4096)
    a = ((sums[:, 0] * 64 + sums[:, 1])[:, np.newaxis] - p) % 4096
    shares = [np.stack([part >> 6, part & 63], axis=-1).astype(np.uint64) for part in (a, p)]
    own = shares[0].reshape(1, -1, 2)
    other = np.tile(shares[1], (len(sums), 1))[np.newaxis]
    known = KnownNode(3, 13, 4.0, np.inf, 20.0, 1)
    factors = [NodeFactors.of(known, c, scale, params)]
    found = quotients(np.random.default_rng(1), c, field, (own, other), factors)
    left = np.repeat(sums, len(p), axis=0)[np.newaxis]
    heavy = (left[..., 1] >= 2) & (left[..., 1] <= 11)
    assert heavy.any()
    assert found["low"].max() > 100
    assert broken(scale, params, c, left, total[np.newaxis], heavy, factors, found) == 0


@pytest.mark.parametrize("bits", [57, 62, 64])
def test_the_smallest_and_largest_shares(bits: int) -> None:
    level = DrawnLevel.of(np.random.default_rng(3), 1, 400)
    level = replace(level, field=Field(bits))
    c = Precision.of(level.field)
    [factors] = factors_of(level, np.zeros(1, np.float32))
    assert factors is not None
    random = np.random.default_rng(0)
    other = random.integers(0, 2**64, level.left.shape, np.uint64) & level.field.mask
    other[0, :100] = level.field.mask
    other[0, 100:200] = 0
    joint = level.field.joined(level.left.view(np.uint64))
    own = level.field.parted(subtract(joint, level.field.joined(other)))
    found = quotients(random, c, level.field, (own, other), [factors])
    heavy = np.isfinite(level.gains)
    arguments = (level.left, level.totals, heavy, [factors], found)
    assert broken(level.scale, level.params, c, *arguments) == 0


def test_candidates_that_tie_are_all_kept() -> None:
    level = DrawnLevel.of(np.random.default_rng(5), 6, 60)
    left = level.left.copy()
    for node, best in enumerate(level.gains.argmax(axis=1)):
        left[node, [3, 40]] = left[node, best]
        left[node, 59] = level.totals[node] - left[node, best]
    level = replace(level, left=left)
    assert right(level, level.gains.max(axis=1) * np.float32(0.5)) == 6


def test_gradients_of_a_callers_own_function() -> None:
    """Rows without h, rows with little of it beside a large g, and rows that cancel out."""
    random = np.random.default_rng(11)
    floats = np.stack(
        [random.normal(0, 1e4, 300), np.abs(random.normal(0, 1, 300))], axis=-1
    ).astype(np.float32)
    floats[:100, 1] = 0
    floats[100:120, 1] = 1e-30
    scale = FixedPoint.of(floats)
    pairs = scale.encode(floats)
    left = pairs.cumsum(axis=0)[np.newaxis]
    params = TrainParams(reg_lambda=0.0, min_child_weight=0.0, xgboost_arithmetic=OLDEST)
    field = Field(scale.value_bits + 11)
    level = DrawnLevel(left, pairs.sum(axis=0)[np.newaxis], scale, params, field, (pairs,))
    right(level, np.full(1, -np.inf, np.float32))
    right(level, level.gains.max(axis=1) * np.float32(0.9))


def test_candidates_with_nothing_on_one_side() -> None:
    level = DrawnLevel.of(np.random.default_rng(2), 3, 20, reg_lambda=0.0, min_child_weight=0.0)
    left = level.left.copy()
    left[:, :8] = 0
    left[:, 8:15] = level.totals[:, np.newaxis]
    level = replace(level, left=left)
    assert right(level, np.full(3, -np.inf, np.float32)) == 3
    nothing = replace(level, left=np.zeros_like(left))
    assert right(nothing, np.full(3, -np.inf, np.float32)) == 3


def test_a_node_of_nearly_one_class_is_not_crowded() -> None:
    """Whose own gain is a hundred times what its candidates gain, and the active party has none."""
    random = np.random.default_rng(4)
    chance = random.uniform(0.8, 0.95, 130)
    label = np.arange(130) >= 2
    floats = np.stack([chance - label, chance * (1 - chance)], axis=-1).astype(np.float32)
    scale = FixedPoint.of(floats)
    pairs = scale.encode(floats)
    orders = [random.permutation(130) for _ in range(20)]
    left = np.concatenate([pairs[order].cumsum(axis=0)[5:125:4] for order in orders])[np.newaxis]
    params = TrainParams(xgboost_arithmetic=OLDEST)
    field = Field(scale.value_bits + 10)
    level = DrawnLevel(left, pairs.sum(axis=0)[np.newaxis], scale, params, field, (pairs,))
    found = compared(level, np.full(1, -0.3, np.float32), random)
    assert (found.missed, found.broken, found.unfit, found.crowded) == (0, 0, 0, 0)


def test_a_node_that_does_not_fit_says_why() -> None:
    scale, params = FixedPoint(41, 42, 40), TrainParams(reg_lambda=0.0)
    c = Precision.of(Field(57))
    for known, why in (
        (KnownNode(0, 0, 0.0, 0.0, 0.0, 1), "a node without weight"),
        (KnownNode(5, 2**20, 0.0, 1.0, 1.0, 1), "a node of another weight than most"),
        (KnownNode(2**50, 2**50, 0.0, np.inf, np.inf, 1), "a gain without a bound"),
    ):
        with pytest.raises(Unfit, match=why):
            NodeFactors.of(known, c, scale, params)
    with pytest.raises(Unfit, match="lambda"):
        NodeFactors.of(
            KnownNode(0, 2**50, 0.0, 1.0, 1.0, 1), c, scale, TrainParams(reg_lambda=1e-13)
        )


@pytest.mark.parametrize("weight", [1, 63, 64, 2**15, 2**17 - 1])
def test_a_quotient_at_the_edges_of_its_weight(weight: int) -> None:
    """Of each S from below 0 to above saturation: none is too large, and none too small.

    V is below 2^17, as X² / 4 is below 0.98² 2^17.
    """
    c = Precision.of(Field(57))
    sizes = quotient_inputs(c)
    squares = np.unique(
        np.concatenate([np.arange(-40, 200), (weight * np.linspace(0, 3, 500)).astype(np.int64)])
    )
    random = np.random.default_rng(weight)
    inputs = {}
    for name, numbers in (("S", squares), ("V", np.full(len(squares), weight))):
        own = random.integers(0, 2**62, len(squares), np.int64)
        inputs[f"own {name}"] = bits_of(wide(own), sizes[name])
        inputs[f"other {name}"] = bits_of(wide(numbers - own), sizes[name])
    inputs["least weight"] = np.zeros((c.weight_bits, len(squares)), np.bool_)
    found = {
        name: bits.astype(np.int64).T @ (1 << np.arange(len(bits)))
        for name, bits in in_the_clear(quotient_schedule(c), inputs).items()
    }
    ratio = np.maximum(squares, 0) / weight * c.unit
    most = 1 << c.quotient_bits
    assert found["may"].all()
    assert (found["high"] >= np.minimum(ratio, most)).all()
    if weight >= 64:
        assert (found["low"] >= np.minimum(ratio, most) - 2).all()
        assert (found["low"] <= np.minimum(ratio + c.quotient_bits + 1, most)).all()
    else:
        assert not found["low"].any()


def clear_run(schedule: Schedule, inputs: Mapping[str, Labels]) -> Generator[Any, Any, dict]:
    """A circuit in the clear; what stands for a label is its bit."""
    bits = {name: labels[..., 0].astype(np.bool_) for name, labels in inputs.items()}
    return {
        name: np.stack([found.astype(np.uint64)] * 2, axis=-1)
        for name, found in in_the_clear(schedule, bits).items()
    }
    yield


@pytest.mark.parametrize("candidates", [8, 16, 17, 78, *seldom(300, 1000)])
def test_slots_hold_the_first_candidates_in_their_order(candidates: int) -> None:
    random, bits = np.random.default_rng(candidates), (candidates - 1).bit_length()
    near = random.random((200, candidates)) < random.choice([0, 2, 8, 40], (200, 1)) / candidates
    labels = np.stack([near.astype(np.uint64)] * 2, axis=-1)
    found = finished(slots_in_order(labels, bits, (SLOTS, MOST_SLOTS), clear_run))
    index = found["index"][..., 0].reshape(MOST_SLOTS, bits, -1).astype(np.int64)
    for node in range(200):
        wanted = np.flatnonzero(near[node])
        more = [len(wanted) > SLOTS, len(wanted) > MOST_SLOTS]
        assert found["more"][:, node, 0].tolist() == more
        kept = [*wanted[:MOST_SLOTS], *[0] * MOST_SLOTS][:MOST_SLOTS]
        assert [int(word @ (1 << np.arange(bits))) for word in index[..., node]] == kept


def test_the_index_of_a_slot_is_picked() -> None:
    index = np.array([[5, 2, 7, 1]] * 4)
    bits = (index[..., np.newaxis] >> np.arange(3) & 1).reshape(4, -1).T.astype(np.bool_)
    slot = (np.arange(4) >> np.arange(2)[:, np.newaxis] & 1).astype(np.bool_)
    found = in_the_clear(pick_schedule(4, 3), {"index": bits, "slot": slot})["picked"]
    assert (found.T @ (1 << np.arange(3))).tolist() == [5, 2, 7, 1]


@pytest.mark.parametrize(
    ("precision", "of_quotient", "of_78", "most"),
    [
        (Precision.of(Field(57)), 298, 4152, FILTER_ANDS),
        (Precision.far(Field(57)), 614, 6020, FAR_FILTER_ANDS),
    ],
    ids=["short", "far"],
)
@pytest.mark.parametrize("candidates", [8, 17, 78])
def test_how_many_ands_a_candidate_takes(
    candidates: int, precision: Precision, of_quotient: int, of_78: int, most: int
) -> None:
    level = FilterLevel(precision, 1, candidates)
    quotient = quotient_schedule(precision).ands
    assert quotient == of_quotient
    ands = ands_of_slots(level)
    assert candidates != 78 or ands == of_78
    assert quotient * candidates + ands <= most * candidates


def ands_of_slots(level: FilterLevel) -> int:
    """Those that the filter takes behind quotients."""
    ands = 0

    def run(
        schedule: Schedule, inputs: Mapping[str, Labels]
    ) -> Generator[Any, Any, dict[str, Labels]]:
        nonlocal ands
        instances = next(iter(inputs.values())).shape[1]
        ands += schedule.ands * instances
        outputs = schedule.outputs.items()
        return {name: none(len(slots.place), instances) for name, slots in outputs}
        yield

    bits = level.precision.quotient_bits + 1
    found = {name: none(bits, level.instances) for name in ("low", "high")}
    found["may"] = none(1, level.instances)
    finished(chosen_slots(level, found, none(bits, level.nodes), run))
    return ands


def none(bits: int, instances: int) -> Labels:
    return np.zeros((bits, instances, 2), np.uint64)


def test_a_session_whose_nodes_are_often_crowded_goes_on_with_longer_quotients() -> None:
    filtering = Filtering()
    filtering.count(100, 6)
    assert not filtering.far
    filtering.count(0, 1)
    assert (filtering.far, filtering.goes_on) == (True, True)


def test_an_overfull_node_counts_as_four_crowded_ones() -> None:
    filtering = Filtering()
    filtering.count(1, 1, overfull=1)
    assert filtering.far
    often = Filtering()
    often.count(100, 1, overfull=1)
    assert not often.far


def test_it_goes_on_without_the_filter_if_nodes_are_crowded_even_so() -> None:
    filtering = Filtering()
    filtering.count(100, 7)
    filtering.count(100, 6, overfull=6)
    assert filtering.goes_on
    filtering.count(0, 1)
    assert not filtering.goes_on
    filtering.count(10_000, 0)
    assert not filtering.goes_on
