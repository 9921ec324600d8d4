"""Given cuts: the model is XGBoost's on columns that hold the numbers of the bins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedmq
from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.boosting.xgboost_comparison.parity import compare, train_reference
from fedmq.errors import ConfigError, FedmqError
from tests.boosting.tables import scattered
from tests.how_often import seldom

pytestmark = pytest.mark.usefixtures("threads")

WEAK: dict[str, Any] = {"key_bits": 512, "allow_weak_keys": True}
X, Y = scattered(400, 6, seed=5, missing=0.1)
# Beyond both ends of the column, and two cuts between the same two rows.
OWN = [-100.0, -0.5, 0.25, 1.0, 100.0]
THEIRS = [-1.0, 0.0, 0.00001, 0.5]
GIVEN: dict[str, Any] = {"active": {"f1": OWN}, "telco": {"f0": THEIRS, "f2": "quantile:3"}}


def trained(engine: str = "plain", **more: Any) -> fedmq.SimulatedModel:
    keys = {"engine_options": WEAK, "workers": 1} if engine in ("ou", "paillier") else {}
    return fedmq.simulate(
        active=X[:, :3],
        label=Y,
        passive={"telco": X[:, 3:]},
        params={"num_boost_round": 4, "max_depth": 4, "max_bin": 16},
        engine=engine,
        **{"column_bins": GIVEN, **keys, **more},
    )


def discretised() -> BinMatrix:
    """The rows with numbers of bins in the columns of given cuts, binned as values of their own."""
    values = X.copy()
    for column, cuts in ((1, OWN), (3, THEIRS)):
        codes = np.searchsorted(np.array(cuts, np.float32), X[:, column]).astype(np.float32)
        values[:, column] = np.where(np.isnan(X[:, column]), np.nan, codes)
    cuts = Cuts.of(values, 16)
    thirds = Cuts.of(values, 3).thresholds[5]
    return BinMatrix.of(
        values, cuts.model_copy(update={"thresholds": (*cuts.thresholds[:5], thirds)})
    )


@pytest.mark.parametrize("engine", ["plain", "lattice", *seldom("ou", "paillier", "smm1")])
def test_each_node_is_xgboosts_on_discretised_columns(engine: str) -> None:
    model = trained(engine)
    bins = BinMatrix.of(X, Cuts.of(X, 16, {1: tuple(OWN), 3: tuple(THEIRS), 5: 3}))
    reference = train_reference(discretised(), Y, model.share.params)
    parity = compare(reference, model.joined_trees(), bins)
    assert parity.first_difference is None
    assert parity.total > 40
    free = train_reference(BinMatrix.of(X, Cuts.of(X, 16)), Y, model.share.params)
    assert compare(free, model.joined_trees(), bins).first_difference is not None


def test_rows_in_bins_that_training_left_empty_are_scored_as_by_xgboost() -> None:
    xgb = pytest.importorskip("xgboost")
    every = {"active": dict.fromkeys(("f0", "f1", "f2"), OWN)}
    every |= {"telco": dict.fromkeys(("f0", "f1", "f2"), THEIRS)}
    model = trained(column_bins=every)
    cuts = [OWN] * 3 + [THEIRS] * 3

    def codes(rows: Any) -> Any:
        columns = [
            np.where(np.isnan(of), np.nan, np.searchsorted(np.array(at, np.float32), of))
            for of, at in zip(rows.T, cuts, strict=True)
        ]
        return xgb.DMatrix(np.stack(columns, axis=1).astype(np.float32))

    learnt = codes(X)
    learnt.set_label(Y)
    booster = xgb.train(model.share.params.to_xgboost() | {"max_bin": 64}, learnt, 4)
    places = np.array([-1000, -100, -99, -1, -0.5, 0, 0.000005, 0.00001, 0.25, 1, 99, 1000, np.nan])
    rows = np.random.default_rng(0).choice(places, (500, 6)).astype(np.float32)
    ours = model.predict(active=rows[:, :3], passive={"telco": rows[:, 3:]})
    np.testing.assert_allclose(ours, booster.predict(codes(rows)), atol=1e-6)


def test_data_frames_name_columns_and_others_keep_their_quantiles() -> None:
    bank = pd.DataFrame({"income": X[:, 0], "town": np.where(X[:, 1] > 0, "a", "b")})
    found = fedmq.compare_with_xgboost(
        active=bank,
        label=Y,
        passive={"telco": X[:, 3:]},
        params={"num_boost_round": 3, "max_depth": 3, "max_bin": 16},
        column_bins={"active": {"income": np.array([-1, 0, 1])}, "telco": {"f1": 4}},
    )
    assert found.first_difference is None
    assert found.identical == found.nodes > 20


@pytest.mark.parametrize(
    ("bins", "line"),
    [
        (
            {"retail": {"f0": [1]}},
            "column_bins: 'retail' is no party here; there are active, telco",
        ),
        (
            {"telco": {"f9": [1]}},
            "column_bins: telco: 'f9' is none of the columns of numbers, 'f0', 'f1', 'f2'",
        ),
        (
            {"telco": {"f0": [2, 1]}},
            "column_bins: telco, column 'f0': 1 stands after 2: write each",
        ),
        (
            {"telco": {"f0": [1, 1]}},
            "column_bins: telco, column 'f0': 1 stands after 1: write each",
        ),
        ({"telco": {"f0": [0, float("nan")]}}, "column 'f0': nan is no finite float32"),
        ({"telco": {"f0": [0, 1e39]}}, "column 'f0': 1e+39 is no finite float32"),
        (
            {"telco": {"f0": [1, 1 + 1e-9]}},
            "column 'f0': 1 and 1.000000001 are the same in float32",
        ),
        ({"telco": {"f0": []}}, "column 'f0': write cuts, such as [1000, 2000, 5000], or the most"),
        (
            {"telco": {"f0": True}},
            "column 'f0': write cuts, such as [1000, 2000, 5000], or the most",
        ),
        ({"telco": {"f0": "deciles"}}, "column 'f0': write cuts, such as [1000, 2000, 5000]"),
        ({"telco": {"f0": 1}}, "column 'f0': 1 bins: write a number from 2 to 65535"),
        ({"telco": [1, 2]}, 'column_bins: telco: write {"COLUMN": [1000, 2000]}'),
    ],
)
def test_a_line_says_what_is_wrong(bins: Any, line: str) -> None:
    with pytest.raises(ConfigError) as refused:
        trained(column_bins=bins)
    assert line in str(refused.value)
    assert "\n" not in str(refused.value)


def test_max_bin_holds_for_given_cuts() -> None:
    cuts = list(range(16))
    with pytest.raises(
        ConfigError, match=r"active has given a column 17 bins .*train with max_bin"
    ):
        trained(column_bins={"active": {"f0": cuts}})
    with pytest.raises(
        FedmqError, match=r"telco has given a column 17 bins .* max_bin = 17 or more"
    ):
        trained(column_bins={"telco": {"f0": cuts}})
