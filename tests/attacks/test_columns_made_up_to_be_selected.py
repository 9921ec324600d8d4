"""An owner makes up columns, to learn from those that are selected what the labels are."""

from __future__ import annotations

import numpy as np

from fedmq.boosting.screened_columns import Strength
from fedmq.party.configuration.job import SelectSection
from fedmq.party.data.screening import selected

PEOPLE = 10_000
MADE_UP = 1_000
TOP = 100


def learned(rule: SelectSection) -> tuple[int, float]:
    """How many made-up columns are selected, and of how many people of these the label is 1.

    Each column holds 1 for one person, and 0 for all others; 22 % of the people have label 1. A
    changed owner's software joins no bins.
    """
    label = np.random.default_rng(7).random(PEOPLE) < 0.22
    ones = int(label.sum())
    columns = []
    for person in range(MADE_UP):
        of_bins = np.array([int(label[person]), ones - int(label[person])])
        strength = Strength.of(np.array([1, PEOPLE - 1]), of_bins)
        assert strength is not None
        columns.append({"column": person + 1, "missing": 0.0, "iv": strength.iv})
    chosen = selected({"telco": {"columns": columns}}, rule)["telco"]
    return len(chosen), float(np.mean([label[number - 1] for number in chosen] or [0.0]))


def test_the_strongest_of_made_up_columns_name_people_with_the_rarer_label() -> None:
    assert learned(SelectSection(top=TOP)) == (TOP, 1.0)


def test_a_least_information_value_selects_no_column_about_one_person() -> None:
    assert learned(SelectSection(iv=0.02)) == (0, 0.0)
    assert learned(SelectSection(iv=0.02, top=TOP)) == (0, 0.0)
