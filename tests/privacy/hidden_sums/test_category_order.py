"""Circuits sort categories as XGBoost does, bit for bit, and tell the winning set."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmq.boosting.gain import GainRule
from fedmq.boosting.splits import UNBOUNDED, CategorySet, SetScan, node_weights
from fedmq.privacy.garbling.half_gates import Labels
from fedmq.privacy.garbling.schedule import Schedule, in_the_clear
from fedmq.privacy.hidden_sums.category_order import (
    SetColumns,
    comparators,
    place_labels,
    set_schedule,
    sorted_categories,
    weight_inputs,
    weight_schedule,
)
from fedmq.privacy.hidden_sums.circuits import GainCircuit
from fedmq.privacy.hidden_sums.shares import Field
from fedmq.privacy.hidden_sums.sides import finished
from fedmq.privacy.oblivious_transfer.correlated import bits_of, integers_of
from tests.how_often import examples, seldom
from tests.privacy.hidden_sums.drawn_level import DrawnLevel
from tests.privacy.hidden_sums.gains import ARITHMETICS, KINDS, RULES, shared_bits

CASES = [(kind, arithmetic) for kind in KINDS | RULES for arithmetic in ARITHMETICS]

OFTEN = [
    ("logistic", "3.2"),
    ("no lambda, light children", "3.2"),
    ("heavy children", "3.2"),
    ("gradients of 2 bits", "3.2"),
]


def drawn_categories(
    kind: dict[str, Any], nodes: int, categories: int, seed: int = 0
) -> tuple[DrawnLevel, np.ndarray]:
    """A level, and the sums (nodes, categories, 2) of categories alone, some of no row."""
    random = np.random.default_rng(seed)
    level = DrawnLevel.of(random, nodes, 4, **kind)
    alone = np.zeros((nodes, categories, 2), np.int64)
    for node, pairs in enumerate(level.pairs):
        # A few categories hold most rows, and some hold one, or none.
        parts = random.dirichlet(np.full(categories, 0.3))
        np.add.at(alone[node], random.choice(categories, len(pairs), p=parts), pairs)
        twin = random.integers(0, categories, 2)
        alone[node, twin[0]] = alone[node, twin[1]]
    return level, alone


def weight_words(level: DrawnLevel, alone: np.ndarray) -> np.ndarray:
    """What circuits sort by, of shared sums: integers (nodes, categories)."""
    circuit, field = level.circuit, level.field
    nodes, categories = alone.shape[:2]
    known = level.inputs(np.full(nodes, -np.inf, np.float32)).bits
    sums = field.joined(alone.reshape(-1, 2).view(np.uint64))
    inputs = shared_bits(np.random.default_rng(1), "sums", sums, 2 * field.bits)
    inputs |= {name: np.repeat(known[name], categories, axis=1) for name in weight_inputs(circuit)}
    found = in_the_clear(weight_schedule(circuit), inputs)
    np.testing.assert_array_equal(found["sums"], bits_of(sums, 2 * field.bits))
    return integers_of(found["weight"]).reshape(nodes, categories)


@pytest.mark.parametrize(
    "case", [*OFTEN, *seldom(*(case for case in CASES if case not in OFTEN))], ids=", ".join
)
def test_weights_are_ordered_and_tie_as_numpys_float32(case: tuple[str, str]) -> None:
    kind, arithmetic = case
    chosen = {**KINDS, **RULES}[kind]
    level, alone = drawn_categories({"xgboost_arithmetic": arithmetic, **chosen}, 20, 64)
    wanted = node_weights(level.scale.to_float(alone), level.params, UNBOUNDED)
    found = weight_words(level, alone)
    ranks = np.unique(wanted, return_inverse=True)[1].reshape(-1)
    np.testing.assert_array_equal(np.unique(found, return_inverse=True)[1].reshape(-1), ranks)
    assert len(np.unique(ranks)) > (1 if kind in ("two rows", "much alpha") else 20)


def test_sums_of_any_size_are_ordered_as_numpys_float32() -> None:
    """Sums of all magnitudes, and neighbours whose weights differ by their last bits, or tie."""
    random = np.random.default_rng(2)
    level, _ = drawn_categories({"reg_lambda": 0.3, "min_child_weight": 0.0}, 1, 4)
    sizes = random.integers(0, level.field.bits - 3, (1, 20_000, 2))
    alone = (np.ldexp(random.uniform(0.5, 1, sizes.shape), sizes)).astype(np.int64)
    alone[..., 0] *= random.choice([-1, 0, 1], alone.shape[:2], p=[0.48, 0.04, 0.48])
    alone[:, 10_000:] = alone[:, :10_000] + random.integers(0, 3, (1, 10_000, 2))
    wanted = node_weights(level.scale.to_float(alone), level.params, UNBOUNDED)
    ranks = np.unique(wanted, return_inverse=True)[1].reshape(-1)
    found = np.unique(weight_words(level, alone), return_inverse=True)[1].reshape(-1)
    np.testing.assert_array_equal(found, ranks)
    assert len(np.unique(ranks)) > 10_000


@pytest.mark.parametrize(
    ("rule", "ands"),
    [(GainRule("3.2"), 3111), (GainRule("3.4"), 3192)],
    ids=str,
)
def test_how_many_ands_a_weight_takes(rule: GainRule, ands: int) -> None:
    assert weight_schedule(GainCircuit(Field(57), rule)).ands == ands


@pytest.mark.parametrize("count", [1, 2, 3, 5, 8, 11])
def test_comparators_sort_all_words_of_zeros_and_ones(count: int) -> None:
    """So they sort any numbers (Knuth's zero-one principle)."""
    words = np.array(list(product([0, 1], repeat=count)))
    wanted = np.sort(words, axis=1)
    for layer in comparators(count):
        places = [place for pair in layer for place in pair]
        assert len(set(places)) == len(places)
        for low, high in layer:
            pair = np.sort(words[:, [low, high]], axis=1)
            words[:, [low, high]] = pair
    np.testing.assert_array_equal(words, wanted)


def run_in_the_clear(
    schedule: Schedule, inputs: Mapping[str, Labels]
) -> Generator[Any, Any, dict[str, Labels]]:
    """Labels are their bits."""
    found = in_the_clear(schedule, {name: of[..., 0].astype(bool) for name, of in inputs.items()})
    return {name: as_labels(bits) for name, bits in found.items()}
    yield


def as_labels(bits: np.ndarray) -> Labels:
    return np.stack([bits, np.zeros_like(bits)], axis=-1).astype(np.uint64)


def told_sets(columns: SetColumns, weights: np.ndarray) -> tuple[np.ndarray, list[Any]]:
    """The categories by their sorted places, and what is told at each place of one node's scan."""
    count = columns.categories
    of_category = {
        "weight": as_labels(bits_of(as_labels(weights), 8)),
        "sums": as_labels(bits_of(as_labels(np.arange(count)), 10)),
    }
    one = np.array([1, 0], np.uint64)
    sorting = sorted_categories(
        columns, of_category, place_labels(columns, one), 1, run_in_the_clear
    )
    found = finished(sorting)
    scanned = len(columns.scanned)
    bits = scanned.bit_length()
    inputs = {
        "won": np.ones((1, scanned), bool),
        "index": bits_of(as_labels(np.arange(scanned)), bits),
        "turned": np.repeat(found["turned"][..., 0].astype(bool), scanned, axis=1),
    }
    right = in_the_clear(set_schedule(columns, bits), inputs)["right"]
    lost = in_the_clear(set_schedule(columns, bits), inputs | {"won": ~inputs["won"]})["right"]
    assert not lost.any()
    told = [columns.split(place, right[:, place]) for place in range(scanned)]
    return integers_of(found["sums"][..., 0].astype(bool)), told


@given(
    sizes=st.lists(st.integers(2, 9), min_size=1, max_size=3),
    others=st.integers(0, 3),
    most=st.integers(2, 12),
    seed=st.integers(0, 2**32),
)
@examples(100)
def test_any_columns_are_scanned_as_xgboost_does(
    sizes: list[int], others: int, most: int, seed: int
) -> None:
    random = np.random.default_rng(seed)
    total = sum(sizes) + others * (len(sizes) + 1)
    starts = np.cumsum([others, *(size + others for size in sizes[:-1])]).tolist()
    held = [tuple(range(start, start + size)) for start, size in zip(starts, sizes, strict=True)]
    columns = SetColumns(total, tuple(held), most)
    weights = random.integers(0, 4, columns.categories).astype(np.uint64)  # many tie
    order, told = told_sets(columns, weights)
    wanted: list[int | CategorySet] = []
    for place in range(total):
        of_column = next((number for number, of in enumerate(held) if place in of), None)
        if of_column is None:
            wanted.append(place)
        elif place == held[of_column][0]:
            own = columns.slices()[of_column]
            sorted_ = np.argsort(weights[own], kind="stable")
            np.testing.assert_array_equal(order[own] - own.start, sorted_)
            wanted += sets_of(np.array(held[of_column]), sorted_, most)
    assert len(told) == len(wanted)
    for found, expected in zip(told, wanted, strict=True):
        if isinstance(expected, int):
            assert found == expected
        else:
            assert found.default_left == expected.default_left
            np.testing.assert_array_equal(found.right, expected.right)


def sets_of(candidates: np.ndarray, order: np.ndarray, most: int) -> list[CategorySet]:
    """XGBoost's, in its order."""
    steps = min(most, len(candidates)) - 1
    scan = SetScan(candidates, order, np.zeros((2 * steps, 2), np.int64))
    return [scan.split(place) for place in range(2 * steps)]


def test_how_many_ands_the_order_of_a_column_takes() -> None:
    """The README of circuits says so much of 10 and of 64 categories."""
    for count, pairs, ands in ((10, 32, 71), (64, 543, 794)):
        columns = SetColumns(count, (tuple(range(count)),), 64)
        assert sum(map(len, comparators(count))) == pairs
        assert set_schedule(columns, 7).ands <= ands
