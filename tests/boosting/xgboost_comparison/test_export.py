from __future__ import annotations

import sys

import numpy as np
import pytest

from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.boosting.model.tree import LookupTable, TreeArrays
from fedmq.boosting.params import TrainParams
from fedmq.boosting.xgboost_comparison.export import to_booster
from fedmq.boosting.xgboost_comparison.pooled_tree import PooledTree, pooled_feature_names
from fedmq.errors import ConfigError
from tests.boosting.grower import grow
from tests.boosting.model.test_tree import small_tree
from tests.boosting.tables import pooled, scattered

xgb = pytest.importorskip("xgboost")


@pytest.mark.parametrize("base_score", [0.5, 0.3])
@pytest.mark.parametrize("objective", ["binary:logistic", "reg:squarederror"])
def test_a_booster_gives_our_margins_bit_for_bit(objective: str, base_score: float) -> None:
    X, y = scattered(400, 5, seed=4, missing=0.2)
    params = TrainParams(objective=objective, base_score=base_score, max_bin=16)
    bins = BinMatrix.of(X, Cuts.of(X, params.max_bin))
    grown = grow(bins, y, params)
    assert not np.isfinite(grown.table.threshold).all()  # present from missing: rare, but here
    booster = to_booster(grown.joined, params, grown.table.feature_names)
    data = xgb.DMatrix(X, feature_names=list(grown.table.feature_names))
    np.testing.assert_array_equal(booster.predict(data, output_margin=True), grown.margins)


def test_a_booster_of_real_data_gives_our_margins_bit_for_bit() -> None:
    X, y = pooled("credit1", 5_000)
    params = TrainParams(max_bin=32, base_score=0.5)
    grown = grow(BinMatrix.of(X, Cuts.of(X, params.max_bin)), y, params)
    booster = to_booster(grown.joined, params, grown.table.feature_names)
    data = xgb.DMatrix(X, feature_names=list(grown.table.feature_names))
    np.testing.assert_array_equal(booster.predict(data, output_margin=True), grown.margins)


@pytest.mark.parametrize(
    ("threshold", "default_left", "expected"),
    [
        (np.inf, False, [1, 1, 1, 2]),
        (-np.inf, True, [2, 2, 2, 1]),
        (0.5, True, [1, 1, 2, 1]),
        (-3.4e38, False, [1, 2, 2, 2]),
    ],
)
def test_thresholds_part_the_same_values(
    threshold: float, default_left: bool, expected: list[float]
) -> None:
    growing = TreeArrays()
    for node, weight in zip(growing.split(0, 0, 0, gain=1.0, cover=2.0), (1, 2), strict=True):
        growing.leaf(node, weight, cover=1.0)
    table = LookupTable.empty(("x",)).appended(0, threshold, default_left)
    params = TrainParams(objective="reg:squarederror", base_score=0.0)
    booster = to_booster([PooledTree.of(growing.finished(), [table])], params, ["x"])
    values = np.array([[-3.4e38], [0.5], [np.nextafter(np.float32(0.5), 1)], [np.nan]], np.float32)
    assert booster.predict(xgb.DMatrix(values, feature_names=["x"])).tolist() == expected


def test_features_carry_their_partys_name_and_importance_survives() -> None:
    tables = [
        LookupTable.empty(("age",)).appended(0, 30.0, False),
        LookupTable.empty(("income", "debt")).appended(1, 5.0, True),
    ]
    names = pooled_feature_names(["bank", "shop"], tables)
    assert names == ["bank.age", "shop.income", "shop.debt"]
    booster = to_booster([PooledTree.of(small_tree(), tables)], TrainParams(base_score=0.5), names)
    assert booster.get_score(importance_type="gain") == {"bank.age": 2.0, "shop.debt": 1.0}
    assert booster.get_score(importance_type="cover") == {"bank.age": 3.0, "shop.debt": 2.0}


def test_without_xgboost_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xgboost", None)
    with pytest.raises(ConfigError, match=r"pip install 'fedmq\[xgboost\]'"):
        to_booster([], TrainParams(), ["x"])
