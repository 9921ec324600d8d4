"""A model whose leaves are weighed anew on other rows is the one that XGBoost's updater makes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import fedmq
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


def trained(label: Any = Y, **params: Any) -> fedmq.SimulatedModel:
    return fedmq.simulate(**parts(X), label=label, params={**PARAMS, **params}, engine="plain")


def classes_of(values: Any) -> Any:
    return np.digitize(np.nan_to_num(values[:, 0]), [-0.4, 0.6]).astype(np.float32)


def trees_of(booster: Any) -> list[dict[str, Any]]:
    model = json.loads(booster.save_raw("json"))["learner"]["gradient_booster"]["model"]
    return list(model["trees"])


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
        **({"num_class": 3} if params.outputs == 3 else {}),
        "eta": params.eta,
        "lambda": params.reg_lambda,
        "alpha": params.reg_alpha,
        "max_delta_step": params.max_delta_step,
        "min_child_weight": params.min_child_weight,
        "num_parallel_tree": params.num_parallel_tree,
        "monotone_constraints": tuple(
            params.monotone_constraints.get(name.removeprefix("active."), 0)
            for name in booster.feature_names
        ),
    }
    return xgboost.train(update, rows, ROUNDS, xgb_model=booster)


PARAMETERS: list[dict[str, Any]] = [
    {},
    {"eta": 0.1, "reg_alpha": 0.7, "reg_lambda": 3},
    {"max_delta_step": 0.4, "reg_alpha": 0.2},
    {"min_child_weight": 9},
    {"objective": "reg:squarederror"},
    {"num_parallel_tree": 2},
    {"monotone_constraints": {"f1": -1, "telco.f0": 1, "shop.f0": -1}},
    CLASSES,
]


@pytest.mark.parametrize(
    ("params", "leaves"), [*((params, True) for params in PARAMETERS), ({}, False)], ids=str
)
def test_every_node_is_that_of_xgboosts_update_on_the_joined_table(
    params: dict[str, Any], leaves: bool
) -> None:
    several = params is CLASSES
    model = trained(classes_of(X) if several else Y, **params)
    label = classes_of(LATER) if several else LATER_Y
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


def test_models_without_sums_in_their_leaves_are_refused_by_name() -> None:
    model = trained(np.nan_to_num(X[:, 0]), objective="reg:absoluteerror")
    with pytest.raises(ConfigError, match=r"reg:absoluteerror.*quantiles cannot be refreshed"):
        model.refreshed(**parts(LATER), label=LATER_Y)


@pytest.mark.parametrize(
    ("params", "why"),
    [
        ({"booster": "dart"}, "booster = 'dart'"),
        ({"xgboost_arithmetic": "3.4"}, "xgboost_arithmetic = '3.4'"),
    ],
)
def test_models_whose_trees_are_not_those_of_the_updater_are_refused_by_name(
    params: dict[str, Any], why: str
) -> None:
    with pytest.raises(ConfigError, match=f"a model with {why} cannot be refreshed"):
        trained(**params).refreshed(**parts(LATER), label=LATER_Y)


def test_labels_of_another_number_of_rows_are_refused() -> None:
    with pytest.raises(DataError, match="rows"):
        trained().refreshed(**parts(LATER), label=LATER_Y[:-1])
