"""A joint model tells values: by directions and thresholds the active party places each person."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer

import fedmq
from fedmq.boosting.model.tree import LEAF


def test_half_of_all_values_are_placed_among_those_of_44_in_100_people(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """docs/privacy/caveats.md has the figures: the median and the first tenth, over all columns."""
    X, y = load_breast_cancer(return_X_y=True)
    given = {"active": X[:, :10], "passive": {"telco": X[:, 10:].astype(np.float32)}}
    model = fedmq.simulate(
        **given, label=y, engine="plain", params={"num_boost_round": 100, "max_depth": 3}
    )
    values = model.joined_values(**given)
    low, high = np.full(values.shape, -np.inf), np.full(values.shape, np.inf)
    for joined in model.joined_trees():
        reached = {0: np.arange(len(values))}  # the rows of each node, as the active party sees
        for node in range(len(joined.tree)):
            if joined.tree.owner[node] == LEAF:
                continue
            rows, column, cut = reached[node], joined.feature[node], joined.threshold[node]
            left = values[rows, column] <= cut
            high[rows[left], column] = np.minimum(high[rows[left], column], cut)
            low[rows[~left], column] = np.maximum(low[rows[~left], column], cut)
            reached[int(joined.tree.left[node])] = rows[left]
            reached[int(joined.tree.right[node])] = rows[~left]
    used = {
        int(column)
        for joined in model.joined_trees()
        for column in joined.feature[joined.tree.owner > 0]
    }
    alike = [
        np.mean((values[:, column] > low[row, column]) & (values[:, column] <= high[row, column]))
        for column in used
        for row in range(len(values))
    ]
    assert len(used) == 19
    np.testing.assert_allclose(np.quantile(alike, [0.1, 0.5]), [0.16, 0.44], atol=0.02)
