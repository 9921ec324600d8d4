"""What makes the encrypting engines fast changes nothing of their sums."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from fedmq.boosting.params import TrainParams
from fedmq.boosting.splits import CandidateTable
from fedmq.privacy.engine import Sums
from fedmq.privacy.engines.okamoto_uchiyama import OkamotoUchiyama
from fedmq.privacy.engines.paillier import Paillier
from fedmq.privacy.homomorphic import passive as homomorphic_passive
from fedmq.privacy.homomorphic.engine import AdditiveEngine
from fedmq.privacy.plan import Compute
from fedmq.simulation.simulate import simulate
from tests.how_often import seldom
from tests.privacy.engine_pair import EnginePair
from tests.privacy.test_engine_contract import expected, gradients, table

SWITCHES = [option.name for option in fields(AdditiveEngine) if option.type == "bool"]
SWITCHES.remove("allow_weak_keys")


@pytest.mark.parametrize("switch", SWITCHES)
@pytest.mark.parametrize("engine", [Paillier, OkamotoUchiyama])
def test_sums_are_the_same_with_a_trick_switched_off(
    engine: type[AdditiveEngine], switch: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(homomorphic_passive, "_FEWEST_ROWS", 20)
    bins = table(120, 5, seed=1)
    held = gradients(120, 2, subsample=0.7)
    for columns in (None, [0, 3]):
        pair = EnginePair(engine(384, allow_weak_keys=True, **{switch: False}), bins)
        candidates = CandidateTable.of(bins.cuts, columns)
        pair.start_tree(held, candidates)
        left = np.random.default_rng(3).random(120) < 0.4
        rows = np.arange(120, dtype=np.int32)
        for level in ({1: rows}, {2: rows[left], 3: rows[~left]}):
            orders = {
                node: np.random.default_rng(node).permutation(len(candidates)) for node in level
            }
            answers = pair.ask_level(level, candidates, orders)
            for node, standing in level.items():
                answer = answers[node]
                assert isinstance(answer, Sums)
                np.testing.assert_array_equal(
                    answer.left, expected(bins, held, standing, candidates)[orders[node]]
                )


@pytest.mark.parametrize("engine", ["ou", *seldom("paillier")])
def test_models_are_identical_with_all_switches_on_and_off(engine: str) -> None:
    random = np.random.default_rng(0)
    table = random.normal(size=(300, 6)).round(1)
    label = (table.sum(axis=1) + random.normal(size=300) > 0).astype(int)
    models = []
    for options in ({}, dict.fromkeys(SWITCHES, False)):
        model = simulate(
            active=table[:, :3],
            label=label,
            passive={"telco": table[:, 3:]},
            params=TrainParams(num_boost_round=2, max_depth=3, max_bin=16),
            engine=engine,
            engine_options={"key_bits": 384, "allow_weak_keys": True, **options},
            workers=1,
        )
        models.append(
            (model.share.model_dump_json(), model.passive_shares["telco"].model_dump_json())
        )
    assert models[0] == models[1]


def test_the_root_is_summed_while_its_gradients_come_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(homomorphic_passive, "_FEWEST_ROWS", 100)
    bins = table(300, 3, seed=1)
    pair = EnginePair(Paillier(256, allow_weak_keys=True), bins)
    held = gradients(300, 2)
    monkeypatch.setattr("fedmq.privacy.homomorphic.active._MOST_ROWS_PER_PIECE", 50)
    early = 0
    for plan in pair.active.broadcast(held):
        piece = pair._run(plan)
        receiving = pair.passive.receive(0, piece)
        try:
            step = next(receiving)
            assert isinstance(step, Compute)
            early += sum(len(computation.rows) for computation in step.computations)
            receiving.send([computation.run() for computation in step.computations])
        except StopIteration:
            pass
    assert early == 300


def test_noise_that_was_made_ahead_is_used_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedmq.privacy.homomorphic.active._NOISE_AT_ONCE", 16)
    bins = table(100, 3, seed=1)
    pair = EnginePair(Paillier(256, allow_weak_keys=True), bins)
    seen: list[bytes] = []
    fresh: list[int] = []
    for tree in range(3):
        for plan in pair.active.broadcast(gradients(100, tree)):
            step = next(plan)
            [encrypt] = step.computations
            *_, pairs, noise = encrypt.args
            seen += [made.tobytes() for made in noise]
            fresh.append(len(pairs) - len(noise))
            with pytest.raises(StopIteration):
                plan.send([encrypt.run()])
        for plan in pair.active.prepare():
            pair._run(plan)
        assert not pair.active.prepare()
    assert len(seen) == len(set(seen)) == 2 * 96
    assert fresh == [100, 4, 4]
