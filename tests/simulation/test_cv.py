"""Cross-validation: the folds, the curves and the end of ``xgb.cv`` on the joined table."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xgboost
from sklearn.datasets import load_digits
from sklearn.model_selection import GroupKFold, KFold

import fedmq
from fedmq.errors import ConfigError, DataError
from fedmq.party.data.held_out import folds_of
from tests.boosting.tables import scattered

VALUES, Y = scattered(360, 5, seed=2, missing=0.05)
X = np.clip(np.round(VALUES), -2, 2)  # every fold has all values, so that all cuts are the same
WEIGHT = np.linspace(0.5, 2, 360)
DIGITS, DIGIT = load_digits(n_class=3, return_X_y=True)
DIGITS = np.round(DIGITS / 4)


def ours(values: Any = X, label: Any = Y, **changes: Any) -> Any:
    split = values.shape[1] // 2
    passive = {"telco": values[:, split:]}
    return fedmq.cv(active=values[:, :split], label=label, passive=passive, **changes)


def theirs(values: Any = X, label: Any = Y, **changes: Any) -> Any:
    params = changes.pop("params")
    rounds = params.pop("num_boost_round", 10)
    rows = xgboost.DMatrix(values, label, weight=changes.pop("weight", None))
    return xgboost.cv({**params, "nthread": 1, "tree_method": "hist"}, rows, rounds, **changes)


BINARY = {"objective": "binary:logistic", "num_boost_round": 6, "max_depth": 3, "eta": 0.7}
CLASSES = {"objective": "multi:softprob", "num_class": 3, "num_boost_round": 3, "max_depth": 2}
CASES: dict[str, dict[str, Any]] = {
    "folds drawn": {"seed": 3},
    "five in order": {"nfold": 5, "shuffle": False},
    "stratified": {"stratified": True, "seed": 5, "metrics": ["auc", "logloss"]},
    "splitter": {"folds": KFold(4)},
    "weights": {"weight": WEIGHT, "metrics": ("logloss", "error")},
    "squares": {"params": {**BINARY, "objective": "reg:squarederror"}},
    "classes": {"values": DIGITS, "label": DIGIT, "params": CLASSES, "metrics": "merror"},
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_the_figures_are_those_of_xgboost(case: dict[str, Any]) -> None:
    given = {"params": BINARY, **case}
    found, expected = ours(**given), theirs(**{**given, "params": dict(given["params"])})
    assert list(found.columns) == list(expected.columns)
    pd.testing.assert_frame_equal(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("metric", ["logloss", "auc"])
def test_early_stopping_ends_with_xgboosts_best_round(metric: str) -> None:
    given = {"early_stopping_rounds": 3, "metrics": metric, "seed": 1}
    params = {**BINARY, "num_boost_round": 40, "eta": 1.0}
    found, expected = ours(params=params, **given), theirs(params=dict(params), **given)
    assert len(found) == len(expected) < 37
    pd.testing.assert_frame_equal(found, expected, rtol=1e-4, atol=1e-6)


def test_encrypted_folds_have_the_figures_of_open_ones() -> None:
    params = {**BINARY, "num_boost_round": 1, "max_depth": 2}
    options = {"key_bits": 512, "allow_weak_keys": True}
    hidden = ours(params=params, nfold=2, engine="paillier", engine_options=options, workers=1)
    pd.testing.assert_frame_equal(hidden, ours(params=params, nfold=2))


def test_rows_are_matched_by_index() -> None:
    people = pd.Index([f"p{row}" for row in range(360)])
    active, telco = pd.DataFrame(X[:, :2], people), pd.DataFrame(X[:, 2:], people)
    found = fedmq.cv(
        active=active,
        label=pd.Series(Y, people).iloc[::-1],
        passive={"telco": telco.iloc[::-1]},
        params=BINARY,
    )
    pd.testing.assert_frame_equal(found, ours(params=BINARY))


def test_without_pandas_the_result_is_a_dict(monkeypatch: pytest.MonkeyPatch) -> None:
    frame, lists = ours(params=BINARY), ours(params=BINARY, as_pandas=False)
    assert {name: frame[name].tolist() for name in frame} == lists
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert ours(params=BINARY) == lists


def test_a_custom_metric_has_its_columns_and_ends_the_curves() -> None:
    def bias(predictions: Any, rows: Any) -> tuple[str, float]:
        return "bias", float(np.mean(predictions - rows.get_label()) ** 2)

    found = ours(
        params={**BINARY, "num_boost_round": 20}, custom_metric=bias, early_stopping_rounds=1
    )
    assert list(found.columns)[-2:] == ["test-bias-mean", "test-bias-std"]
    assert len(found) < 20


def test_groups_stay_together_and_folds_are_of_like_size() -> None:
    groups = np.repeat(np.arange(90), 4)
    folds = folds_of(Y, groups=groups, nfold=4, seed=2)
    for train, test in folds:
        assert not set(groups[train]) & set(groups[test])
        assert len(test) in (88, 92)
        assert sorted([*train, *test]) == list(range(360))
    assert [test.tolist() for _, test in folds] != [
        test.tolist() for _, test in folds_of(Y, groups=groups, nfold=4, seed=3)
    ]
    pairs = list(GroupKFold(3).split(X, Y, groups))
    pd.testing.assert_frame_equal(
        ours(params=BINARY, folds=pairs), theirs(params=dict(BINARY), folds=pairs), rtol=1e-4
    )


def test_rows_of_no_fold_are_left_out() -> None:
    pairs = [(np.arange(0, 200), np.arange(200, 300)), (np.arange(100, 300), np.arange(0, 100))]
    found = ours(params=BINARY, folds=pairs)
    expected = theirs(params=dict(BINARY), folds=pairs)
    pd.testing.assert_frame_equal(found, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("changes", "error", "line"),
    [
        ({"nfold": 1}, ConfigError, "cv: nfold = 1; between 2 and 360, the number of rows"),
        ({"nfold": 9, "groups": np.arange(360) % 4}, ConfigError, "between 2 and 4, the number of"),
        ({"stratified": True, "groups": np.arange(360)}, ConfigError, "cv: stratified, folds and"),
        ({"folds": [([0, 1], [360])]}, DataError, "cv: fold 0 names no rows, or some that do not"),
        ({"folds": [([], [1])]}, DataError, "cv: fold 0 names no rows"),
        ({"groups": np.arange(9)}, DataError, r"cv: groups has shape \(9,\)"),
        ({"early_stopping_rounds": 0}, ConfigError, "early_stopping_rounds = 0: at least 1"),
        ({"engine": "magic"}, ConfigError, "cv: engine: 'magic' is unknown"),
        (
            {"stratified": True, "nfold": 999},
            ConfigError,
            "cv: Cannot have number of splits n_splits=999",
        ),
    ],
    ids=["one", "few groups", "two ways", "beyond", "empty", "shape", "rounds", "engine", "many"],
)
def test_what_is_wrong_is_one_line(changes: Any, error: type[Exception], line: str) -> None:
    with pytest.raises(error, match=line) as caught:
        ours(params=BINARY, **changes)
    assert "\n" not in str(caught.value)


def test_stratified_folds_without_scikit_learn_name_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.model_selection", None)
    with pytest.raises(ConfigError, match=r"pip install 'fedmq\[sklearn\]'"):
        ours(params=BINARY, stratified=True)
