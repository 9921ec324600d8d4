"""Estimators where the active party has several rows of a person, and the others one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedmq
from fedmq.errors import ConfigError, DataError
from tests.simulation.test_repeated_ids import BANK, LABEL, LOANS, OTHERS, RETAIL, TELCO

WHOLE = pd.concat([BANK, TELCO.loc[LOANS], RETAIL.loc[LOANS]], axis=1)
"""One table, as scikit-learn's searches slice it."""
PARTIES = {"telco": ["calls", "data"], "retail": ["visits"]}
SMALL: dict[str, Any] = {"n_estimators": 1, "max_depth": 3, "max_bin": 16}
PARAMS = {"num_boost_round": 1, "max_depth": 3, "max_bin": 16}


def fitted(X: Any = None, **changes: Any) -> Any:
    estimator = fedmq.FederatedClassifier(**{**SMALL, "duplicates": "hidden", **changes})
    return estimator.fit({"active": BANK, **OTHERS} if X is None else X, LABEL)


def simulated(**changes: Any) -> fedmq.SimulatedModel:
    given = {"active": BANK, "label": LABEL, "passive": OTHERS, "params": PARAMS}
    return fedmq.simulate(**{**given, "duplicates": "hidden", "engine": "lattice", **changes})


def test_the_model_is_that_of_a_simulation_that_hides_how_many_rows_a_person_has() -> None:
    found, model = fitted(), simulated()
    assert found.model_.share.dumps() == model.share.dumps()
    np.testing.assert_array_equal(
        found.predict_proba({"active": BANK, **OTHERS})[:, 1],
        model.predict(active=BANK, passive=OTHERS),
    )


@pytest.mark.long
def test_the_columns_of_one_table_are_dealt_out_by_person() -> None:
    found = fitted(WHOLE, parties=PARTIES)
    assert found.model_.share.dumps() == simulated().share.dumps()
    assert found.score(WHOLE, LABEL) > 0.6


@pytest.mark.long
def test_each_row_counts_where_nothing_is_hidden() -> None:
    shown = fitted(duplicates="each")
    assert shown.model_.share.dumps() == simulated(duplicates="each", engine="plain").share.dumps()
    assert shown.model_.share.dumps() != fitted().model_.share.dumps()  # cuts of rows, not people


@pytest.mark.long
def test_rows_of_other_tables_are_scored_after_each_round() -> None:
    held_out = LOANS.isin(TELCO.index[:8])
    learning, scored = WHOLE[~held_out], WHOLE[held_out]
    estimator = fedmq.FederatedClassifier(**SMALL, duplicates="hidden", parties=PARTIES)
    estimator.fit(learning, LABEL[~held_out], eval_set=[(scored, LABEL[held_out])])
    curves = estimator.evals_result()["validation_0"]["logloss"]
    chances = estimator.predict_proba(scored)[np.arange(len(scored)), LABEL[held_out].astype(int)]
    assert curves[-1] == pytest.approx(-np.log(chances).mean(), rel=1e-5)
    alone = simulated(
        active=BANK[~held_out],
        label=LABEL[~held_out],
        passive={party: table[8:] for party, table in OTHERS.items()},
    )
    assert [tree.model_dump_json() for tree in estimator.model_.share.trees] == [
        tree.model_dump_json() for tree in alone.share.trees
    ]


@pytest.mark.parametrize(
    ("changes", "X", "error", "text"),
    [
        ({"duplicates": "all"}, None, ConfigError, "duplicates = 'all': use \"each\" or"),
        ({"parties": PARTIES}, WHOLE.reset_index(drop=True), ConfigError, "have no ids"),
        (
            {"parties": PARTIES},
            WHOLE.assign(calls=np.arange(len(WHOLE))),
            DataError,
            "telco: rows of 'p.*' differ in its columns",
        ),
        ({"engine": "plain"}, None, ConfigError, "lattice"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused(
    changes: dict[str, Any], X: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        fitted(X, **changes)
