"""Ranks of a few candidates name XGBoost's winner, or say that they leave a doubt."""

from __future__ import annotations

from dataclasses import replace
from itertools import compress, product

import numpy as np
import pytest

from fedmq.boosting.params import OLDEST
from fedmq.boosting.splits import SMALLEST_GAIN
from fedmq.errors import MessageError
from fedmq.privacy.engine import ALONE, Place
from fedmq.privacy.garbling.schedule import in_the_clear
from fedmq.privacy.hidden_sums.active import Filtering
from fedmq.privacy.hidden_sums.circuits import GainCircuit
from fedmq.privacy.hidden_sums.filter import MOST_SLOTS, SLOTS, Precision
from fedmq.privacy.hidden_sums.quotient import (
    RANKED_ANDS,
    fine_schedule,
    ranked_inputs,
    ranked_schedule,
)
from fedmq.privacy.hidden_sums.shares import Field
from fedmq.privacy.oblivious_transfer.correlated import bits_of, wide
from tests.how_often import seldom
from tests.privacy.hidden_sums.drawn_level import DrawnLevel
from tests.privacy.hidden_sums.filtered import factors_of, quotients
from tests.privacy.hidden_sums.gains import KINDS
from tests.privacy.hidden_sums.level_chain import divided
from tests.privacy.hidden_sums.level_chain import run as run_chain
from tests.privacy.hidden_sums.level_pair import LevelPair
from tests.privacy.hidden_sums.test_chain import wanted
from tests.privacy.hidden_sums.test_level import check, drawn, own_gains


def words(bits: np.ndarray) -> np.ndarray:
    return bits.astype(np.int64).T @ (1 << np.arange(len(bits)))


