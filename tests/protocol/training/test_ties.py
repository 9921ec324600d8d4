"""Candidates that tie are resolved as if all columns lay at one party, though one of them is named.

A party's own candidates are resolved as XGBoost does: the lossless tests compare them with it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tests.how_often import some_seeds
from tests.protocol.federation import Federation, joined


def _table(seed: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Few rows and values, columns twice, mirrored, and with missing values."""
    random = np.random.default_rng(seed)
    rows = int(random.integers(6, 40))
    columns = random.integers(0, int(random.integers(2, 6)), size=(rows, 2)).astype(np.float32)
    if seed % 2:
        columns[random.random(columns.shape) < 0.2] = np.nan
    X = np.concatenate((columns, -columns, columns[:, ::-1]), axis=1)
    return X[:, random.permutation(X.shape[1])], random.integers(0, 2, rows).astype(np.float32)


@some_seeds(300, block=50, often=20)
def test_ties_of_a_party_are_resolved_as_if_the_active_party_had_its_columns(
    seeds: range,
) -> None:
    for seed in seeds:
        X, label = _table(seed)
        params = {"min_child_weight": 0.0, "num_boost_round": 2, "max_depth": 3}
        alone = Federation.dealt(X, label, (6,), **params)
        split = Federation.dealt(X, label, (0, 6), **params).having(secret=seed)
        own, others = alone.train(), split.train()
        assert not own.errors | others.errors
        for mine, theirs in zip(joined(alone, own), joined(split, others), strict=True):
            for name in ("feature", "threshold", "default_left"):
                np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name), str(seed))
            np.testing.assert_array_equal(mine.tree.weight, theirs.tree.weight, str(seed))
            np.testing.assert_array_equal(mine.tree.gain, theirs.tree.gain, str(seed))
