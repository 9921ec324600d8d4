"""Trainings that continue a model: rows walk down its trees, and the new ones follow."""

from __future__ import annotations

import gc
import json
from typing import Any

import numpy as np
import pytest

import fedmq
from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.boosting.xgboost_comparison.parity import compare, labelled, train_reference
from fedmq.errors import ConfigError, FedmqError, Refused
from tests.boosting.tables import scattered
from tests.how_often import seldom

xgboost = pytest.importorskip("xgboost")

WEAK = {"key_bits": 512, "allow_weak_keys": True}
X, Y = scattered(300, 6, seed=9, missing=0.1)
CLASSES = np.digitize(np.nan_to_num(X[:, 0]), [-0.4, 0.6]).astype(np.float32)
VECTORS = {
    "objective": "multi:softprob",
    "num_class": 3,
    "multi_strategy": "multi_output_tree",
}
PARAMS: dict[str, Any] = {"num_boost_round": 2, "max_depth": 4, "max_bin": 16}


def trained(
    earlier: fedmq.SimulatedModel | None = None,
    engine: str = "plain",
    label: Any = Y,
    rows: dict[str, Any] | None = None,
    **params: Any,
) -> fedmq.SimulatedModel:
    more: dict[str, Any] = {"engine_options": WEAK, "workers": 1} if engine == "ou" else {}
    return fedmq.simulate(
        active=X[:, :3],
        label=label,
        passive={"telco": X[:, 3:5], "shop": X[:, 5:]},
        params=fedmq.TrainParams(**{**PARAMS, **params}),
        engine=engine,
        continue_from=earlier,
        **more,
        **(rows or {}),
    )


def kept(model: fedmq.SimulatedModel) -> Any:
    """Trees and records of all parties, and where the records stand."""
    return (
        [tree.model_dump_json() for tree in model.share.trees],
        model.share.lookup_table.model_dump_json(),
        [
            (share.party, share.lookup_table.model_dump_json(), share.places)
            for share in model.passive_shares.values()
        ],
    )


def scores(model: fedmq.SimulatedModel) -> Any:
    passive = {"telco": X[:, 3:5], "shop": X[:, 5:]}
    return model.predict(active=X[:, :3], passive=passive)


@pytest.mark.parametrize(
    ("label", "params"),
    [
        (Y, {}),
        (np.nan_to_num(X[:, 1]), {"objective": "reg:absoluteerror"}),
        (CLASSES, {"objective": "multi:softprob", "num_class": 3}),
        (Y, {"num_parallel_tree": 2}),
        (CLASSES, VECTORS),
    ],
    ids=["binary", "leaves of quantiles", "classes", "forest", "vector leaves"],
)
def test_two_trainings_give_the_model_of_one(label: Any, params: dict[str, Any]) -> None:
    first = trained(label=label, **params)
    both = trained(first, label=label, **params, num_boost_round=3)
    whole = trained(label=label, **params, num_boost_round=5)
    assert kept(both) == kept(whole)
    assert both.share.params == whole.share.params
    np.testing.assert_array_equal(scores(both), scores(whole))
    assert both.to_xgboost().num_boosted_rounds() == 5


def test_another_depth_and_rate_may_follow_as_xgboost_has_it() -> None:
    rows = {
        "weight": np.round(np.random.default_rng(0).exponential(size=300) + 0.1, 1),
        "base_margin": np.random.default_rng(1).normal(size=300).astype(np.float32) / 4,
    }
    now = {"max_depth": 2, "eta": 0.9, "gamma": 0.1, "num_boost_round": 3}
    first = trained(rows=rows)
    model = trained(first, rows=rows, **now)
    bins = BinMatrix.of(X, Cuts.of(X, 16))
    given = {name: values.astype(np.float32) for name, values in rows.items()}
    before = train_reference(bins, Y, first.share.params, **given)
    indices = np.where(bins.is_missing, np.float32(np.nan), bins.codes.astype(np.float32))
    params = fedmq.TrainParams(**{**PARAMS, **now}).to_xgboost() | {"max_bin": 17, "nthread": 1}
    after = xgboost.train(params, labelled(indices, Y, **given), 3, xgb_model=before)
    parity = compare(after, model.joined_trees(), bins)
    assert parity.first_difference is None
    assert parity.total > 60
    assert json.loads(after.save_config())["learner"]["learner_model_param"]


@pytest.mark.parametrize("engine", ["lattice", *seldom("ou", "smm1")])
def test_exact_engines_continue_alike(engine: str) -> None:
    first = trained()
    assert kept(trained(first, engine)) == kept(trained(first))