def ranked(
    level: DrawnLevel, slots: np.ndarray, to_beat: np.ndarray, *, alone: bool = True
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """By node that fits: the slot named, whether it wins, and whether there is a doubt."""
    left = np.take_along_axis(level.left, slots[..., np.newaxis], axis=1)
    level = replace(level, left=left)
    c, nodes = Precision.fine(level.field), len(slots)
    factors = [node.fine for node in factors_of(level, to_beat)]
    random = np.random.default_rng(0)
    found = quotients(random, c, level.field, level.shares(random), factors)
    sums = level.field.joined(left.view(np.uint64))
    sizes = ranked_inputs(c, level.field)
    inputs = {
        name: shown(found[name], bits) for name, bits in (("low", 17), ("high", 17), ("may", 1))
    }
    inputs["sums"] = bits_of(sums, 2 * level.field.bits).transpose(2, 0, 1).reshape(-1, nodes)
    for name in ("to_beat", "beaten"):
        numbers = np.array([getattr(node, name) for node in factors])
        inputs[name.replace("_", " ")] = bits_of(wide(numbers), c.quotient_bits + 1)
    inputs["unranked"] = np.zeros((1, nodes), np.bool_)
    for name, numbers in (("G", level.totals[:, 0]), ("H", level.totals[:, 1])):
        inputs[name] = bits_of(wide(numbers), sizes[name])
    told = in_the_clear(ranked_schedule(c, level.field, SLOTS, alone), inputs)
    wins = words(told["low"]) > words(inputs["beaten"])
    return words(told["index"]), wins, told["doubtful"][0]


def shown(numbers: np.ndarray, bits: int) -> np.ndarray:
    """Numbers (nodes, slots) as inputs, slot by slot."""
    return np.concatenate([bits_of(wide(of_slot), bits) for of_slot in numbers.T.astype(np.int64)])


@pytest.mark.parametrize("arithmetic", [OLDEST, *seldom("3.4")])
@pytest.mark.parametrize(
    "kind", sorted({*KINDS} - {"two rows"}), ids=lambda name: name.replace(" ", "-")
)
def test_no_rank_without_a_doubt_is_wrong(kind: str, arithmetic: str) -> None:
    """Of the best candidates, and of some drawn at random, beside an own gain that is close."""
    random = np.random.default_rng(2)
    level = DrawnLevel.of(random, 40, 100, **{**KINDS[kind], "xgboost_arithmetic": arithmetic})
    best = np.maximum(level.gains.max(axis=1), 0)
    steps = np.resize(np.array([0, 0.5, 1, 1 - 2.0**-19, 1 - 2.0**-10, 1 + 2.0**-10, 2]), len(best))
    to_beat = (best * steps).astype(np.float32)
    fit = [node is not None and node.fine is not None for node in factors_of(level, to_beat)]
    level = replace(level, left=level.left[fit], totals=level.totals[fit])
    level = replace(level, pairs=tuple(compress(level.pairs, fit)))
    gains, to_beat, sure = level.gains, to_beat[fit], 0
    of_best = np.sort(np.argsort(-gains, axis=1)[:, :SLOTS], axis=1)
    drawn_slots = np.sort(random.integers(0, 100, of_best.shape), axis=1)
    for slots in (of_best, drawn_slots):
        index, wins, doubtful = ranked(level, slots, to_beat)
        of_slots = np.take_along_axis(gains, slots, axis=1)
        most = of_slots.max(axis=1)
        worth = (most > to_beat) & (most > SMALLEST_GAIN)
        assert (wins == worth)[~doubtful].all()
        first = of_slots.argmax(axis=1)
        assert (index == first)[~doubtful & worth].all()
        index, _, in_chain = ranked(level, slots, to_beat, alone=False)
        assert (index == first)[~in_chain & worth].all()
        assert not (in_chain & ~doubtful).any()
        sure += int((~doubtful).sum())
    assert sure > 15


def test_candidates_that_tie_leave_no_doubt() -> None:
    """With equal sums, or with exchanged sides: the first stays, whatever their quotients are."""
    level = DrawnLevel.of(np.random.default_rng(3), 12, 50, xgboost_arithmetic="3.4")
    left = level.left.copy()
    first = level.gains.argmax(axis=1)
    slots = np.stack([first, np.full(12, 50), np.full(12, 51), (first + 1) % 50], axis=1)
    best = np.take_along_axis(left, first[:, np.newaxis, np.newaxis], axis=1)
    left = np.concatenate([left, best, level.totals[:, np.newaxis] - best], axis=1)
    level = replace(level, left=left)
    index, wins, doubtful = ranked(level, slots, level.gains.max(axis=1) * np.float32(0.9))
    assert not index[~doubtful].any()
    assert wins[~doubtful].all()
    assert (~doubtful).sum() > 4


def test_what_leaves_a_doubt() -> None:
    """Quotients that touch, unless all are surely beaten, or the others are too light."""
    field, c = Field(20), Precision.fine(Field(20))
    high = np.array([5000, 4999, 7000, 7000, 7000, 1 << 16, 100])
    beaten = np.array([0, 0, 0, 9000, 0, 0, 6000])
    may = np.array([1, 1, 0, 1, 1, 1, 1])
    unranked = np.array([0, 0, 0, 0, 1, 0, 0])
    count = len(high)
    inputs = {name: np.zeros((20, count), np.bool_) for name in ("G", "H")}
    held = [bits_of(wide(np.full(count, 3 + slot)), 40) for slot in range(SLOTS)]
    inputs["sums"] = np.concatenate(held)
    best = np.full(count, 5000)
    lows = np.stack([np.zeros_like(best), best, best - 4000, best - 4000], axis=1)
    highs = np.stack([np.zeros_like(best), best + 20, best - 3000, high], axis=1)
    inputs["low"], inputs["high"] = shown(lows, 17), shown(highs, 17)
    inputs["may"] = shown(np.stack([may * 0, may * 0 + 1, may * 0 + 1, may], axis=1), 1)
    inputs["beaten"] = bits_of(wide(beaten), 17)
    inputs["to beat"] = bits_of(wide(np.maximum(beaten - 5, 0)), 17)
    inputs["unranked"] = bits_of(wide(unranked), 1)
    told = in_the_clear(ranked_schedule(c, field, SLOTS, True), inputs)
    assert (words(told["index"]) == 1).all()
    assert told["doubtful"][0].tolist() == [True, False, False, False, True, True, False]
    inputs["beaten"] = bits_of(wide(best), 17)
    inputs["to beat"] = bits_of(wide(best), 17)
    told = in_the_clear(ranked_schedule(c, field, SLOTS, True), inputs)
    assert told["doubtful"][0].all()
    told = in_the_clear(ranked_schedule(c, field, SLOTS, False), inputs)
    assert told["doubtful"][0].tolist() == [True, False, False, True, True, True, False]


def test_how_many_ands_a_ranking_takes() -> None:
    c = Precision.fine(Field(57))
    assert fine_schedule(c, Field(57)).ands == 1258
    assert ranked_schedule(c, Field(57), SLOTS, True).ands == 1981
    lengths = (Precision.fine, Precision.far)
    for bits, length in product((6, 64), lengths):
        c = length(Field(bits))
        quotient = fine_schedule(c, Field(bits)).ands
        for slots in (SLOTS, MOST_SLOTS):
            ranks = ranked_schedule(c, Field(bits), slots, True).ands
            assert quotient * slots + ranks <= RANKED_ANDS * slots


def test_a_level_is_ranked_and_a_doubt_is_decided_by_gains() -> None:
    level = drawn(4, 40, 4, xgboost_arithmetic="3.4")
    left = level.left.copy()
    best = level.gains.argmax(axis=1)
    for node in (0, 1):  # by a unit of the 40th bit
        left[node, 39] = left[node, best[node]] + [1, 0]
    level = replace(level, left=left)
    to_beat = own_gains(level, 0.9, 0.9, 0.9, 1)
    pair = LevelPair()
    told = pair.run(level, to_beat)
    assert check(level, to_beat, told) == [True, True, True, False]
    assert told.doubtful[:3] == [True, True, False]
    assert pair.run(level, to_beat, apart=True).index == told.index
    sure = own_gains(level, 2)
    again = pair.run(level, sure)
    assert not any(check(level, sure, again) + again.doubtful)
    assert again.bytes < told.bytes


@pytest.mark.long
def test_a_chain_computes_gains_of_the_best_alone() -> None:
    level = replace(drawn(5, 60, 6, xgboost_arithmetic="3.4"), far=True)
    levels = divided(level, [24, 26, 10])
    to_beat = own_gains(level, 0, 0.5, 0.999, 1, 2)
    told = run_chain(levels, to_beat)
    assert (told.owners, told.index) == wanted(levels, to_beat)
    assert len(set(told.owners)) > 2


def test_the_rule_tells_that_candidates_are_ranked() -> None:
    for arithmetic in (OLDEST, "3.4"):
        level = drawn(1, 40, xgboost_arithmetic=arithmetic)
        circuit = level.circuit.ranked_at(ALONE)
        assert circuit.ranked
        assert GainCircuit.read(level.field, circuit.told()) == circuit
        far = replace(circuit, far=True)
        assert GainCircuit.read(level.field, far.told()) == far
        assert level.circuit.ranked_at(Place(1, 2)).ranked == (arithmetic != OLDEST)
    for filtered in (b"ahead alpha ranked", b"ahead alpha far"):
        with pytest.raises(MessageError, match="rules that this party does not know"):
            GainCircuit.read(level.field, np.frombuffer(filtered, np.uint8))


def test_candidates_are_no_longer_ranked_once_many_nodes_were_doubtful() -> None:
    filtering = Filtering()
    filtering.count(100, 0, doubtful=6)
    assert filtering.ranks
    filtering.count(0, 0, doubtful=1)
    assert (filtering.ranks, filtering.goes_on) == (False, True)
