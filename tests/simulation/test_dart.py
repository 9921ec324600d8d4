"""DART: rounds that leave trees out, node by node as XGBoost grows them."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import fedmq
from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.boosting.model.share import ActiveShare
from fedmq.boosting.xgboost_comparison.parity import compare, train_reference
from fedmq.errors import ConfigError, DataError
from tests.boosting.tables import scattered
from tests.how_often import seldom

pytestmark = pytest.mark.usefixtures("threads")

xgboost = pytest.importorskip("xgboost")

WEAK = {"key_bits": 512, "allow_weak_keys": True}
X, Y = scattered(300, 6, seed=8, missing=0.1)
CLASSES = (np.digitize(np.nan_to_num(X[:, 0]), [-0.4, 0.6])).astype(np.float32)
PASSIVE = {"telco": X[:, 3:]}


def trained(engine: str = "plain", label: Any = Y, **params: Any) -> fedmq.SimulatedModel:
    more: dict[str, Any] = {"engine_options": WEAK, "workers": 1} if engine == "ou" else {}
    values = {"booster": "dart", "num_boost_round": 7, "max_depth": 3, "max_bin": 16, "seed": 3}
    return fedmq.simulate(
        active=X[:, :3],
        label=label,
        passive=PASSIVE,
        params=fedmq.TrainParams(**values | params),
        engine=engine,
        **more,
    )


@pytest.mark.parametrize(
    ("label", "params"),
    [
        (Y, {"rate_drop": 0.5}),
        (Y, {"rate_drop": 0.3, "sample_type": "weighted", "normalize_type": "forest"}),
        (Y, {"rate_drop": 0.1, "one_drop": True, "skip_drop": 0.3, "eta": 0.7}),
        (X[:, 1], {"objective": "reg:absoluteerror", "rate_drop": 0.5}),
        (CLASSES, {"objective": "multi:softprob", "num_class": 3, "rate_drop": 0.3}),
        (Y, {"num_parallel_tree": 2, "rate_drop": 0.4, "num_boost_round": 4}),
    ],
    ids=["uniform", "weighted", "one", "leaves of quantiles", "classes", "parallel"],
)
def test_every_node_is_xgboosts(label: Any, params: dict[str, Any]) -> None:
    label = np.nan_to_num(label)
    model = trained(label=label, **params)
    bins = BinMatrix.of(X, Cuts.of(X, 16))
    reference = train_reference(bins, label, model.share.params)
    parity = compare(reference, model.joined_trees(), bins)
    assert parity.first_difference is None
    assert parity.total > 50
    boosted = json.loads(reference.save_raw("json"))["learner"]["gradient_booster"]
    theirs = (boosted if "weight_drop" in boosted else boosted["model"])["weight_drop"]
    assert list(model.share.tree_weights) == np.array(theirs, np.float32).tolist()
    assert min(theirs) < 1
    scores = model.predict(active=X[:, :3], passive=PASSIVE)
    codes = np.where(bins.is_missing, np.float32(np.nan), bins.codes.astype(np.float32))
    np.testing.assert_allclose(reference.predict(xgboost.DMatrix(codes)), scores, rtol=1e-5)
    exported = model.to_xgboost()
    name = json.loads(exported.save_config())["learner"]["gradient_booster"]["name"]
    assert name == boosted["name"]  # XGBoost 3.4 calls both gbtree
    rows = xgboost.DMatrix(X, feature_names=exported.feature_names)
    np.testing.assert_allclose(exported.predict(rows), scores, rtol=1e-6)


def test_metrics_are_those_of_all_trees() -> None:
    held_out = np.arange(len(Y)) % 3 == 0
    params = fedmq.TrainParams(
        booster="dart", rate_drop=0.5, num_boost_round=8, max_depth=3, max_bin=16
    )
    model = fedmq.simulate(
        active=X[:, :3], label=Y, passive=PASSIVE, params=params, engine="plain",
        evaluation=held_out,
    )  # fmt: skip
    bins = BinMatrix.of(X, Cuts.of(X[~held_out], 16))
    codes = np.where(bins.is_missing, np.float32(np.nan), bins.codes.astype(np.float32))
    train, test = (xgboost.DMatrix(codes[rows], label=Y[rows]) for rows in (~held_out, held_out))
    history: dict[str, dict[str, list[float]]] = {}
    evals = [(train, "train"), (test, "eval")]
    settings = params.to_xgboost() | {"nthread": 1}
    xgboost.train(settings, train, 8, evals=evals, evals_result=history, verbose_eval=False)
    for rows, metrics in history.items():
        np.testing.assert_allclose(model.evals_result[rows]["logloss"], metrics["logloss"], 1e-6)


@pytest.mark.parametrize("engine", ["lattice", *seldom("ou", "smm1")])
def test_exact_engines_grow_the_same_trees(engine: str) -> None:
    drawn = {"rate_drop": 0.5, "subsample": 0.8, "num_boost_round": 4}
    expected, model = trained(**drawn), trained(engine, **drawn)
    assert min(expected.share.tree_weights) < 1
    assert model.share.dumps() == expected.share.dumps()


@pytest.mark.parametrize("engine", ["smm2", "ldp"])
def test_the_other_engines_carry_it_too(engine: str) -> None:
    model = trained(engine, rate_drop=0.5, num_boost_round=4)
    assert len(model.share.tree_weights) == 4


def test_contributions_count_what_trees_weigh() -> None:
    model = trained(rate_drop=0.5)
    exported = model.to_xgboost()
    rows = xgboost.DMatrix(X, feature_names=exported.feature_names)
    theirs = exported.predict(rows, pred_contribs=True)
    ours = model.predict(active=X[:, :3], passive=PASSIVE, pred_contribs=True)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_a_share_without_weights_is_no_share_of_dart() -> None:
    text = trained(rate_drop=0.5, num_boost_round=2).share.model_dump_json(exclude={"tree_weights"})
    with pytest.raises(DataError, match="a model of DART needs a weight of each tree"):
        ActiveShare.loads(text, "m.json")


def test_the_attacks_do_not_guess_at_trees_that_are_weighed() -> None:
    model = trained(rate_drop=0.5, num_boost_round=2)
    with pytest.raises(ConfigError, match=r"leaf_weights: .* not those of dart"):
        model.leaf_weights(active=X[:, :3], passive=PASSIVE)
