"""Several targets, and several quantiles of one label, as XGBoost learns them."""

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
from tests.how_often import seldom, seldom_several

pytestmark = pytest.mark.usefixtures("threads")

ROWS = 160
WEAK = {"key_bits": 512, "allow_weak_keys": True}
VECTORS = {"multi_strategy": "multi_output_tree"}

rng = np.random.default_rng(8)
X = rng.integers(0, 9, (ROWS, 5)).astype(np.float32)
FIRST = X[:, 0] + X[:, 3] + rng.normal(size=ROWS).astype(np.float32)
AMOUNTS = np.abs(np.stack((FIRST, 100 * X[:, 4] + FIRST, rng.random(ROWS)), axis=1)) + 0.1
AMOUNTS = AMOUNTS.astype(np.float32)
YES = (AMOUNTS[:, :2] > np.median(AMOUNTS[:, :2], axis=0)).astype(np.float32)
X[rng.random(X.shape) < 0.1] = np.nan
WEIGHT = rng.integers(1, 4, ROWS).astype(np.float32)
HELD_OUT = np.arange(ROWS) % 4 == 0
QUANTILES: dict[str, Any] = {"objective": "reg:quantileerror", "quantile_alpha": [0.1, 0.5, 0.9]}
TARGETS: dict[str, Any] = {"objective": "reg:squarederror"}
YES_OR_NO: dict[str, Any] = {"objective": "binary:logistic"}


def trained(label: Any, engine: str = "plain", *, given: Any = None, **params: Any) -> Any:
    return fedmq.simulate(
        active=X[:, :3],
        label=label,
        passive={"telco": X[:, 3:]},
        params={"num_boost_round": 2, "max_depth": 3, **params},
        engine=engine,
        engine_options=WEAK if engine in ("paillier", "ou") else None,
        workers=1,
        **(given or {}),
    )


def scores(model: fedmq.SimulatedModel, **more: Any) -> Any:
    return model.predict(active=X[:, :3], passive={"telco": X[:, 3:]}, **more)


