"""A federated ranker ranks, scores and is searched like XGBoost's own."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, cross_val_score

import fedmq
from fedmq.errors import ConfigError, DataError
from tests.party.daemons_in_memory import DaemonsInMemory

xgboost = pytest.importorskip("xgboost")

RANDOM = np.random.default_rng(5)
ROWS = 240
X = np.round(RANDOM.normal(size=(ROWS, 4)), 1).astype(np.float32)
X[RANDOM.random(X.shape) < 0.05] = np.nan
GROUP = np.array([20, 35, 5, 60, 1, 29, 90])
QID = np.repeat([1, 2, 5, 6, 7, 8, 30], GROUP)
SIGNAL = np.nan_to_num(X[:, 0] - X[:, 3]) + RANDOM.normal(size=ROWS) / 2
GRADES = np.searchsorted([-1, 0.2, 1.5], SIGNAL)
COMMON: dict[str, Any] = {"n_estimators": 5, "max_depth": 3, "max_bin": 512}
PARTIES = {"telco": [2, 3]}


def ranker(**params: Any) -> fedmq.FederatedRanker:
    return fedmq.FederatedRanker(parties=PARTIES, **COMMON, **params)


def xgboosts(**params: Any) -> Any:
    return xgboost.XGBRanker(tree_method="hist", n_jobs=1, **COMMON, **params)


@pytest.mark.parametrize(
    ("objective", "relevance"),
    [("rank:ndcg", GRADES), ("rank:pairwise", GRADES), ("rank:map", (GRADES > 1).astype(int))],
)
def test_it_predicts_and_scores_as_xgbranker(objective: str, relevance: np.ndarray) -> None:
    weights = np.linspace(0.5, 2, len(GROUP))
    ours = ranker(objective=objective).fit(X, relevance, weights, qid=QID)
    theirs = xgboosts(objective=objective).fit(X, relevance, qid=QID, sample_weight=weights)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), atol=2e-6)
    frame = pd.DataFrame(X).assign(qid=QID)
    expected = theirs.score(frame, relevance)
    assert ours.score(X, relevance, qid=QID) == pytest.approx(expected, abs=1e-6)
    assert ours.score(X, relevance, group=GROUP) == ours.score(X, relevance, qid=QID)


def test_queries_come_by_number_by_size_or_as_a_column_and_queries_in_any_order() -> None:
    by_number = ranker().fit(X, GRADES, qid=QID).predict(X)
    by_size = ranker().fit(X, GRADES, group=GROUP).predict(X)
    np.testing.assert_array_equal(by_size, by_number)
    frame = pd.DataFrame(X, columns=[*"abcd"]).assign(qid=QID)
    in_frame = fedmq.FederatedRanker(parties={"telco": ["c", "d"]}, **COMMON).fit(frame, GRADES)
    np.testing.assert_array_equal(in_frame.predict(frame), by_number)
    assert in_frame.score(frame, GRADES) > 0.8
    assert list(in_frame.feature_names_in_) == [*"abcd"]
    within = np.arange(ROWS) - np.repeat(np.cumsum(GROUP) - GROUP, GROUP)
    order = np.argsort(within, kind="stable")  # first rows tie: their order in a query stays
    mixed = ranker().fit(X[order], GRADES[order], qid=QID[order])
    np.testing.assert_allclose(mixed.predict(X), by_number, atol=2e-6)


def test_sets_are_scored_after_each_round_within_their_own_queries() -> None:
    seen, held = QID < 8, QID >= 8
    eval_set = [(X[seen], GRADES[seen]), (X[held], GRADES[held])]
    given = {"eval_set": eval_set, "eval_qid": [QID[seen], QID[held] - 8], "verbose": False}
    metrics = ["ndcg@3-", "ndcg@5"]
    ours = ranker(eval_metric=metrics).fit(X[seen], GRADES[seen], qid=QID[seen], **given)
    theirs = xgboosts(eval_metric=metrics).fit(X[seen], GRADES[seen], qid=QID[seen], **given)
    for name in ("validation_0", "validation_1"):
        for metric in metrics:
            np.testing.assert_allclose(
                ours.evals_result()[name][metric], theirs.evals_result()[name][metric], atol=2e-6
            )
    by_size = ranker(eval_metric=metrics).fit(
        X[seen],
        GRADES[seen],
        group=GROUP[:-2],
        eval_set=eval_set[1:],
        eval_group=[GROUP[-2:]],
    )
    assert by_size.evals_result()["validation_0"] == ours.evals_result()["validation_1"]
    last = ours.evals_result()["validation_1"]["ndcg@5"][-1]
    assert ours.score(X[held], GRADES[held], qid=QID[held]) == pytest.approx(last)


def test_scikit_learn_hands_queries_on_in_a_frame() -> None:
    frame = pd.DataFrame(X, columns=[*"abcd"]).assign(qid=QID)
    made = fedmq.FederatedRanker(parties={"telco": ["c", "d"]}, **COMMON)
    found = cross_val_score(made, frame, GRADES, groups=QID, cv=GroupKFold(3))
    for score, (seen, held) in zip(found, GroupKFold(3).split(X, groups=QID), strict=True):
        fitted = ranker().fit(X[seen], GRADES[seen], qid=QID[seen])
        assert score == fitted.score(X[held], GRADES[held], qid=QID[held])


def test_it_is_cloned_with_its_parameters_and_has_the_joined_trees() -> None:
    fitted = ranker(objective="rank:pairwise").fit(X, GRADES, qid=QID)
    again = clone(fitted)
    assert again.get_params() == fitted.get_params()
    assert not hasattr(again, "model_")
    assert fitted.get_booster().num_boosted_rounds() == 5
    assert fitted.feature_importances_.sum() == pytest.approx(1)


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({}, "qid: give each row's query once"),
        ({"qid": QID, "group": GROUP}, "qid: give each row's query once"),
        ({"qid": QID[1:]}, r"qid has the shape \(239,\), and y has 240 rows"),
        ({"qid": QID / 2}, "qid: queries are whole numbers"),
        ({"group": GROUP[1:]}, "group: queries have 220 rows, and y has 240"),
        ({"group": [0, 240]}, "group: the sizes of queries are whole numbers from 1"),
        ({"qid": QID, "sample_weight": [1.0]}, "one weight for each of 7 queries"),
        (
            {"qid": QID, "eval_set": [(X, GRADES)], "eval_qid": []},
            "eval_qid: one for each pair of eval_set is needed",
        ),
        ({"qid": QID, "eval_set": [(X, GRADES)]}, "eval_qid: give each row's query once"),
    ],
)
def test_queries_that_do_not_fit_are_refused_in_a_line(given: dict[str, Any], line: str) -> None:
    with pytest.raises((ConfigError, DataError), match=line):
        ranker().fit(X, GRADES, **given)


def test_other_objectives_are_not_for_a_ranker(tmp_path: Any) -> None:
    with pytest.raises(ConfigError, match="binary:logistic is not for a ranker"):
        ranker(objective="binary:logistic").fit(X, GRADES, qid=QID)
    federated = fedmq.FederatedRanker(federation=tmp_path / "party.toml")
    with pytest.raises(ConfigError, match=r"qid: not with federation; \[data\] qid in the party"):
        federated.fit(qid=QID)


async def test_daemons_take_queries_from_the_active_partys_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = DaemonsInMemory(tmp_path, monkeypatch)
    table, file = tmp_path / "bank" / "data.csv", tmp_path / "bank" / "party.toml"
    head, *rows = table.read_text().splitlines()
    queries = [place % 4 for place in range(len(rows))]
    given = [f"{row},{query}" for row, query in zip(rows, queries, strict=True)]
    table.write_text("\n".join([f"{head},query", *given]) + "\n")
    file.write_text(file.read_text().replace("[data]", '[data]\nqid = "query"'))
    ids = [row.split(",")[0] for row in rows]
    labels = np.array([int(row.split(",")[1]) for row in rows])
    federated = fedmq.FederatedRanker(
        federation=file, n_estimators=3, max_depth=2, engine="plain", job={"model": "ranks"}
    )
    async with demo:
        await asyncio.to_thread(federated.fit)
        ndcg = await asyncio.to_thread(federated.score, ids, labels, qid=queries)
    assert ndcg == pytest.approx(federated.model_.metrics["train-ndcg@32"], abs=1e-5)
