"""What every exact engine owes: the sums of each candidate, to the last bit.

Noise that is too small for the grid owes them too.
"""

from __future__ import annotations

import numpy as np
import phe
import pytest

from fedmq.boosting.binning import BinMatrix, Cuts, histograms
from fedmq.boosting.gradients import Gradients
from fedmq.boosting.params import TrainParams
from fedmq.boosting.splits import CandidateTable
from fedmq.privacy.engine import Engine, HidesSums, PassiveHidesSums, Sums
from fedmq.privacy.engines.lattice import Lattice
from fedmq.privacy.engines.ldp import Ldp
from fedmq.privacy.engines.okamoto_uchiyama import OkamotoUchiyama
from fedmq.privacy.engines.paillier import Paillier
from fedmq.privacy.engines.plain import Plain
from fedmq.privacy.engines.smm1 import Smm1
from tests.privacy.engine_pair import EnginePair

_, PHE_KEY = phe.generate_paillier_keypair(n_length=256)

ENGINES = [
    Plain(),
    Paillier(key_bits=256, allow_weak_keys=True),
    Paillier(allow_weak_keys=True).with_key(PHE_KEY),
    OkamotoUchiyama(key_bits=384, allow_weak_keys=True),
    Smm1(r=6, r_used=3),
    Ldp(epsilon=1e15),
    Lattice(),
]


@pytest.fixture(params=ENGINES, ids=lambda engine: engine.name)
def engine(request: pytest.FixtureRequest) -> Engine:
    return request.param


def table(rows: int, features: int, seed: int, missing: float = 0.2) -> BinMatrix:
    random = np.random.default_rng(seed)
    values = random.normal(size=(rows, features)).astype(np.float32).round(1)
    values[random.random(values.shape) < missing] = np.nan
    return BinMatrix.of(values, Cuts.of(values, 8))


def gradients(rows: int, seed: int, subsample: float = 1.0, tree: int = 0) -> Gradients:
    random = np.random.default_rng(seed)
    margins = random.normal(size=rows).astype(np.float32)
    labels = random.integers(0, 2, rows).astype(np.float32)
    params = TrainParams(subsample=subsample, seed=seed)
    return Gradients.of(margins, labels, np.ones(rows, np.bool_), params, tree)


def expected(bins: BinMatrix, held: Gradients, rows: np.ndarray, candidates: CandidateTable):
    return candidates.left_sums(histograms(bins, held.pairs, [rows]))[0]


def halves(rows: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray]:
    left = np.random.default_rng(seed).random(len(rows)) < 0.3
    return rows[left], rows[~left]


@pytest.mark.parametrize("subsample", [1.0, 0.5])
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_sums_are_exact_down_the_tree_in_the_order_shown(
    engine: Engine, subsample: float, missing: float
) -> None:
    bins = table(120, 5, seed=1, missing=missing)
    pair = EnginePair(engine, bins)
    candidates = CandidateTable.of(bins.cuts)
    held = gradients(120, 2, subsample)
    pair.start_tree(held)
    level = {1: np.arange(120, dtype=np.int32)}
    for depth in range(3):
        orders = {
            node: np.random.default_rng(1 if engine.traits.keeps_numbers else node).permutation(
                len(candidates)
            )
            for node in level
        }
        answers = pair.ask_level(level, candidates, orders)
        for node, rows in level.items():
            answer = answers[node]
            assert isinstance(answer, Sums)
            np.testing.assert_array_equal(
                answer.left, expected(bins, held, rows, candidates)[orders[node]]
            )
        level = {
            2 * node + side: part
            for node, rows in level.items()
            for side, part in enumerate(halves(rows, depth))
        }


def test_nothing_of_a_tree_is_left_in_the_next(engine: Engine) -> None:
    bins = table(40, 3, seed=3)
    pair = EnginePair(engine, bins)
    candidates = CandidateTable.of(bins.cuts)
    order = {1: np.arange(len(candidates))}
    rows = np.arange(40, dtype=np.int32)
    for tree in range(2):
        held = gradients(40, 4, subsample=0.5, tree=tree)
        pair.start_tree(held)
        answer = pair.ask_level({1: rows}, candidates, order)[1]
        assert isinstance(answer, Sums)
        np.testing.assert_array_equal(answer.left, expected(bins, held, rows, candidates))


def test_features_left_out_of_a_tree_cost_nothing_and_change_nothing(engine: Engine) -> None:
    bins = table(60, 6, seed=5)
    pair = EnginePair(engine, bins)
    candidates = CandidateTable.of(bins.cuts, [1, 4])
    held = gradients(60, 6)
    pair.start_tree(held)
    rows = np.arange(60, dtype=np.int32)
    order = np.random.default_rng(0).permutation(len(candidates))
    answer = pair.ask_level({1: rows}, candidates, {1: order})[1]
    assert isinstance(answer, Sums)
    np.testing.assert_array_equal(answer.left, expected(bins, held, rows, candidates)[order])


@pytest.mark.parametrize(
    "engine",
    [
        *ENGINES,
        Lattice(sums="hidden"),
        Paillier(512, allow_weak_keys=True, sums="hidden"),
        OkamotoUchiyama(768, allow_weak_keys=True, sums="hidden"),
    ],
    ids=lambda engine: engine.name,
)
def test_halves_that_hide_sums_are_made_where_the_engine_says_so(engine: Engine) -> None:
    pair = EnginePair(engine, table(40, 3, seed=3))
    assert isinstance(pair.active, HidesSums) == engine.hides_sums
    assert isinstance(pair.passive, PassiveHidesSums) == engine.hides_sums


def test_a_party_without_features_has_no_candidates(engine: Engine) -> None:
    bins = table(10, 0, seed=0)
    pair = EnginePair(engine, bins)
    candidates = CandidateTable.of(bins.cuts)
    pair.start_tree(gradients(10, 0))
    answer = pair.ask_level({1: np.arange(10, dtype=np.int32)}, candidates, {1: np.arange(0)})[1]
    assert isinstance(answer, Sums)
    assert answer.left.shape == (0, 2)
