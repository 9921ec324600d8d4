"""A level with columns of categories: XGBoost's best set wins, and only its owner learns it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fedmq.boosting.splits import CategorySet, SetScan, best, is_worthwhile, split_gains
from fedmq.errors import MessageError
from fedmq.privacy.engine import ALONE, Winner
from fedmq.privacy.hidden_sums.category_order import (
    MOST_ORDERED_BITS,
    MOST_WEIGHT_ANDS,
    SetColumns,
    weight_schedule,
)
from fedmq.privacy.hidden_sums.level import HiddenLevel, evaluator_bytes, garbler_bytes
from fedmq.privacy.hidden_sums.sides import Unpacked, pieces_of
from tests.how_often import seldom
from tests.privacy.hidden_sums.drawn_level import DrawnLevel
from tests.privacy.hidden_sums.driven import size
from tests.privacy.hidden_sums.gains import ARITHMETICS, RULES
from tests.privacy.hidden_sums.level_pair import LevelPair, talked
from tests.privacy.hidden_sums.simulator import made_up


def level_of_categories(
    nodes: int,
    columns: SetColumns,
    seed: int = 0,
    missing: float = 0.1,
    noise: float = 38,
    extreme: bool = False,
    **kind: Any,
) -> DrawnLevel:
    """Some candidates are cuts, others one category alone on the right, which g explains.

    ``missing``: the share of rows in no category, at random or those of ``extreme`` g.
    """
    random = np.random.default_rng(seed)
    level = DrawnLevel.of(random, nodes, columns.candidates, **{"rows": 700, **kind})
    left = level.left.copy()
    for node, pairs in enumerate(level.pairs):
        for held in columns.columns:
            noisy = pairs[:, 0] + random.normal(size=len(pairs)) * 2.0**noise
            rank = np.argsort(np.argsort(noisy))
            of_row = random.permutation(len(held))[rank * len(held) // max(1, len(pairs))]
            if extreme:  # those of the lowest g, or of the highest
                of_rank = rank if node % 2 else len(rank) - 1 - rank
                present = of_rank >= missing * len(pairs)
            else:
                present = random.random(len(pairs)) >= missing
            for place, candidate in enumerate(held):
                alone = pairs[present & (of_row == place)].sum(axis=0)
                left[node, candidate] = level.totals[node] - alone
    limits = {"max_cat_to_onehot": 1, "max_cat_threshold": columns.most}
    return replace(level, left=left, params=level.params.model_copy(update=limits))


def wanted(level: DrawnLevel, columns: SetColumns, to_beat: np.ndarray) -> list[Winner | None]:
    """XGBoost's winners, of sums in the clear."""
    return [of_node(level, columns, node, own) for node, own in enumerate(to_beat.tolist())]


def of_node(level: DrawnLevel, columns: SetColumns, node: int, to_beat: float) -> Winner | None:
    left, total, of_category = level.left[node], level.totals[node], dict[int, SetScan]()
    for held in columns.columns:
        given = (np.array(held), left, total, level.scale, level.params)
        of_category |= {held[0]: SetScan.of(*given)} | dict.fromkeys(held[1:])
    sums: list[np.ndarray] = []
    splits: list[Winner] = []
    for candidate in range(columns.candidates):
        if candidate not in of_category:
            sums.append(left[candidate])
            splits.append(candidate)
        elif (scan := of_category[candidate]) is not None:
            sums += list(scan.left)
            splits += [scan.split(place) for place in range(len(scan))]
    side = np.stack(sums)
    floats = [level.scale.to_float(part) for part in (side, total - side, total)]
    gain, reached = best(split_gains(*floats, level.params))
    won = is_worthwhile(gain, level.params) and gain > to_beat
    return splits[int(reached[0])] if won else None


