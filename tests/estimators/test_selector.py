"""`ScreenSelector`: what `fedmq.screen` selects, in a pipeline, by scikit-learn's conventions."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pandas
import polars
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_selector
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.utils.estimator_checks import estimator_checks_generator

import fedmq
from fedmq import FederatedClassifier, FederatedRegressor, ScreenSelector
from fedmq.errors import ConfigError, DataError

ROWS = 300
RANDOM = np.random.default_rng(3)
TABLE = pandas.DataFrame(
    {
        "age": RANDOM.normal(size=ROWS),
        "job": RANDOM.choice(list("abc"), ROWS),
        "telco_calls": RANDOM.normal(size=ROWS),
        "telco_plan": RANDOM.choice(["x", "y"], ROWS),
        "telco_since": pandas.Timestamp("2026-01-01")
        + pandas.to_timedelta(RANDOM.integers(0, 900, ROWS), "D"),
        "telco_noise": np.where(RANDOM.random(ROWS) < 0.9, np.nan, 1.0),
    }
)
TABLE["telco_twice"] = TABLE["telco_calls"] + RANDOM.normal(size=ROWS) * 0.05
Y = (TABLE["age"] + TABLE["telco_calls"] + RANDOM.normal(size=ROWS) > 0).astype(int)
TELCO = {"telco": make_column_selector(pattern="^telco")}
CHECKED = ScreenSelector(parties={"telco": slice(1, None, 2)}, smallest_group=5)


def checks() -> list[Any]:
    return [
        pytest.param(example, check, id=f"{number}-{getattr(check, 'func', check).__name__}")
        for number, (example, check) in enumerate(estimator_checks_generator(CHECKED, mark=None))
    ]


@pytest.mark.parametrize(("estimator", "check"), checks())
def test_it_keeps_to_scikit_learns_conventions(estimator: Any, check: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # several checks provoke them
        check(estimator)


@pytest.mark.parametrize(
    ("rule", "y"),
    [
        ({"k": 3}, Y),
        ({"k": None, "iv": 0.02, "missing": 0.8}, Y),
        ({"k": None, "correlation": 0.9}, Y),
        ({"k": None, "p": 0.01}, TABLE["age"] + TABLE["telco_calls"] ** 2),
        ({"k": 4}, pandas.Series(np.digitize(TABLE["telco_calls"], [-0.5, 0.5]))),
    ],
)
def test_it_selects_what_a_screen_selects(rule: dict[str, Any], y: pandas.Series) -> None:
    found = ScreenSelector(parties=TELCO, smallest_group=20, **rule).fit(TABLE, y)
    telco = [name for name in TABLE if name.startswith("telco")]
    names = {"k": "top"}
    screened = fedmq.screen(
        active=TABLE.drop(columns=telco),
        label=y,
        passive={"telco": TABLE[telco]},
        smallest_group=20,
        correlation="correlation" in rule,
        label_type=found.screen_.found["label_type"],
        select={names.get(name, name): value for name, value in rule.items() if value is not None},
    ).to_pandas()
    wanted = set(screened.loc[screened["selected"], "name"].str.removesuffix(".days"))
    assert set(found.get_feature_names_out()) == wanted
    assert 0 < len(wanted) < TABLE.shape[1]
    if "correlation" in rule:
        assert len({"telco_calls", "telco_twice"} & wanted) == 1


def test_the_selected_columns_come_out_as_they_went_in() -> None:
    selector = ScreenSelector(k=2, parties=TELCO, smallest_group=20).fit(TABLE, Y)
    names = ["age", "telco_calls"] if selector.get_support()[2] else ["age", "telco_twice"]
    assert selector.get_feature_names_out().tolist() == names
    assert selector.get_support(indices=True).tolist() == [list(TABLE).index(of) for of in names]
    pandas.testing.assert_frame_equal(selector.transform(TABLE), TABLE[names])
    of_polars = ScreenSelector(k=2, parties={"telco": list(TABLE)[2:]}, smallest_group=20)
    told = of_polars.fit_transform(polars.from_pandas(TABLE), Y.to_numpy())
    assert isinstance(told, polars.DataFrame) and told.columns == names
    numbers = TABLE[["age", "telco_calls"]].to_numpy()
    of_array = ScreenSelector(k=1, parties={"telco": [1]}, smallest_group=20)
    out = of_array.fit_transform(numbers, Y)
    np.testing.assert_array_equal(out, numbers[:, of_array.get_support()])
    with pytest.raises(ValueError, match="feature names"):
        selector.transform(TABLE.drop(columns="age"))


def test_a_table_per_party_goes_in_and_comes_out() -> None:
    X = {"active": TABLE[["age", "job"]], "telco": TABLE[["telco_calls", "telco_plan"]]}
    selector = ScreenSelector(k=2, smallest_group=20).fit(X, Y)
    assert selector.get_feature_names_out().tolist() == ["age", "telco.telco_calls"]
    assert selector.get_support().tolist() == [True, False, True, False]
    out = selector.transform(X)
    assert {party: list(table) for party, table in out.items()} == {
        "active": ["age"],
        "telco": ["telco_calls"],
    }


def test_it_stands_in_a_pipeline_before_a_classifier_and_is_searched() -> None:
    model = Pipeline(
        [
            ("select", ScreenSelector(k=3, parties=TELCO, smallest_group=20)),
            ("train", FederatedClassifier(parties=TELCO, n_estimators=3, max_depth=2)),
        ]
    ).fit(TABLE, Y)
    assert model.score(TABLE, Y) > 0.7
    assert model["train"].n_features_in_ == 3
    assert model[:-1].get_feature_names_out().tolist() == model["train"].feature_names_in_.tolist()
    search = GridSearchCV(model, {"select__k": [2, 3]}, cv=2).fit(TABLE, Y)
    assert search.best_params_["select__k"] in (2, 3)
    both = make_pipeline(
        clone(model["select"]).set_params(label_type="number"),
        FederatedRegressor(parties=TELCO, n_estimators=2),
    )
    assert len(both.fit(TABLE, TABLE["age"]).predict(TABLE)) == ROWS


@pytest.mark.parametrize(
    ("options", "y", "why"),
    [
        ({"k": 0}, Y, "ScreenSelector: select.top"),
        ({"bins": 1}, Y, "ScreenSelector: bins"),
        ({"iv": 0.1}, TABLE["age"], "iv is of a binary label"),
        ({}, pandas.Series(np.arange(ROWS)), r'y has 300 classes, and 50 .* label_type="number"'),
        ({}, Y * 0, "all labels are 0"),
        ({"label_type": "number"}, TABLE["job"], "could not convert"),
        ({"parties": {"telco": ["calls"]}}, Y, "'calls', which does not exist"),
        ({}, Y[:-1], "rows"),
    ],
)
def test_bad_input_is_one_clear_line(options: dict[str, Any], y: Any, why: str) -> None:
    selector = ScreenSelector(**{"parties": TELCO, "smallest_group": 20, **options})
    with pytest.raises((ConfigError, DataError, ValueError), match=why) as raised:
        selector.fit(TABLE, y)
    assert "\n" not in str(raised.value)


def test_where_no_column_is_selected_it_warns() -> None:
    selector = ScreenSelector(iv=9.0, parties=TELCO, smallest_group=20).fit(TABLE, Y)
    with pytest.warns(UserWarning, match="No column is selected"):
        assert selector.transform(TABLE).shape == (ROWS, 0)
