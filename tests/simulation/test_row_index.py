"""Rows of pandas tables are matched by their indexes, never silently by position."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

import fedmq
from fedmq.errors import ConfigError, DataError
from tests.boosting.tables import scattered

X, Y = scattered(120, 4, seed=2)
PEOPLE = pd.Index([f"p{row:03}" for row in range(120)])
ACTIVE = pd.DataFrame(X[:, :2], PEOPLE, columns=["age", "income"])
TELCO = pd.DataFrame(X[:, 2:], PEOPLE, columns=["calls", "data"])
LABEL = pd.Series(Y, PEOPLE)
OTHER_ORDER = np.random.default_rng(0).permutation(120)
PARAMS = {"num_boost_round": 2, "max_depth": 3, "max_bin": 16}


def trained(**changes: Any) -> fedmq.SimulatedModel:
    given = {"active": ACTIVE, "label": LABEL, "passive": {"telco": TELCO}}
    return fedmq.simulate(**{**given, **changes}, params=PARAMS, engine="plain")


@pytest.fixture(scope="module")
def model() -> fedmq.SimulatedModel:
    return trained()


def test_rows_in_another_order_train_the_same_model(model: fedmq.SimulatedModel) -> None:
    weight = pd.Series(1 + X[:, 0] ** 2, PEOPLE)
    moved = trained(
        label=LABEL.iloc[OTHER_ORDER],
        passive={"telco": TELCO.iloc[OTHER_ORDER]},
        weight=weight.iloc[::-1],
    )
    assert moved.share.dumps() == trained(weight=weight).share.dumps() != model.share.dumps()


def test_rows_in_another_order_are_scored_alike(model: fedmq.SimulatedModel) -> None:
    expected = model.predict(active=ACTIVE, passive={"telco": TELCO})
    found = model.predict(active=ACTIVE, passive={"telco": TELCO.iloc[OTHER_ORDER]})
    np.testing.assert_array_equal(found, expected)
    moved = model.predict(active=ACTIVE.iloc[OTHER_ORDER], passive={"telco": TELCO})
    np.testing.assert_array_equal(moved, expected[OTHER_ORDER])


def test_an_index_that_all_share_may_repeat_itself(model: fedmq.SimulatedModel) -> None:
    again = pd.Index(["p"] * 120)
    same = trained(
        active=ACTIVE.set_axis(again),
        label=LABEL.set_axis(again),
        passive={"telco": TELCO.set_axis(again)},
    )
    assert same.share.dumps() == model.share.dumps()


def test_labels_without_an_index_stand_in_the_order_of_the_rows(
    model: fedmq.SimulatedModel,
) -> None:
    assert trained(label=Y).share.dumps() == model.share.dumps()


def test_numbered_rows_go_with_arrays(model: fedmq.SimulatedModel) -> None:
    expected = model.share.dumps()
    for telco in (TELCO.to_numpy(), pl.DataFrame(TELCO.to_dict("list"))):
        found = trained(active=ACTIVE.reset_index(drop=True), label=Y, passive={"telco": telco})
        assert found.share.dumps() == expected


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"passive": {"telco": TELCO.rename({"p003": "q003"})}},
            "telco: 1 rows of active are not in its index, such as 'p003'",
        ),
        ({"active": ACTIVE.iloc[5:]}, "active: 5 rows of telco are not in its index, such as "),
        (
            {"label": LABEL.iloc[:-1]},
            "label: 1 rows of active are not in its index, such as 'p119'",
        ),
        (
            {"passive": {"telco": pd.concat([TELCO, TELCO.iloc[:1]])}},
            "telco: row 'p000' of its index is there more than once",
        ),
        (
            {"passive": {"telco": TELCO.to_numpy()}},
            "telco: the rows of active have an index and those of telco none",
        ),
        (
            {"active": ACTIVE.to_numpy()},
            "active: the rows of telco have an index and those of active none",
        ),
        (
            {"passive": {"telco": TELCO.reset_index(drop=True)}},
            "telco: 120 rows of active are not in its index, such as 'p000', 'p001', 'p002'",
        ),
    ],
    ids=["renamed", "fewer", "label", "twice", "array", "own array", "numbered"],
)
def test_rows_that_cannot_be_matched_are_refused(changes: dict[str, Any], line: str) -> None:
    with pytest.raises(DataError, match=f"^{line}") as caught:
        trained(**changes)
    assert "\n" not in str(caught.value)


SOME = {
    "active": ACTIVE.iloc[:100],
    "label": LABEL.iloc[OTHER_ORDER],
    "passive": {"telco": TELCO.iloc[::-1].iloc[:110]},
    "join": "inner",
}
"""Tables of different people, who all are there from row 10 to 99."""
BOTH = slice(10, 100)


def test_an_inner_join_takes_the_rows_that_all_indexes_hold() -> None:
    weight = np.arange(100) + 1.0
    expected = trained(
        active=ACTIVE.iloc[BOTH],
        label=LABEL.iloc[BOTH],
        passive={"telco": TELCO.iloc[BOTH]},
        weight=weight[BOTH],
        evaluation=range(10),
    )
    for evaluation in (range(5, 20), np.arange(100) < 20, {"eval": range(20)}):
        found = trained(**SOME, weight=weight, evaluation=evaluation)
        assert found.share.dumps() == expected.share.dumps()
    joined = {**SOME, "params": PARAMS, "nfold": 2}
    curves = fedmq.cv(**joined)
    apart = {"active": ACTIVE.iloc[BOTH], "label": LABEL.iloc[BOTH], "params": PARAMS, "nfold": 2}
    assert curves.equals(fedmq.cv(**apart, passive={"telco": TELCO.iloc[BOTH]}))


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"passive": {"telco": TELCO.rename(lambda name: f"q{name}")}},
            'join = "inner": active and telco share no row, where ids are such as '
            "'p000' and 'qp000'",
        ),
        (
            {"passive": {"telco": TELCO.reset_index(drop=True)}},
            'join = "inner": the rows of telco have no ids to join by; give a pandas table with ',
        ),
        (
            {"passive": {"telco": pd.concat([TELCO, TELCO.iloc[:1]])}},
            "telco: row 'p000' of its index is there more than once",
        ),
        ({"label": Y}, "active: label has 120 rows, active has 100"),
    ],
    ids=["nobody", "numbered", "twice", "array"],
)
def test_what_cannot_be_joined_is_refused(changes: dict[str, Any], line: str) -> None:
    with pytest.raises((ConfigError, DataError), match=f"^{line}"):
        trained(**{**SOME, **changes})


def test_a_join_that_there_is_not_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"^join = 'left': use .same. or .inner.$"):
        trained(join="left")


def test_a_refusal_names_the_join_that_leaves_rows_out() -> None:
    with pytest.raises(DataError) as caught:
        trained(active=ACTIVE.iloc[5:])
    assert str(caught.value).endswith('; join="inner" leaves out such rows')


OLD, NEW = slice(80), slice(80, 120)
LATER = {"active": ACTIVE[NEW], "label": LABEL[NEW], "passive": {"telco": TELCO[NEW]}}


def test_rows_to_score_may_be_tables_of_their_own() -> None:
    expected = trained(evaluation={"young": range(5), "later": range(80, 120)})
    found = trained(
        active=ACTIVE[OLD],
        label=LABEL[OLD],
        passive={"telco": TELCO[OLD]},
        evaluation={"young": range(5), "later": {**LATER, "passive": {"telco": TELCO[NEW][::-1]}}},
    )
    assert found.share.dumps() == expected.share.dumps()
    assert list(found.evals_result) == ["train", "young", "later"]
    alone = trained(evaluation=LATER)
    assert alone.evals_result["eval"]["logloss"][-1] > 0


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"y": LABEL}, "evaluation: set 'later': 'y' is not known; it takes active, passive, "),
        ({"label": None}, "evaluation: set 'later': the label is missing"),
        ({"passive": {}}, "evaluation: set 'later': the table of telco is missing"),
        (
            {"active": ACTIVE[NEW].rename(columns={"age": "years"})},
            "evaluation: set 'later': active: the columns are not those of the training: 'age' is ",
        ),
        ({"label": LABEL[81:]}, "evaluation: set 'later': label: 1 rows of active are not in"),
        ({"base_margin": np.ones(40)}, "base_margin: give one for the rows to learn from and for "),
    ],
    ids=["y", "no label", "no table", "other column", "other rows", "margin"],
)
def test_tables_to_score_that_do_not_fit_are_refused(changes: dict[str, Any], line: str) -> None:
    with pytest.raises((ConfigError, DataError), match=f"^{line}"):
        trained(evaluation={"later": {**LATER, **changes}})


def test_tables_to_score_that_lack_one_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"^evaluation: set 'later' lacks 'passive': it takes "):
        trained(evaluation={"later": {"active": ACTIVE}})


def test_an_index_of_the_active_party_may_repeat_ids_that_others_have_once() -> None:
    loans = np.random.default_rng(1).integers(0, 120, 300)
    joined = trained(
        active=ACTIVE.iloc[loans].reset_index(drop=True),
        label=LABEL.iloc[loans].reset_index(drop=True),
        passive={"telco": TELCO.iloc[loans].reset_index(drop=True)},
    )
    for extra, join in ((0, None), (5, "inner")):
        made = trained(
            active=ACTIVE.iloc[loans],
            label=LABEL.iloc[loans],
            passive={"telco": TELCO.iloc[np.unique(loans)][::-1]},
            **({"join": join} if extra else {}),
        )
        for ours, theirs in zip(made.share.trees, joined.share.trees, strict=True):
            assert ours.model_dump_json() == theirs.model_dump_json()
