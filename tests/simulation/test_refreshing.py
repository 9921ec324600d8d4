"""A model whose leaves are weighed anew on other rows is the one that XGBoost's updater makes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import fedmq
from fedmq.boosting.params import OLDEST
from fedmq.boosting.xgboost_comparison.parity import installed_arithmetic
from fedmq.errors import ConfigError, DataError
from tests.boosting.tables import scattered

xgboost = pytest.importorskip("xgboost")

X, Y = scattered(300, 6, seed=9, missing=0.1)
LATER, LATER_Y = scattered(200, 6, seed=10, missing=0.1)
ROUNDS = 3
PARAMS: dict[str, Any] = {"num_boost_round": ROUNDS, "max_depth": 4, "max_bin": 16}
CLASSES = {"objective": "multi:softprob", "num_class": 3}


def parts(values: Any) -> dict[str, Any]:
    return {"active": values[:, :3], "passive": {"telco": values[:, 3:5], "shop": values[:, 5:]}}


def trained(label: Any = Y, qid: Any = None, **params: Any) -> fedmq.SimulatedModel:
    return fedmq.simulate(
        **parts(X), label=label, qid=qid, params={**PARAMS, **params}, engine="plain"
    )


def classes_of(values: Any) -> Any:
    return np.digitize(np.nan_to_num(values[:, 0]), [-0.4, 0.6]).astype(np.float32)


def values_of(values: Any) -> Any:
    return (np.nan_to_num(values[:, 0]) + 0.5 * np.nan_to_num(values[:, 3])).astype(np.float32)


def trees_of(booster: Any) -> list[dict[str, Any]]:
    found = json.loads(booster.save_raw("json"))["learner"]["gradient_booster"]
    return list(found.get("gbtree", found)["model"]["trees"])


def updated(model: fedmq.SimulatedModel, label: Any, leaves: bool, **given: Any) -> Any:
    """XGBoost's own update of the joined model on the joined table."""
    booster, params = model.to_xgboost(), model.share.params
    rows = xgboost.DMatrix(
        model.joined_values(**parts(LATER)), label, feature_names=booster.feature_names, **given
    )
    update = {
        "process_type": "update",
        "updater": "refresh",
        "refresh_leaf": int(leaves),
        "verbosity": 0,  # it warns of any updater that is named
        "objective": params.objective,
        **({"num_class": 3} if params.num_class else {}),
        **({"quantile_alpha": list(params.quantiles)} if params.quantiles else {}),
        "eta": params.eta,
        "lambda": params.reg_lambda,
        "alpha": params.reg_alpha,
        "max_delta_step": params.max_delta_step,
        "min_child_weight": params.min_child_weight,
        "num_parallel_tree": params.num_parallel_tree,
    }
    if params.monotone_constraints:
        update["monotone_constraints"] = tuple(
            params.monotone_constraints.get(name.removeprefix("active."), 0)
            for name in booster.feature_names
        )
    return xgboost.train(update, rows, ROUNDS, xgb_model=booster)


QUANTILES = {"objective": "reg:quantileerror", "quantile_alpha": [0.2, 0.5, 0.9]}
BOUND = {"monotone_constraints": {"f1": -1, "telco.f0": 1, "shop.f0": -1}}
PARAMETERS: list[dict[str, Any]] = [
    {},
    {"eta": 0.1, "reg_alpha": 0.7, "reg_lambda": 3},
    {"max_delta_step": 0.4, "reg_alpha": 0.2},
    {"min_child_weight": 9},
    {"objective": "reg:squarederror"},
    {"num_parallel_tree": 2},
    {"objective": "reg:absoluteerror"},
    {"objective": "reg:absoluteerror", "reg_alpha": 0.3, "max_delta_step": 0.5},
    QUANTILES,
    {"booster": "dart", "rate_drop": 0.0},
    *([BOUND] if installed_arithmetic() == OLDEST else []),
    CLASSES,
]


@pytest.mark.parametrize(
    ("params", "leaves"), [*((params, True) for params in PARAMETERS), ({}, False)], ids=str
)
def test_every_node_is_that_of_xgboosts_update_on_the_joined_table(
    params: dict[str, Any], leaves: bool
) -> None:
    label_of = classes_of if params is CLASSES else values_of if "objective" in params else None
    model = trained(Y if label_of is None else label_of(X), **params)
    label = LATER_Y if label_of is None else label_of(LATER)
    found = model.refreshed(**parts(LATER), label=label, refresh_leaf=leaves)
    expected = trees_of(updated(model, label, leaves))
    ours = trees_of(found.to_xgboost())
    assert len(ours) == len(expected) == len(model.share.trees)
    for tree, wanted in zip(ours, expected, strict=True):
        for name in ("left_children", "right_children", "split_indices"):
            assert tree[name] == wanted[name]
        for name in ("split_conditions", "sum_hessian", "loss_changes"):
            np.testing.assert_allclose(tree[name], wanted[name], rtol=1e-5, atol=1e-5)
    before = [tree.weight for tree in model.share.trees]
    after = [tree.weight for tree in found.share.trees]
    assert all(map(np.array_equal, before, after)) is not leaves