def test_what_made_the_earlier_trees_inexact_is_not_forgotten() -> None:
    first = trained(subsample=0.5)
    assert trained(first).departures == first.departures == ("subsample = 0.5",)


def test_a_continued_model_can_be_continued() -> None:
    model = trained(trained(trained(num_boost_round=1), num_boost_round=1), num_boost_round=2)
    whole = trained(num_boost_round=4)
    assert kept(model) == kept(whole)


def test_all_trees_of_a_model_are_of_one_xgboost() -> None:
    first = trained(num_boost_round=1, xgboost_arithmetic="3.4")
    model = trained(first, num_boost_round=1, xgboost_arithmetic="3.2")
    assert model.share.params.xgboost_arithmetic == "3.4"


def test_a_party_may_join() -> None:
    first = fedmq.simulate(
        active=X[:, :3], label=Y, passive={"shop": X[:, 5:]}, params=PARAMS, engine="plain"
    )
    model = trained(first)
    assert model.share.parties == ("active", "telco", "shop")
    assert model.share.trees[0].owner.max() == 2
    tables = {"telco": X[:, 3:5], "shop": X[:, 5:]}
    assert {tree for tree, _ in model.passive_shares["telco"].places} <= {2, 3}
    first_two = model.share.model_copy(update={"best_iteration": 1})
    again = fedmq.SimulatedModel(first_two, list(model.passive_shares.values()), None)
    np.testing.assert_array_equal(
        again.predict(active=X[:, :3], passive=tables),
        first.predict(active=X[:, :3], passive={"shop": tables["shop"]}),
    )


def test_early_stopping_counts_all_rounds() -> None:
    label = np.random.default_rng(0).permutation(Y)
    rows = {"evaluation": np.arange(300) % 3 == 0}
    first = trained(label=label, rows=rows, num_boost_round=3)
    stopping = {"eta": 1.0, "num_boost_round": 30, "early_stopping_rounds": 2}
    model = trained(first, label=label, rows=rows, **stopping)
    values = model.evals_result["eval"]["logloss"]
    assert model.best_iteration == 3 + len(values) - 3
    assert len(model.share.trees) == 3 + len(values)
    assert model.share.metrics["eval-logloss"] == min(values)


@pytest.mark.parametrize(
    ("params", "text"),
    [
        ({"objective": "reg:logistic"}, "objective = reg:logistic, model 'simulated' has binary:"),
        ({"num_parallel_tree": 2}, "num_parallel_tree = 2, model 'simulated' has 1"),
        ({"base_score": 0.125}, "base_score = 0.125, model 'simulated' has"),
        ({"active_only_trees": 1}, "active_only_trees are the first trees of a model"),
        ({"booster": "dart"}, "dart weighs trees anew, so no model of dart can be continued"),
    ],
)
def test_what_would_not_be_one_model_is_refused(params: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        trained(trained(num_boost_round=1), **params)


def fewer(passive: dict[str, Any], columns: int, earlier: fedmq.SimulatedModel) -> Any:
    return fedmq.simulate(
        active=X[:, :columns],
        label=Y,
        passive=passive,
        params=PARAMS,
        engine="plain",
        continue_from=earlier,
    )


@pytest.mark.parametrize(
    ("passive", "columns", "error", "text"),
    [
        ({"telco": X[:, 3:5]}, 3, ConfigError, "shop holds a share of model 'simulated', and"),
        ({"telco": X[:, 3:5], "shop": X[:, 5:]}, 2, ConfigError, "other columns of active"),
        ({"telco": X[:, 3:4], "shop": X[:, 5:]}, 3, Refused, "other columns of telco"),
    ],
    ids=["a party is away", "own columns", "columns of a peer"],
)
def test_other_columns_are_refused(
    passive: dict[str, Any], columns: int, error: type[FedmqError], text: str
) -> None:
    with pytest.raises(error, match=text):
        fewer(passive, columns, trained(num_boost_round=1))


def test_a_share_of_another_training_is_refused(caplog: pytest.LogCaptureFixture) -> None:
    first, other = trained(), trained(max_depth=2)
    shares = {**first.passive_shares, "telco": other.passive_shares["telco"]}
    mixed = fedmq.SimulatedModel(first.share, list(shares.values()), None)
    gc.collect()  # of earlier tests
    caplog.clear()
    with pytest.raises(Refused, match="the share of model 'simulated' at telco is of another"):
        trained(mixed)
    gc.collect()
    assert not [record for record in caplog.records if record.name == "asyncio"]
