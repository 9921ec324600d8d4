"""What an owner tells of its splits is all that a joint model needs; misfits are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedmq
from fedmq.boosting.model.owner_splits import OwnerSplits
from fedmq.boosting.xgboost_comparison.export import joint_booster
from fedmq.boosting.xgboost_comparison.parity import labelled
from fedmq.errors import ProtocolError
from fedmq.messages.array import Array, Bitmap
from fedmq.messages.body import RecordColumns
from fedmq.messages.model_request import ModelThresholds
from fedmq.protocol.model_request.told_splits import splits_of, told_splits

pytestmark = pytest.mark.usefixtures("threads")

pd = pytest.importorskip("pandas")
pytest.importorskip("xgboost")

ROWS = 300


def simulated(**params: Any) -> tuple[fedmq.SimulatedModel, dict[str, Any]]:
    """A model whose passive party holds towns, numbers, and blanks of either."""
    random = np.random.default_rng(3)
    town = random.integers(0, 9, ROWS)
    names = np.array([f"town {number}" for number in range(9)], object)[town]
    names[random.random(ROWS) < 0.1] = None
    calls, own = random.normal(size=(2, ROWS))
    label = (random.normal(size=9)[town] + calls * own > 0).astype(np.float64)
    calls[random.random(ROWS) < 0.1] = np.nan
    telco = pd.DataFrame({"unused": np.zeros(ROWS), "town": names, "calls": calls})
    given = {"active": own[:, np.newaxis], "passive": {"telco": telco}}
    model = fedmq.simulate(
        **given,
        label=label,
        engine="plain",
        params={"num_boost_round": 4, "max_depth": 3, "max_bin": 16} | params,
    )
    return model, given


@pytest.mark.parametrize("named", [True, False], ids=["names", "numbers"])
@pytest.mark.parametrize(
    "params",
    [{"max_cat_to_onehot": 4}, {}, {"booster": "dart", "rate_drop": 0.5, "max_cat_to_onehot": 4}],
    ids=["sets of categories", "each category", "dart"],
)
def test_the_booster_of_what_is_told_predicts_as_the_parties_together(
    params: dict[str, Any], named: bool
) -> None:
    model, given = simulated(**params)
    table = model.passive_shares["telco"].lookup_table
    told = splits_of("telco", told_splits(table, named), len(table))
    booster = joint_booster(model.share, [OwnerSplits.of(model.share.lookup_table), told])
    whole = model.to_xgboost()
    used = OwnerSplits.of(table).told(names=True).columns
    assert "unused" not in used
    assert set(told.columns) == set(used) if named else all("column_" in n for n in told.columns)
    assert whole.feature_names is not None
    places = [0, *(whole.feature_names.index(f"telco.{name}") for name in used)]
    rows = labelled(
        model.joined_values(**given)[:, places],
        np.zeros(ROWS, np.float32),
        types=booster.feature_types,
    )
    rows.feature_names = booster.feature_names
    ours = model.predict(**given, output_margin=True)
    np.testing.assert_array_equal(booster.predict(rows, output_margin=True), ours)


def test_categories_have_their_names_in_the_booster_only_where_they_are_shared() -> None:
    model, _ = simulated(max_cat_to_onehot=4)
    own, table = (
        OwnerSplits.of(model.share.lookup_table),
        model.passive_shares["telco"].lookup_table,
    )
    shared = joint_booster(model.share, [own, OwnerSplits.of(table).told(names=True)])
    numbered = joint_booster(model.share, [own, OwnerSplits.of(table).told(names=False)])
    assert "town 3" in (shared.attr("categories") or "")
    assert "town" not in bytes(numbered.save_raw("json")).decode()


def told(**changed: Any) -> ModelThresholds:
    """Of two records of one column, with two categories."""
    as_told: dict[str, Any] = {
        "columns": RecordColumns(column=Array.of(np.zeros(2, np.uint32)), texts=("age",)),
        "thresholds": Array.of(np.array([1, 2], np.float32)),
        "missing_left": Bitmap.of(np.zeros(2, np.bool_)),
        "category_names": (("a", "b"),),
        "codes_right": ((), (0, 3)),
    }
    return ModelThresholds(**as_told | changed)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"thresholds": Array.of(np.array([1], np.float32))}, "differ in length"),
        ({"thresholds": Array.of(np.array([1, np.nan], np.float32))}, "not a number"),
        ({"category_names": ()}, "columns need a name each"),
        ({"codes_right": ((), (4,))}, "names no category"),
        ({"codes_right": ((),)}, "differ in number"),
        ({"category_names": ((),)}, "names no category"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(changed: dict[str, Any], why: str) -> None:
    assert splits_of("telco", told(), 2).codes_right == ((), (0, 3))
    with pytest.raises(ProtocolError, match=rf"^telco .*{why}"):
        splits_of("telco", told(**changed), 2)
    with pytest.raises(ProtocolError, match="of 2 records, not 3"):
        splits_of("telco", told(), 3)
