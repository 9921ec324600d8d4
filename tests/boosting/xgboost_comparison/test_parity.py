from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.boosting.params import TrainParams
from fedmq.boosting.xgboost_comparison.parity import Parity, compare, train_reference
from fedmq.errors import ConfigError, DataError
from tests.boosting.grower import grow
from tests.boosting.pooled import joined_cuts
from tests.boosting.tables import Table, pooled, scattered
from tests.how_often import seldom_several

pytest.importorskip("xgboost")

REGRESSION = {"objective": "reg:squarederror"}


def parity_of(table: Table, **values: Any) -> Parity:
    params = TrainParams(**{"max_bin": 32, **values})
    bins = BinMatrix.of(table.X, Cuts.of(table.X, params.max_bin))
    reference = train_reference(bins, table.y, params)
    return compare(reference, grow(bins, table.y, params).joined, bins)


def assert_identical(parity: Parity) -> None:
    assert parity.first_difference is None
    assert parity.identical == parity.total > 10


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "rows", "values"),
    [
        ("breast", None, {"max_depth": 6, "max_bin": 256}),
        ("breast", None, {"eta": 1.0, "num_boost_round": 30, "min_child_weight": 0}),
        ("credit2", None, {"max_depth": 6}),
        ("credit2", 10_000, {"max_bin": 1000}),
        ("credit1", 20_000, {"gamma": 0.5}),
        ("credit1", 20_000, {"min_child_weight": 5}),
        ("credit1", 20_000, {"lambda": 0}),
        ("credit1", 20_000, {"alpha": 20.0}),
        ("credit1", 20_000, {"max_delta_step": 0.7, "alpha": 3.0}),
        ("credit1", 20_000, {"lambda": 0, "min_child_weight": 0, "base_score": 0.07}),
        ("motor", None, {**REGRESSION, "max_depth": 6, "lambda": 0}),
        ("motor", None, {**REGRESSION, "alpha": 40.0, "max_delta_step": 0.4}),
        ("motor", None, {**REGRESSION, "gamma": 0.5, "min_child_weight": 5}),
        *seldom_several(
            ("breast", None, {"max_depth": 3}),
            ("credit2", None, {"max_depth": 3}),
            ("credit1", 20_000, {"max_depth": 3}),
            ("credit1", 20_000, {"max_depth": 6}),
            ("credit1", 20_000, {"min_child_weight": 0}),
            ("motor", None, {**REGRESSION, "max_depth": 3}),
        ),
    ],
)
def test_trees_of_real_data_are_xgboosts(
    name: str, rows: int | None, values: dict[str, Any]
) -> None:
    assert_identical(parity_of(pooled(name, rows), **values))


@pytest.mark.parametrize("missing", [0.0, 0.3])
@pytest.mark.parametrize("seed", range(5))
def test_trees_of_made_up_data_are_xgboosts(seed: int, missing: float) -> None:
    table = scattered(300, 4, seed=seed, missing=missing)
    assert_identical(parity_of(table, min_child_weight=seed % 3, max_bin=8 + seed))


@pytest.mark.parametrize(
    ("values", "difference"),
    [
        ({"reg_lambda": 1.5}, "tree 0, node "),
        ({"reg_alpha": 0.5}, "tree 0, node "),
        ({"max_delta_step": 0.3}, "tree 0, node "),
        ({"min_child_weight": 9.0}, "tree 0, node "),
        ({"max_depth": 3}, "tree 0, node 7: feature"),
        ({"num_boost_round": 3}, "4 trees, XGBoost has 3"),
        ({"num_boost_round": 5}, "4 trees, XGBoost has 5"),
    ],
)
def test_other_parameters_make_a_difference(values: dict[str, Any], difference: str) -> None:
    X, y = scattered(400, 4, seed=0, missing=0.2)
    params = TrainParams(max_depth=4, num_boost_round=4, max_bin=16)
    bins = BinMatrix.of(X, Cuts.of(X, params.max_bin))
    reference = train_reference(bins, y, params.model_copy(update=values))
    parity = compare(reference, grow(bins, y, params).joined, bins)
    assert parity.identical < parity.total
    assert parity.first_difference is not None
    assert parity.first_difference.startswith(difference)


def test_another_default_direction_makes_a_difference() -> None:
    X, y = scattered(400, 4, seed=0, missing=0.2)
    params = TrainParams(num_boost_round=1, max_depth=1)
    bins = BinMatrix.of(X, Cuts.of(X, params.max_bin))
    (tree,) = grow(bins, y, params).joined
    tree.default_left[0] = not tree.default_left[0]
    parity = compare(train_reference(bins, y, params), [tree], bins)
    assert parity.first_difference is not None
    assert "missing" in parity.first_difference


def test_trees_of_other_cuts_are_refused() -> None:
    X, y = scattered(400, 4, seed=0)
    params = TrainParams(num_boost_round=1)
    fine, coarse = (BinMatrix.of(X, Cuts.of(X, max_bin)) for max_bin in (64, 2))
    trees = grow(fine, y, params).joined
    with pytest.raises(DataError, match="no cut of the training rows"):
        compare(train_reference(coarse, y, params), trees, coarse)


@pytest.mark.parametrize(
    "values",
    [
        {"subsample": 0.5},
        {"colsample_bytree": 0.5},
        {"colsample_bylevel": 0.5},
        {"colsample_bynode": 0.5},
        {"active_only_trees": 1},
    ],
)
def test_what_xgboost_would_draw_in_another_way_is_refused(values: dict[str, Any]) -> None:
    X, y = scattered(20, 2, seed=0)
    with pytest.raises(ConfigError, match="needs subsample = 1"):
        train_reference(BinMatrix.of(X, Cuts.of(X, 8)), y, TrainParams(**values))


def test_cuts_of_joined_columns_are_those_of_the_parties() -> None:
    X, _ = scattered(50, 5, seed=0, missing=0.05)
    joined = joined_cuts([Cuts.of(X[:, :2], 8), Cuts.of(X[:, 2:], 8)])
    assert joined.model_dump_json() == Cuts.of(X, 8).model_dump_json()
    np.testing.assert_array_equal(joined.n_bins, Cuts.of(X, 8).n_bins)
