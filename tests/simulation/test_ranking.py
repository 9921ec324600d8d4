"""Rows are ranked within queries as XGBoost ranks them, to the last digit of the metrics."""

from __future__ import annotations

import re

import numpy as np
import pytest

import fedmq
from fedmq.boosting.metrics import metric_of
from fedmq.boosting.objectives.registry import objective_of
from fedmq.boosting.params import TrainParams
from fedmq.boosting.xgboost_comparison.parity import by_query, compare, joined_bins, train_reference
from fedmq.errors import ConfigError, DataError

xgboost = pytest.importorskip("xgboost")

RANDOM = np.random.default_rng(11)
X = np.round(RANDOM.normal(size=(300, 5)), 1).astype(np.float32)
SIGNAL = X[:, 0] - X[:, 3] + RANDOM.normal(size=300) / 2
QUERY = RANDOM.integers(0, 24, 300)  # queries of many sizes, whose rows are no neighbours
GRADES = np.searchsorted([-1, 0.2, 1.5], SIGNAL)
METRICS = ("ndcg@10", "ndcg", "ndcg@3-", "map@4", "map", "map@4-", "pre@5")


def relevance(objective: str) -> np.ndarray:
    return GRADES > 1 if objective == "rank:map" else GRADES


@pytest.mark.parametrize(
    ("objective", "pairs"),
    # With three pairs, rows without a pair have no gradient, and candidates may tie.
    [("rank:ndcg", 3), ("rank:ndcg", 32), ("rank:pairwise", 32), ("rank:map", 32)],
)
def test_three_parties_rank_as_xgboost_does(objective: str, pairs: int) -> None:
    metrics = METRICS if objective == "rank:map" else METRICS[:3]
    params = {
        "objective": objective,
        "lambdarank_num_pair_per_sample": pairs,
        "eval_metric": metrics,
        "num_boost_round": 4,
        "max_depth": 3,
    }
    model = fedmq.simulate(
        active=X[:, :2],
        label=relevance(objective),
        qid=QUERY,
        passive={"telco": X[:, 2:4], "shop": X[:, 4:]},
        params=params,
        engine="plain",
    )
    labels = np.stack((relevance(objective), QUERY), axis=1).astype(np.float32)
    bins = joined_bins(X, np.ones(300, np.bool_), 256, ())
    reference = train_reference(bins, labels, model.share.params)
    assert compare(reference, model.joined_trees(), bins).first_difference is None
    margins = model.predict(active=X[:, :2], passive={"telco": X[:, 2:4], "shop": X[:, 4:]})
    order = np.argsort(QUERY, kind="stable")
    start = by_query(X, labels, base_margin=margins)
    booster = xgboost.Booster(model.share.params.to_xgboost() | {"base_score": 0}, [start])
    theirs = dict(re.findall(r"eval-(\S+):(\S+)", booster.eval(start)))
    for metric in metrics:
        ours = metric_of(metric, model.share.params).of(labels[order], margins[order], None)
        assert ours == pytest.approx(float(theirs[metric]), abs=1e-15), metric
        assert f"{ours:.6f}" == f"{model.evals_result['train'][metric][-1]:.6f}"


def test_weights_belong_to_queries() -> None:
    objective = objective_of(TrainParams(objective="rank:ndcg"))
    labels = np.stack((GRADES, QUERY), axis=1).astype(np.float32)
    margins = np.zeros(300, np.float32)
    plain = objective.gradients(margins, labels)
    heavy = objective.gradients(margins, labels, np.where(QUERY == 3, 5, 1).astype(np.float32))
    ratio = heavy[QUERY == 3][:, 1] / plain[QUERY == 3][:, 1]
    np.testing.assert_allclose(ratio, 5 * 24 / 28, rtol=1e-5)
    with pytest.raises(DataError, match="the rows of query 21 have several; a query has one"):
        objective.gradients(margins, labels, np.where(X[:, 0] > 0, 1, 2).astype(np.float32))


@pytest.mark.parametrize(
    ("params", "line"),
    [
        ({"lambdarank_pair_method": "mean"}, "fedmq takes no pairs by lot"),
        ({"lambdarank_unbiased": True}, "fedmq keeps no positions of clicks"),
        ({"eval_metric": "ndcg@first"}, "does not fit rank:ndcg; use ndcg@10"),
        ({"eval_metric": "auc"}, "does not fit rank:ndcg; use ndcg@10"),
    ],
)
def test_what_cannot_be_ranked_is_refused(params: dict[str, object], line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        TrainParams(objective="rank:ndcg", **params)


@pytest.mark.parametrize(
    ("qid", "label", "line"),
    [
        (None, GRADES, "rank:ndcg needs the query of each row; name it by qid"),
        (QUERY - 1, GRADES, "qid in row .* is -1; a whole number from 0"),
        (QUERY, GRADES + 0.5, "label in row 1 is .*; rank:ndcg takes relevances, whole numbers"),
    ],
)
def test_labels_that_cannot_be_ranked_are_refused(qid, label, line: str) -> None:
    with pytest.raises(DataError, match=line):
        fedmq.simulate(
            active=X, label=label, qid=qid, passive={}, params={"objective": "rank:ndcg"}
        )