def check_every_node(label: Any, given: Any = None, **params: Any) -> None:
    model = trained(label, given=given, **params)
    asked = fedmq.TrainParams(**{"num_boost_round": 2, "max_depth": 3, **params}).with_targets(
        label.reshape(ROWS, -1).shape[1]
    )
    bins = BinMatrix.of(X, Cuts.of(X, asked.max_bin))
    reference = train_reference(bins, label, asked, **(given or {}))
    parity = compare(reference, model.joined_trees(), bins)
    assert parity.first_difference is None
    assert parity.identical == parity.total
    booster = model.to_xgboost()
    data = xgboost.DMatrix(X, feature_names=booster.feature_names)
    if "base_margin" not in (given or {}):
        np.testing.assert_allclose(booster.predict(data), scores(model), rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("vectors", [{}, VECTORS], ids=["trees", "vectors"])
@pytest.mark.parametrize(
    "objective",
    [
        "reg:absoluteerror",
        "count:poisson",
        *seldom(
            "reg:squarederror",
            "reg:squaredlogerror",
            "reg:pseudohubererror",
            "reg:gamma",
            "reg:tweedie",
        ),
    ],
)
def test_every_node_of_several_amounts_is_xgboosts(objective: str, vectors: Any) -> None:
    check_every_node(AMOUNTS, objective=objective, **vectors)


@pytest.mark.parametrize("vectors", [{}, VECTORS], ids=["trees", "vectors"])
@pytest.mark.parametrize(
    "objective",
    ["binary:logistic", *seldom("reg:logistic", "binary:logitraw", "binary:hinge")],
)
def test_every_node_of_several_yes_or_no_is_xgboosts(objective: str, vectors: Any) -> None:
    check_every_node(YES, objective=objective, **vectors)


@pytest.mark.parametrize("vectors", [{}, VECTORS], ids=["trees", "vectors"])
@pytest.mark.parametrize("more", [{}, {"num_parallel_tree": 2, "eta": 1.0}], ids=["", "forest"])
def test_every_node_of_several_quantiles_is_xgboosts(vectors: Any, more: Any) -> None:
    check_every_node(FIRST, **QUANTILES, **vectors, **more)


@pytest.mark.parametrize("vectors", [{}, VECTORS], ids=["trees", "vectors"])
@pytest.mark.parametrize(
    ("label", "params"),
    [(AMOUNTS, TARGETS), (YES, YES_OR_NO), (FIRST, QUANTILES)],
    ids=["targets", "yes or no", "quantiles"],
)
def test_weights_and_first_margins_count_for_every_margin(
    label: Any, params: Any, vectors: Any
) -> None:
    margins = rng.normal(size=(ROWS, 2 if label is YES else 3)).astype(np.float32)
    check_every_node(label, {"weight": WEIGHT, "base_margin": margins}, **params, **vectors)


@pytest.mark.parametrize(
    ("label", "params"),
    [(AMOUNTS, {**TARGETS, **VECTORS}), *seldom_several((AMOUNTS, TARGETS), (FIRST, QUANTILES))],
    ids=["vectors", "targets", "quantiles"],
)
def test_encrypted_it_is_the_same_model(label: Any, params: Any) -> None:
    params = {**params, "num_boost_round": 1, "max_depth": 2}
    plain, encrypted = (trained(label, engine, **params).share.trees for engine in ("plain", "ou"))
    assert [tree.model_dump_json() for tree in encrypted] == [
        tree.model_dump_json() for tree in plain
    ]


@pytest.mark.parametrize(
    ("label", "params"),
    [
        (AMOUNTS, {**TARGETS, "eval_metric": ["rmse", "mae", "rmsle", "mape", "mphe"]}),
        (AMOUNTS, {"objective": "reg:gamma", "eval_metric": ["gamma-deviance", "gamma-nloglik"]}),
        (AMOUNTS, {**TARGETS, "eval_metric": "quantile", "quantile_alpha": 0.3}),
        (YES, {**YES_OR_NO, "eval_metric": ["logloss", "error", "error@0.3"]}),
        (FIRST, QUANTILES),
    ],
    ids=["numbers", "amounts", "a quantile of targets", "yes or no", "quantiles"],
)
def test_metrics_count_every_margin_of_a_row_alike_as_xgboosts(label: Any, params: Any) -> None:
    model = trained(label, given={"evaluation": HELD_OUT, "weight": WEIGHT}, **params)
    booster = model.to_xgboost()
    alpha = {"quantile_alpha": params["quantile_alpha"]} if "quantile_alpha" in params else {}
    booster.set_param({"nthread": 1, **alpha})
    data = xgboost.DMatrix(
        X[HELD_OUT],
        label=label[HELD_OUT],
        weight=WEIGHT[HELD_OUT],
        feature_names=booster.feature_names,
    )
    for metric, values in model.evals_result["eval"].items():
        booster.set_param({"eval_metric": metric})
        theirs = float(booster.eval(data).split(":")[-1])
        assert values[-1] == pytest.approx(theirs, rel=1e-5)


def test_early_stopping_ends_where_xgboosts_does() -> None:
    settings = {**QUANTILES, "num_boost_round": 40, "early_stopping_rounds": 2, "eta": 1.0}
    model = trained(FIRST, given={"evaluation": HELD_OUT}, **settings)
    matrices = [xgboost.DMatrix(X[rows], label=FIRST[rows]) for rows in (~HELD_OUT, HELD_OUT)]
    reference = xgboost.train(
        {**model.share.params.to_xgboost(), "base_score": None, "nthread": 1},
        matrices[0],
        40,
        evals=[(matrices[1], "eval")],
        early_stopping_rounds=2,
        verbose_eval=False,
    )
    assert model.best_iteration == reference.best_iteration
    assert len(model.share.trees) == 3 * (reference.best_iteration + 3) < 120


def test_a_share_keeps_them_and_another_training_goes_on() -> None:
    first = trained(AMOUNTS, **TARGETS, num_boost_round=1)
    again = ActiveShare.loads(first.share.dumps(), "share.json")
    assert again.dumps() == first.share.dumps()
    assert again.params.num_target == 3
    both = trained(AMOUNTS, given={"continue_from": first}, **TARGETS, num_boost_round=1)
    whole = trained(AMOUNTS, **TARGETS, num_boost_round=2)
    np.testing.assert_array_equal(scores(both), scores(whole))
    with pytest.raises(ConfigError, match="num_target = None, model 'simulated' has 3"):
        trained(FIRST, given={"continue_from": first}, **TARGETS)


def test_what_a_column_adds_is_xgboosts_for_every_margin() -> None:
    model = trained(AMOUNTS, **TARGETS)
    booster = model.to_xgboost()
    data = xgboost.DMatrix(X, feature_names=booster.feature_names)
    found = scores(model, pred_contribs=True)
    assert found.shape == (ROWS, 3, 6)
    np.testing.assert_allclose(found, booster.predict(data, pred_contribs=True), atol=2e-4)


def test_folds_learn_every_target() -> None:
    found = fedmq.cv(
        active=X[:, :3],
        label=AMOUNTS,
        passive={"telco": X[:, 3:]},
        params={**TARGETS, "num_boost_round": 2},
        nfold=2,
        as_pandas=False,
    )
    assert found["test-rmse-mean"][1] < found["test-rmse-mean"][0]


def test_an_objective_of_ones_own_sees_every_target() -> None:
    def squares(margins: Any, rows: Any) -> Any:
        return margins - rows.get_label(), np.ones_like(margins)

    given = {"obj": squares}
    own = trained(AMOUNTS, given=given, **TARGETS, base_score=1.0)
    named = trained(AMOUNTS, **TARGETS, base_score=1.0)
    np.testing.assert_allclose(scores(own), scores(named), rtol=1e-5)


@pytest.mark.parametrize(
    ("label", "params", "line"),
    [
        (AMOUNTS, {"objective": "survival:cox"}, "num_target = 3: survival:cox learns one label a"),
        (AMOUNTS, QUANTILES, "num_target = 3: reg:quantileerror learns one label a row"),
        (AMOUNTS, {**TARGETS, "num_target": 2}, "num_target = 2: the label has 3 columns$"),
        (FIRST, {**TARGETS, "num_target": 2}, "num_target = 2: the label has one column$"),
        (AMOUNTS, YES_OR_NO, "active: target 1: label in row 1 is .*; binary:logistic takes"),
        (AMOUNTS[:, :, None], TARGETS, "the label has shape .160, 3, 1., one value per row is"),
    ],
    ids=["one label alone", "quantiles", "another number", "too few", "no classes", "a cube"],
)
def test_labels_that_do_not_fit_are_one_line(label: Any, params: Any, line: str) -> None:
    with pytest.raises((ConfigError, DataError), match=line):
        trained(label, **params)


@pytest.mark.parametrize(
    ("params", "line"),
    [
        ({"objective": "rank:ndcg", "num_target": 2}, "num_target = 2: rank:ndcg learns one label"),
        ({**QUANTILES, "num_target": 2}, "num_target = 2: reg:quantileerror learns"),
        ({**YES_OR_NO, "num_target": 2, "eval_metric": "auc"}, "'auc': it is one of a single"),
        ({**QUANTILES, "eval_metric": "mae"}, "'mae': of several quantiles there is quantile"),
        ({**QUANTILES, "quantile_alpha": [0.5, 1.5]}, "quantile_alpha = 1.5: input should be"),
        ({**QUANTILES, "quantile_alpha": []}, "quantile_alpha is missing: which quantile"),
        (
            {**TARGETS, "quantile_alpha": [0.1, 0.5], "eval_metric": "quantile"},
            "quantile_alpha: reg:squarederror predicts no quantiles, so the metric takes one",
        ),
        ({**QUANTILES, "base_score": [1.0]}, "base_score has 1 numbers; one per quantile is"),
        (
            {**YES_OR_NO, "num_target": 2, "base_score": [0.5, 2.0]},
            "base_score",
        ),
        ({**TARGETS, "num_target": 1}, "num_target = 1: input should be greater than or equal"),
    ],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_parameters_that_do_not_go_together_are_one_line(params: Any, line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        fedmq.TrainParams(**params)


def test_one_quantile_in_a_list_is_one_quantile() -> None:
    assert fedmq.TrainParams(objective="reg:quantileerror", quantile_alpha=[0.3]).outputs == 1


def test_goss_is_refused_as_it_would_show_the_largest_gradients() -> None:
    with pytest.raises(ConfigError, match="goss with several targets: the rows that each tree"):
        trained(AMOUNTS, **TARGETS, goss=True)


def test_small_labels_beside_large_ones_are_kept_in_trees_and_refused_in_vectors() -> None:
    label = np.stack((FIRST * np.float32(1e9), FIRST), axis=1)
    alone = trained(FIRST, **TARGETS)
    beside = trained(label, **TARGETS)
    np.testing.assert_allclose(scores(beside)[:, 1], scores(alone), rtol=1e-6)
    with pytest.raises(DataError, match=r"of target 1 within .* or leave multi_strategy at one_o"):
        trained(label, **TARGETS, **VECTORS)