def test_weights_and_first_margins_of_rows_count_as_in_xgboost() -> None:
    draw, model = np.random.default_rng(1), trained()
    beside = {
        "weight": draw.integers(0, 4, len(LATER)).astype(np.float32),
        "base_margin": draw.normal(size=len(LATER)).astype(np.float32),
    }
    found = model.refreshed(**parts(LATER), label=LATER_Y, **beside)
    expected = updated(model, LATER_Y, True, **beside)
    for tree, wanted in zip(trees_of(found.to_xgboost()), trees_of(expected), strict=True):
        np.testing.assert_allclose(
            tree["split_conditions"], wanted["split_conditions"], rtol=1e-5, atol=1e-6
        )


def test_a_model_refreshed_on_its_own_rows_stays_as_it_is() -> None:
    model = trained()
    found = model.refreshed(**parts(X), label=Y)
    for tree, same in zip(model.share.trees, found.share.trees, strict=True):
        assert np.array_equal(tree.weight, same.weight)
        assert np.array_equal(tree.cover, same.cover)


@pytest.mark.parametrize("objective", ["rank:ndcg", "rank:pairwise", "rank:map"])
def test_leaves_that_rank_are_weighed_anew_within_queries(objective: str) -> None:
    relevance = [(values_of(values) > 0).astype(np.float32) for values in (X, LATER)]
    queries = [np.arange(len(label)) // 20 for label in relevance]
    model = trained(relevance[0], qid=queries[0], objective=objective)
    found = model.refreshed(**parts(LATER), label=relevance[1], qid=queries[1])
    expected = trees_of(updated(model, relevance[1], True, qid=queries[1]))
    for tree, wanted in zip(trees_of(found.to_xgboost()), expected, strict=True):
        for name in ("split_conditions", "sum_hessian", "loss_changes"):
            np.testing.assert_allclose(tree[name], wanted[name], rtol=1e-4, atol=1e-5)


VECTORS = {**CLASSES, "multi_strategy": "multi_output_tree"}


@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({"booster": "dart", "rate_drop": 0.5}, "3.[24] refreshes no model with booster = 'dart'"),
        (VECTORS, "multi_strategy = 'multi_output_tree'"),
        ({"xgboost_arithmetic": "3.4", **BOUND}, "3.4 refreshes no model with monotone_constr"),
    ],
    ids=str,
)
def test_models_that_xgboost_does_not_refresh_are_refused_by_name(
    params: dict[str, Any], why: str
) -> None:
    several = params is VECTORS
    model = trained(classes_of(X) if several else Y, **params)
    label = classes_of(LATER) if several else LATER_Y
    with pytest.raises(ConfigError, match=f"refresh: XGBoost .*{why}.*; train it anew"):
        model.refreshed(**parts(LATER), label=label)


def test_xgboost_refreshes_no_vector_leaves_and_leaves_darts_weights_to_other_trees() -> None:
    vectors = trained(classes_of(X), **VECTORS)
    update = {"process_type": "update", "updater": "refresh", "verbosity": 0}
    rows = xgboost.DMatrix(
        vectors.joined_values(**parts(LATER)),
        classes_of(LATER),
        feature_names=vectors.to_xgboost().feature_names,
    )
    with pytest.raises(xgboost.core.XGBoostError, match="multi-target tree"):
        given = update | {"objective": "multi:softprob", "num_class": 3, **VECTORS}
        xgboost.train(given, rows, ROUNDS, xgb_model=vectors.to_xgboost())
    dropping = {"booster": "dart", "rate_drop": 0.9, "one_drop": True}
    model = trained(**dropping)
    data = xgboost.DMatrix(
        model.joined_values(**parts(LATER)),
        LATER_Y,
        feature_names=model.to_xgboost().feature_names,
    )
    given = update | dropping | {"objective": "binary:logistic"}
    if installed_arithmetic() != OLDEST:
        with pytest.raises(xgboost.core.XGBoostError, match="weight_drop"):
            xgboost.train(given, data, ROUNDS, xgb_model=model.to_xgboost())
        return
    found = xgboost.train(given, data, ROUNDS, xgb_model=model.to_xgboost())
    booster = json.loads(found.save_raw("json"))["learner"]["gradient_booster"]
    assert len(booster["gbtree"]["model"]["trees"]) == ROUNDS < len(booster["weight_drop"])


def test_labels_of_another_number_of_rows_are_refused() -> None:
    with pytest.raises(DataError, match="rows"):
        trained().refreshed(**parts(LATER), label=LATER_Y[:-1])
