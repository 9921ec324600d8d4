"""Importances and contributions of a simulated model are XGBoost's of the joined model."""

from __future__ import annotations

from functools import cache
from typing import Any, get_args

import numpy as np
import pytest

import fedmq
from fedmq.boosting.model.shown_model import ImportanceKind, owned_importance, split_counts
from fedmq.errors import ConfigError, DataError
from tests.boosting.tables import scattered

xgboost = pytest.importorskip("xgboost")

X, Y = scattered(300, 6, seed=4, missing=0.1)
CLASSES = np.digitize(np.nan_to_num(X[:, 0]), [-0.5, 0.5])
PARAMS: dict[str, dict[str, Any]] = {
    "one tree a round": {"max_depth": 4},
    "poisson": {"objective": "count:poisson", "max_depth": 3},
    "stopped early": {"max_depth": 6, "early_stopping_rounds": 1, "eval_metric": ["logloss"]},
    "classes": {"objective": "multi:softprob", "num_class": 3, "max_depth": 3},
    "stumps": {"max_depth": 1},
}


@cache
def trained(name: str) -> fedmq.SimulatedModel:
    params = fedmq.TrainParams(num_boost_round=8, max_bin=16, **PARAMS[name])
    more: dict[str, Any] = {}
    if "early_stopping_rounds" in PARAMS[name]:
        more["evaluation"] = np.arange(300) % 3 == 0
    return fedmq.simulate(
        active=X[:, :2],
        label=CLASSES if "classes" in name else Y,
        passive={"telco": X[:, 2:5], "shop": X[:, 5:]},
        params=params,
        engine="plain",
        **more,
    )


def columns() -> dict[str, Any]:
    return {"active": X[:, :2], "passive": {"telco": X[:, 2:5], "shop": X[:, 5:]}}


@pytest.mark.parametrize("name", PARAMS)
def test_contributions_are_xgboost_s_and_add_up_to_the_margin(name: str) -> None:
    model = trained(name)
    booster = model.to_xgboost()
    joined = xgboost.DMatrix(X, feature_names=booster.feature_names)
    values = model.predict(**columns(), pred_contribs=True)
    expected = booster.predict(joined, pred_contribs=True)
    assert values.shape == expected.shape
    assert values.dtype == np.float32
    np.testing.assert_allclose(values, expected, atol=1e-5)
    margins = model.predict(**columns(), output_margin=True)
    np.testing.assert_allclose(values.sum(axis=-1), margins, atol=1e-5)


@pytest.mark.parametrize("name", PARAMS)
@pytest.mark.parametrize("kind", get_args(ImportanceKind))
def test_importances_are_xgboost_s(name: str, kind: str) -> None:
    model = trained(name)
    expected = model.to_xgboost().get_score(importance_type=kind)
    assert model.get_score(importance_type=kind) == expected


@pytest.mark.parametrize("kind", ["weight", "total_gain", "total_cover"])
def test_the_active_party_sees_its_own_columns_and_every_other_party_as_a_whole(kind: Any) -> None:
    model = trained("one tree a round")
    joined = model.get_score(kind)
    seen = owned_importance(model.share, kind)
    assert {party for party, column in seen if not column} == {"telco", "shop"}
    for (party, column), value in seen.items():
        of_party = [found for name, found in joined.items() if name.startswith(f"{party}.")]
        expected = sum(of_party) if not column else joined[f"{party}.{column}"]
        assert value == pytest.approx(expected, rel=1e-5)


def test_an_owner_sees_how_often_its_own_columns_split() -> None:
    model = trained("one tree a round")
    joined = model.get_score("weight")
    for party, share in model.passive_shares.items():
        counts = {f"{party}.{column}": count for column, count in split_counts(share).items()}
        assert counts == {name: n for name, n in joined.items() if name.startswith(f"{party}.")}


def test_a_report_of_a_model_has_its_metrics() -> None:
    model = trained("stopped early")
    report = model.evaluate(**columns(), label=Y, samples=10)
    score = model.predict(**columns())
    assert report.metrics["brier"].value == pytest.approx(np.mean((score - Y) ** 2))
    assert {chart.name for chart in report.charts} >= {"ROC", "Learning curve, logloss"}
    with pytest.raises(DataError, match=r"label has the shape \(3,\), and there are 300 rows"):
        model.evaluate(**columns(), label=[0, 1, 1])


def test_an_importance_that_xgboost_does_not_have_is_refused() -> None:
    with pytest.raises(ConfigError, match="importance_type 'gains'; one of weight, gain"):
        trained("stumps").get_score("gains")


def test_contributions_need_every_party_s_columns() -> None:
    model = trained("stumps")
    with pytest.raises(DataError, match="the columns of shop are missing"):
        model.predict(active=X[:, :2], passive={"telco": X[:, 2:5]}, pred_contribs=True)
    with pytest.raises(DataError, match="telco has 10 rows, active has 300"):
        model.predict(
            active=X[:, :2], passive={"telco": X[:10, 2:5], "shop": X[:, 5:]}, pred_contribs=True
        )
