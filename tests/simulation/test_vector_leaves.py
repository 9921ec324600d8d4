"""``multi_output_tree``: one tree a round whose leaves are vectors, as XGBoost grows it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xgboost

import fedmq
from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.boosting.model.share import ActiveShare
from fedmq.boosting.xgboost_comparison.parity import compare, train_reference
from fedmq.errors import ConfigError, DataError
from tests.how_often import seldom

pytestmark = pytest.mark.usefixtures("threads")

ROWS, CLASSES = 260, 7
WEAK = {"key_bits": 512, "allow_weak_keys": True}

rng = np.random.default_rng(4)
X = rng.integers(0, 9, (ROWS, 6)).astype(np.float32)
Y = (X[:, 0] + X[:, 3] + rng.integers(0, 4, ROWS)).astype(np.float32) % CLASSES
X[rng.random(X.shape) < 0.1] = np.nan
HELD_OUT = np.arange(ROWS) % 4 == 0


def params_of(**more: Any) -> fedmq.TrainParams:
    settings = {"objective": "multi:softprob", "num_class": CLASSES, "num_boost_round": 3}
    settings |= {"multi_strategy": "multi_output_tree", "max_depth": 3}
    return fedmq.TrainParams(**{**settings, **more})


def trained(engine: str = "plain", *, given: Any = None, **more: Any) -> fedmq.SimulatedModel:
    return fedmq.simulate(
        active=X[:, :3],
        label=Y,
        passive={"telco": X[:, 3:5], "shop": X[:, 5:]},
        params=params_of(**more),
        engine=engine,
        engine_options=WEAK if engine in ("paillier", "ou") else None,
        workers=1,
        **(given or {}),
    )


def scores(model: fedmq.SimulatedModel, **more: bool) -> Any:
    passive = {"telco": X[:, 3:5], "shop": X[:, 5:]}
    return model.predict(active=X[:, :3], passive=passive, **more)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"objective": "multi:softmax", "reg_lambda": 0.1, "eta": 1.0},
        {"reg_alpha": 0.5, "gamma": 0.2, "max_depth": 5},
        {"min_child_weight": 6.0},
        {"max_delta_step": 0.3},
        {"grow_policy": "lossguide", "max_leaves": 9, "max_depth": 0},
        {"max_bin": 4},
        {"gamma": 1e6},
        {"num_parallel_tree": 2},
    ],
    ids=lambda settings: "-".join(settings) or "defaults",
)
def test_every_node_and_every_leafs_vector_is_xgboosts(settings: dict[str, Any]) -> None:
    params = params_of(**settings)
    bins = BinMatrix.of(X, Cuts.of(X, params.max_bin))
    parity = compare(train_reference(bins, Y, params), trained(**settings).joined_trees(), bins)
    assert parity.first_difference is None
    assert parity.identical == parity.total


@pytest.mark.parametrize("engine", ["ou", *seldom("paillier")])
def test_encrypted_it_is_the_same_model(engine: str) -> None:
    plain, encrypted = trained().share.trees, trained(engine).share.trees
    assert [tree.model_dump_json() for tree in encrypted] == [
        tree.model_dump_json() for tree in plain
    ]


@pytest.mark.parametrize("key_bits", [512, 768, 2048])
def test_classes_take_as_many_ciphertexts_as_the_key_leaves_room_for(key_bits: int) -> None:
    few = fedmq.simulate(
        active=X[:, :3],
        label=Y,
        passive={"telco": X[:, 3:]},
        params=params_of(num_boost_round=1, max_depth=2),
        engine="ou",
        engine_options={"key_bits": key_bits, "allow_weak_keys": True},
        workers=1,
    )
    plain = fedmq.simulate(
        active=X[:, :3],
        label=Y,
        passive={"telco": X[:, 3:]},
        params=params_of(num_boost_round=1, max_depth=2),
        engine="plain",
    )
    assert few.share.trees[0].model_dump_json() == plain.share.trees[0].model_dump_json()


def test_weights_and_first_margins_count_for_all_classes() -> None:
    given = {
        "weight": rng.integers(1, 4, ROWS).astype(np.float32),
        "base_margin": rng.normal(size=(ROWS, CLASSES)).astype(np.float32),
    }
    bins = BinMatrix.of(X, Cuts.of(X, 256))
    reference = train_reference(bins, Y, params_of(), **given)
    assert compare(reference, trained(given=given).joined_trees(), bins).first_difference is None


def test_a_round_is_one_tree_whose_leaves_have_a_number_for_each_class() -> None:
    model = trained()
    assert len(model.share.trees) == 3
    assert {tree.weight.shape[1] for tree in model.share.trees} == {CLASSES}
    again = ActiveShare.loads(model.share.dumps(), "share.json")
    assert again.dumps() == model.share.dumps()


def test_a_share_whose_leaves_are_of_another_number_of_classes_is_refused() -> None:
    text = trained(num_boost_round=1).share.dumps()
    with pytest.raises(DataError, match="leaves do not have as many numbers as the param"):
        ActiveShare.loads(text.replace("multi_output_tree", "one_output_per_tree"), "share.json")


def test_as_a_booster_it_predicts_the_same() -> None:
    model = trained()
    booster = model.to_xgboost()
    data = xgboost.DMatrix(X, feature_names=booster.feature_names)
    np.testing.assert_allclose(booster.predict(data), scores(model), rtol=1e-5)
    margins = booster.predict(data, output_margin=True)
    np.testing.assert_allclose(margins, scores(model, output_margin=True), rtol=1e-5, atol=1e-6)


def test_early_stopping_counts_rounds_and_ends_where_xgboosts_does() -> None:
    settings = {"early_stopping_rounds": 2, "num_boost_round": 40, "eta": 1.0, "max_depth": 5}
    model = trained(given={"evaluation": HELD_OUT}, **settings)
    matrices = [xgboost.DMatrix(X[rows], label=Y[rows]) for rows in (~HELD_OUT, HELD_OUT)]
    reference = xgboost.train(
        {**model.share.params.to_xgboost(), "base_score": None, "nthread": 1},
        matrices[0],
        40,
        evals=[(matrices[1], "eval")],
        early_stopping_rounds=2,
        verbose_eval=False,
    )
    assert model.best_iteration == reference.best_iteration
    assert len(model.share.trees) == reference.best_iteration + 3 < 40
    assert len(model.joined_trees()) == reference.best_iteration + 1


@pytest.mark.parametrize("engine", ["plain", "paillier"])
def test_gradients_of_few_bits_are_rounded_class_by_class(engine: str) -> None:
    model = trained(engine, gradient_bits=6, num_boost_round=6, eta=1.0)
    assert np.mean(scores(model).argmax(axis=1) == Y) > 0.5
    assert model.departures == ("gradient_bits = 6",)


@pytest.mark.parametrize("engine", ["lattice", "smm1", "smm2", "ldp"])
def test_an_engine_that_sums_one_g_and_h_a_row_refuses_it_by_name(engine: str) -> None:
    line = f"engine {engine}: multi_strategy = multi_output_tree: it sums one g and h a row"
    with pytest.raises(ConfigError, match=line):
        trained(engine)


def test_monotone_constraints_are_refused_as_xgboost_refuses_them() -> None:
    with pytest.raises(ConfigError, match="monotone_constraints: fedmq has none for trees of"):
        params_of(monotone_constraints={"f0": 1})


def test_contributions_are_refused_as_xgboost_refuses_them() -> None:
    with pytest.raises(ConfigError, match="pred_contribs: neither XGBoost nor fedmq"):
        scores(trained(num_boost_round=1), pred_contribs=True)


def test_of_one_class_it_is_an_ordinary_tree() -> None:
    params = fedmq.TrainParams(multi_strategy="multi_output_tree")
    assert (params.vector_outputs, params.trees_per_round) == (1, 1)
