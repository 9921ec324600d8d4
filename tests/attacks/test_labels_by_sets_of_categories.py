"""A set tells its owner on which side each of its categories stands: so it reads labels.

The owner invents a category for each person. Where a category's hessian is below
``min_child_weight`` its weight is 0 in XGBoost 3.2, and all such categories are alike; not in 3.4.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import fedmq
from fedmq.boosting.params import NEWEST, OLDEST

ROWS, PEOPLE = 400, 60
RANDOM = np.random.default_rng(7)
LABEL = (RANDOM.random(ROWS) < 0.5).astype(np.float64)


def read_right(own: int, **params: Any) -> float:
    """The share of labels that the first set tells, of people who are ``own`` to a category."""
    names = [f"c{row // own:02d}" if row < PEOPLE * own else None for row in range(ROWS)]
    model = fedmq.simulate(
        active=RANDOM.normal(size=(ROWS, 1)),
        label=LABEL,
        passive={"telco": pd.DataFrame({"invented": names})},
        params={"num_boost_round": 1, "max_depth": 1, "max_cat_to_onehot": 4, **params},
        engine="plain",
    )
    table = model.passive_shares["telco"].lookup_table
    if not len(table) or not table.category_sets:
        return 0.5
    told = {table.feature_names[feature] for feature in table.category_sets[0]}
    low = np.array([f"invented={name}" in told for name in names[: PEOPLE * own]])
    return float((LABEL[: PEOPLE * own] == ~low).mean())


@pytest.mark.parametrize(
    "params",
    [
        {"min_child_weight": 0.0},
        {"objective": "reg:squarederror"},
        {"xgboost_arithmetic": NEWEST},
    ],
    ids=str,
)
def test_a_category_for_each_person_reads_every_label(params: dict[str, Any]) -> None:
    assert read_right(1, **params) == 1.0


def test_categories_lighter_than_min_child_weight_are_all_alike() -> None:
    assert read_right(1, xgboost_arithmetic=OLDEST) < 0.65
