from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedmq
from tests.how_often import seldom
from tests.simulation.test_repeated_ids import BANK, LABEL, OTHERS


def test_anybody_sees_on_their_data_which_nodes_are_xgboosts() -> None:
    random = np.random.default_rng(4)
    X = random.normal(size=(400, 4)).round(2)
    label = (X.sum(axis=1) + random.normal(size=400) > 0).astype(int)
    found = fedmq.compare_with_xgboost(
        active=X[:, :2],
        label=label,
        passive={"telco": X[:, 2:]},
        params={"num_boost_round": 5, "max_depth": 3, "max_bin": 16},
    )
    assert found.identical == found.nodes > 30
    assert found.first_difference is None
    # XGBoost's own cuts lie a little elsewhere, which moves scores a little.
    assert 0 < found.own_cuts_mean < found.own_cuts_difference < 0.5


@pytest.mark.parametrize("duplicates", ["each", *seldom("hidden")])
def test_people_with_several_rows_are_compared_row_by_row(duplicates: Any) -> None:
    found = fedmq.compare_with_xgboost(
        active=BANK,
        label=LABEL,
        passive=OTHERS,
        params={"num_boost_round": 3, "max_depth": 4, "max_bin": 16},
        duplicates=duplicates,
    )
    assert found.identical == found.nodes > 30
    assert found.first_difference is None