def assert_same(found: list[Winner | None], expected: list[Winner | None]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        if isinstance(other, CategorySet):
            assert isinstance(one, CategorySet)
            assert one.default_left == other.default_left
            np.testing.assert_array_equal(one.right, other.right)
        else:
            assert one == other


TOWNS = SetColumns(20, (tuple(range(3, 14)),), 64)
TWO = SetColumns(17, (tuple(range(6)), tuple(range(9, 17))), 64)
ALL = SetColumns(7, (tuple(range(7)),), 64)


@pytest.mark.parametrize("columns", [TOWNS, *seldom(TWO, ALL, replace(TWO, most=4))], ids=str)
@pytest.mark.parametrize(
    "kind",
    [
        {},
        *seldom(
            {"xgboost_arithmetic": "3.4"},
            {"reg_lambda": 0.0, "min_child_weight": 0.0},
            {"reg_alpha": 0.5, "max_delta_step": 0.3},
            {"gradient_bits": 4},
            {"reg_lambda": 1e-20},
            {"missing": 0.0},
        ),
    ],
    ids=str,
)
def test_the_best_set_wins(columns: SetColumns, kind: dict[str, Any]) -> None:
    level = level_of_categories(5, columns, 3, **kind)
    none = np.full(5, -np.inf, np.float32)
    expected = wanted(level, columns, none)
    assert any(isinstance(winner, CategorySet) for winner in expected)
    to_beat = np.where(np.arange(5) == 4, np.float32(1e9), none).astype(np.float32)
    expected[4] = None
    assert_same(told(level, columns, to_beat), expected)


def told(
    level: DrawnLevel, columns: SetColumns, to_beat: np.ndarray, **given: Any
) -> list[Winner | None]:
    evaluator, garbler = LevelPair().halves(level, to_beat, sets=columns, **given)
    learned, winners, received, sent = talked(evaluator, garbler, apart=False)
    assert learned.won.tolist() == [winner is not None for winner in winners]
    hidden = HiddenLevel.of(evaluator.level.circuit, *level.left.shape[:2], ALONE, columns)
    assert sum(map(size, received)) <= garbler_bytes(hidden)
    assert sum(map(size, sent)) <= evaluator_bytes(hidden)
    return winners


def test_missing_values_decide_on_which_side_they_go() -> None:
    level = level_of_categories(6, TOWNS, 8, missing=0.3, extreme=True)
    none = np.full(6, -np.inf, np.float32)
    found = told(level, TOWNS, none)
    assert_same(found, wanted(level, TOWNS, none))
    directions = {winner.default_left for winner in found if isinstance(winner, CategorySet)}
    assert directions == {True, False}


def test_whole_nodes_find_the_same_sets() -> None:
    level = level_of_categories(3, TOWNS, 5)
    none = np.full(3, -np.inf, np.float32)
    found = told(level, TOWNS, none, factors=[None] * 3)
    assert_same(found, wanted(level, TOWNS, none))


def test_a_party_in_another_process_finds_the_same_sets() -> None:
    level = level_of_categories(2, ALL, 3)
    none = np.full(2, -np.inf, np.float32)
    evaluator, garbler = LevelPair().halves(level, none, sets=ALL)
    _, winners, _, _ = talked(evaluator, garbler, apart=True)
    assert_same(winners, wanted(level, ALL, none))


def test_who_knows_the_winners_alone_makes_up_all_that_the_active_party_gets() -> None:
    """Also what it reads of sorted sums, and of who goes right: all of it is random bits."""
    level = level_of_categories(6, TOWNS, 6, noise=42)
    none = np.full(6, -np.inf, np.float32)
    learned, _, received, _ = talked(*LevelPair().halves(level, none, sets=TOWNS), apart=False)
    session = LevelPair()
    evaluator, _ = session.halves(level, none, b"other" * 6, sets=TOWNS)
    sizes, chooser = list(map(size, received)), session.back[1].party
    found, simulated = made_up(evaluator, learned, sizes, chooser, 1)
    for name in ("won", "crowded", "overfull", "doubtful"):
        np.testing.assert_array_equal(getattr(found, name), getattr(learned, name))
    for parcels in (received, simulated):
        weights, order = parcels[:2]
        for heard in (weights, order):
            bits = np.unpackbits(np.concatenate([piece["bytes"] for piece in heard]))
            assert abs(bits.mean() - 0.5) < 5 / 2 / np.sqrt(len(bits))
        masked = np.concatenate([piece["bytes"] for piece in order])[-masked_bytes(level, TOWNS) :]
        bits = np.unpackbits(masked)
        assert abs(bits.mean() - 0.5) < 5 / 2 / np.sqrt(len(bits))


def masked_bytes(level: DrawnLevel, columns: SetColumns) -> int:
    return 2 * level.field.bits * columns.categories * len(level.left) // 8


def test_what_the_active_party_reads_of_sorted_sums_is_new_in_each_level() -> None:
    """Masks of two levels of one session differ, though seeds and sums do not."""
    level, pair = level_of_categories(1, ALL, 3), LevelPair()
    none = np.full(1, -np.inf, np.float32)
    read = []
    for _ in range(2):
        evaluator, garbler = pair.halves(level, none, sets=ALL)
        talked(evaluator, garbler, apart=False)
        assert evaluator.sets is not None
        read.append(evaluator.sets.scanned)
    assert not (read[0] == read[1]).any()


@pytest.mark.long
@pytest.mark.parametrize("kind", RULES)
def test_limits_hold_for_any_rule(kind: str) -> None:
    for arithmetic in ARITHMETICS:
        rule = {"xgboost_arithmetic": arithmetic, **RULES[kind]}
        schedule = weight_schedule(DrawnLevel.of(np.random.default_rng(0), 1, 4, **rule).circuit)
        assert schedule.ands <= MOST_WEIGHT_ANDS
        assert len(schedule.outputs["weight"].place) <= MOST_ORDERED_BITS


def test_categories_that_no_circuit_has_told_are_no_claim() -> None:
    level = level_of_categories(1, ALL, 3)
    none = np.full(1, -np.inf, np.float32)
    evaluator, garbler = LevelPair().halves(level, none, sets=ALL)
    talked(evaluator, garbler, apart=False)
    labels = evaluator.claim(np.ones(1, np.bool_))
    assert_same(garbler.named(parcel(labels)), wanted(level, ALL, none))
    labels[-1, 0, 0] ^= np.uint64(4)
    with pytest.raises(MessageError, match="no circuit has shown"):
        garbler.named(parcel(labels))
    assert garbler.named(parcel(np.zeros_like(labels))) == [None]


def parcel(labels: np.ndarray) -> Unpacked:
    return Unpacked(pieces_of(labels))
