"""Whole trainings and scores are the same by machine code as by NumPy, to the last bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedmq
from fedmq.boosting import binning, gradients, machine_rows
from fedmq.boosting.model import machine_walk
from fedmq.protocol.training import candidates
from tests.boosting.tables import scattered

pytest.importorskip("llvmlite")

PLACES = (
    (binning, "FEWEST_ROWS"),
    (binning, "FEWEST_VALUES"),
    (gradients, "FEWEST_ROWS"),
    (candidates, "FEWEST_ROWS"),
    (machine_rows, "FEWEST_ROWS"),
    (machine_walk, "FEWEST_PAIRS"),
)


@pytest.mark.parametrize("arithmetic", ["3.2", "3.4"])
@pytest.mark.parametrize(
    "params",
    [
        {"max_depth": 5},
        {"max_depth": 4, "subsample": 0.6, "colsample_bynode": 0.5, "scale_pos_weight": 2.5},
        {"grow_policy": "lossguide", "max_leaves": 12, "max_depth": 0, "eval_metric": ["auc"]},
    ],
    ids=["deep", "sampled", "lossguide"],
)
def test_machine_code_trains_and_scores_as_numpy_does(
    params: dict[str, Any], arithmetic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = scattered(1_500, 9, seed=8, missing=0.1)
    label = (y > np.median(y)).astype(np.float32)
    found = []
    for fewest in (0, 2**62):
        for module, name in PLACES:
            monkeypatch.setattr(module, name, fewest)
        model = fedmq.simulate(
            active=X[:, :4],
            label=label,
            passive={"telco": X[:, 4:7], "shop": X[:, 7:]},
            engine="plain",
            params={"num_boost_round": 3, "xgboost_arithmetic": arithmetic, **params},
            evaluation=np.arange(0, 1_500, 5),
        )
        scores = model.predict(active=X[:, :4], passive={"telco": X[:, 4:7], "shop": X[:, 7:]})
        found.append((model.joined_trees(), model.share.history, scores))
    (trees, history, scores), (same, alike, expected) = found
    assert len(trees) == len(same) == 3
    for tree, other in zip(trees, same, strict=True):
        splits = ~tree.tree.is_leaf
        assert splits.sum() > 5
        assert tree.tree.model_dump_json() == other.tree.model_dump_json()
        for name in ("feature", "threshold", "default_left"):
            np.testing.assert_array_equal(getattr(tree, name)[splits], getattr(other, name)[splits])
    assert history == alike
    np.testing.assert_array_equal(scores, expected)
