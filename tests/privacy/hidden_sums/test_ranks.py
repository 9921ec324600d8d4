"""Ranks of a few candidates name XGBoost's winner, or say that they leave a doubt."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedmq.boosting.params import OLDEST
from fedmq.boosting.splits import SMALLEST_GAIN
from fedmq.errors import MessageError
from fedmq.privacy.garbling.schedule import in_the_clear
from fedmq.privacy.hidden_sums.active import Filtering
from fedmq.privacy.hidden_sums.circuits import GAIN_BITS, GAIN_FORM, GainCircuit
from fedmq.privacy.hidden_sums.filter import SLOTS
from fedmq.privacy.hidden_sums.quotient import ranked_schedule, sides_schedule
from fedmq.privacy.hidden_sums.shares import Field
from fedmq.privacy.oblivious_transfer.correlated import bits_of, wide
from tests.how_often import seldom
from tests.privacy.hidden_sums.drawn_level import DrawnLevel
from tests.privacy.hidden_sums.gains import KINDS, shared_bits
from tests.privacy.hidden_sums.level_chain import divided
from tests.privacy.hidden_sums.level_chain import run as run_chain
from tests.privacy.hidden_sums.level_pair import LevelPair
from tests.privacy.hidden_sums.test_chain import wanted
from tests.privacy.hidden_sums.test_level import check, drawn, own_gains

U = 2.0**-21


def words(bits: np.ndarray) -> np.ndarray:
    return bits.astype(np.int64).T @ (1 << np.arange(len(bits)))


def floats(bits: np.ndarray) -> np.ndarray:
    """The numbers of words of `GAIN_FORM`: longdouble (n,)."""
    found, exponents = words(bits[:24]), words(bits[24:])
    return np.ldexp(found.astype(np.longdouble), (exponents - GAIN_FORM.bias - 23).astype(int))


def sides(level: DrawnLevel, to_beat: np.ndarray, seed: int = 0) -> dict[str, np.ndarray]:
    """Outputs of the circuit of sides, of all candidates, from random shares."""
    random, field = np.random.default_rng(seed), level.field
    sums = field.joined(level.left.reshape(-1, 2).view(np.uint64))
    inputs = shared_bits(random, "sums", sums, 2 * field.bits)
    known = level.inputs(to_beat).bits
    for name in ("H", "G", "lambda", "least weight"):
        inputs[name] = np.repeat(known[name], level.left.shape[1], axis=1)
    return in_the_clear(sides_schedule(field), inputs)


def true_sides(level: DrawnLevel) -> np.ndarray:
    """G_L² / (H_L + lambda) + G_R² / (H_R + lambda) in units of the circuit: (nodes, C)."""
    weight = np.ldexp(np.longdouble(level.params.reg_lambda), level.scale.h_bits)
    left = level.left.astype(np.longdouble)
    right = (level.totals[:, np.newaxis] - level.left).astype(np.longdouble)
    with np.errstate(all="ignore"):
        parts = [side[..., 0] ** 2 / (side[..., 1] + weight) for side in (left, right)]
    return parts[0] + parts[1]


@pytest.mark.parametrize("kind", KINDS, ids=lambda name: name.replace(" ", "-"))
def test_sides_lie_within_their_bounds(kind: str) -> None:
    level = DrawnLevel.of(np.random.default_rng(1), 10, 300, **KINDS[kind])
    found = sides(level, np.zeros(10, np.float32))
    shown, true = floats(found["sides"]), true_sides(level).reshape(-1)
    heavy = np.isfinite(level.gains.reshape(-1))
    assert heavy.any()
    assert not shown[~heavy].any()
    shown, true = shown[heavy], true[heavy]
    assert (shown <= true * (1 + np.longdouble(2.6) * U)).all()
    assert (shown >= true * (1 - np.longdouble(3.6) * U)).all()
    joined = bits_of(
        level.field.joined(level.left.reshape(-1, 2).view(np.uint64)), len(found["sums"])
    )
    assert (found["sums"] == joined).all()


def test_sides_of_all_shares_of_the_sums_of_a_small_ring() -> None:
    field, total, weight, least = Field(6), np.array([3, 13]), 2, 2
    g, h = (part.ravel() for part in np.meshgrid([-15, -4, 0, 3, 9, 15], [0, 1, 2, 6, 11, 13]))
    p = np.arange(4096)
    sums = np.repeat(g * 64 + h, len(p)) % 4096
    own = np.tile(p, len(g))
    inputs = {
        "own sums": bits_of(wide(own.astype(np.uint64)), 12),
        "other sums": bits_of(wide(((sums - own) % 4096).astype(np.uint64)), 12),
    }
    for name, number, bits in (("G", 3, 6), ("H", 13, 6), ("least weight", least, 6)):
        inputs[name] = np.repeat(bits_of(wide(np.array([number], np.uint64)), bits), len(sums), 1)
    known = bits_of(wide(np.array([weight], np.uint64)), field.weight_bits)
    inputs["lambda"] = np.repeat(known, len(sums), 1)
    found = in_the_clear(sides_schedule(field), inputs)
    assert (words(found["sums"]) == sums).all()
    heavy = np.repeat((h >= least) & (total[1] - h >= least), len(p))
    # Of |G_R| up to 18, which the field holds, though not as a sum of a session.
    true = np.repeat(g**2 / (h + weight) + (total[0] - g) ** 2 / (total[1] - h + weight), len(p))
    inside = heavy & np.repeat(np.abs(total[0] - g) < field.bound, len(p))
    shown = floats(found["sides"]).astype(np.float64)
    assert not shown[~heavy].any()
    assert (np.abs(shown - true)[inside] <= 3.6 * U * true[inside]).all()


def ranked(
    level: DrawnLevel, slots: np.ndarray, to_beat: np.ndarray, *, alone: bool = True
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """By node: the slot named, whether it wins, and whether there is a doubt."""
    left = np.take_along_axis(level.left, slots[..., np.newaxis], axis=1)
    level = replace(level, left=left)
    found, known = sides(level, to_beat), level.inputs(to_beat).bits
    nodes = len(slots)
    inputs = {name: known[name] for name in ("G", "H")}
    inputs["to beat"] = known["sides to beat"]
    for name in ("sides", "sums"):
        by_slot = found[name].reshape(len(found[name]), nodes, SLOTS).transpose(2, 0, 1)
        inputs[name] = by_slot.reshape(-1, nodes)
    told = in_the_clear(ranked_schedule(level.field, SLOTS, alone), inputs)
    wins = words(told["sides"]) > words(inputs["to beat"])
    return words(told["index"]), wins, told["doubtful"][0]


@pytest.mark.parametrize("arithmetic", ["3.4", *seldom(OLDEST)])
@pytest.mark.parametrize("kind", KINDS, ids=lambda name: name.replace(" ", "-"))
def test_no_rank_without_a_doubt_is_wrong(kind: str, arithmetic: str) -> None:
    """Of the best candidates, and of some drawn at random, beside an own gain that is close."""
    random = np.random.default_rng(2)
    level = DrawnLevel.of(random, 40, 100, **{**KINDS[kind], "xgboost_arithmetic": arithmetic})
    gains = level.gains
    best = np.maximum(gains.max(axis=1), 0)
    steps = np.resize(np.array([0, 0.5, 1, 1 - 2.0**-19, 1 - 2.0**-14, 1 + 2.0**-14, 2]), len(best))
    to_beat = (best * steps).astype(np.float32)
    of_best = np.sort(np.argsort(-gains, axis=1)[:, :SLOTS], axis=1)
    drawn_slots = np.sort(random.integers(0, 100, of_best.shape), axis=1)
    sure = 0
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
    assert sure > 30


def test_candidates_that_tie_leave_no_doubt() -> None:
    """With equal sums, or with exchanged sides: the first stays."""
    level = DrawnLevel.of(np.random.default_rng(3), 12, 50, xgboost_arithmetic="3.4")
    left = level.left.copy()
    first = level.gains.argmax(axis=1)
    slots = np.stack([first, np.full(12, 50), np.full(12, 51), (first + 1) % 50], axis=1)
    best = np.take_along_axis(left, first[:, np.newaxis, np.newaxis], axis=1)
    left = np.concatenate([left, best, level.totals[:, np.newaxis] - best], axis=1)
    level = replace(level, left=left)
    index, wins, doubtful = ranked(level, slots, level.gains.max(axis=1) * np.float32(0.9))
    same = level.gains[np.arange(12), first] == level.gains[np.arange(12), (first + 1) % 50]
    assert not index.any()
    assert wins.all()
    assert (~doubtful | same).all()
    assert not doubtful.all()


def test_a_gain_next_to_the_best_leaves_a_doubt() -> None:
    """Of words up to 64 apart, unless they are surely beaten."""
    field, best = Field(20), 5 << 24 | 1 << 23
    apart = np.array([0, 1, 63, 64, 65, 10_000])
    count = len(apart)
    inputs = {name: np.zeros((20, count), np.bool_) for name in ("G", "H")}
    held = np.stack([bits_of(wide(np.full(count, slot, np.uint64)), 40) for slot in range(SLOTS)])
    inputs["sums"] = held.reshape(-1, count)
    shown = np.stack([np.full(count, word) for word in (7, best, 9, 11)])
    shown[3] = best - apart
    sizes = [bits_of(wide(part.astype(np.uint64)), GAIN_BITS) for part in shown]
    inputs["sides"] = np.concatenate(sizes)
    for beaten, wanted_doubts in ((0, apart <= 64), (best + 1000, apart < 0)):
        word = np.full(count, beaten, np.uint64)
        inputs["to beat"] = bits_of(wide(word), GAIN_BITS)
        told = in_the_clear(ranked_schedule(field, SLOTS, True), inputs)
        assert (words(told["index"]) == 1).all()
        assert told["doubtful"][0].tolist() == wanted_doubts.tolist()
    inputs["to beat"] = bits_of(wide((best - apart).astype(np.uint64)), GAIN_BITS)
    inputs["sides"] = np.concatenate([*sizes[:3], sizes[0]])
    told = in_the_clear(ranked_schedule(field, SLOTS, True), inputs)
    assert told["doubtful"][0].tolist() == (apart < 64).tolist()
    assert not in_the_clear(ranked_schedule(field, SLOTS, False), inputs)["doubtful"].any()


def test_how_many_ands_a_ranking_takes() -> None:
    assert sides_schedule(Field(57)).ands == 4488
    assert ranked_schedule(Field(57), SLOTS, True).ands == 1908
    assert ranked_schedule(Field(57), SLOTS, False).ands == 1855


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
    level = drawn(5, 60, 6, xgboost_arithmetic="3.4")
    levels = divided(level, [24, 26, 10])
    to_beat = own_gains(level, 0, 0.5, 0.999, 1, 2)
    told = run_chain(levels, to_beat)
    assert (told.owners, told.index) == wanted(levels, to_beat)
    assert len(set(told.owners)) > 2


def test_the_rule_tells_that_candidates_are_ranked() -> None:
    level = drawn(1, 40, xgboost_arithmetic="3.4")
    circuit = level.circuit
    assert circuit.ranked
    assert GainCircuit.read(level.field, circuit.told()) == circuit
    assert not drawn(1, 40, xgboost_arithmetic=OLDEST).circuit.ranked
    oldest = np.frombuffer(b"ranked", np.uint8)
    with pytest.raises(MessageError, match="rules that this party does not know"):
        GainCircuit.read(level.field, oldest)


def test_candidates_are_no_longer_ranked_once_many_nodes_were_doubtful() -> None:
    filtering = Filtering()
    filtering.count(100, 0, 6)
    assert filtering.ranks
    filtering.count(0, 0, 1)
    assert (filtering.ranks, filtering.goes_on) == (False, True)
