"""In which bin of a column stands the person whose label of numbers is the largest?"""

from __future__ import annotations

import numpy as np

from fedmq.boosting.screened_columns import screened_columns
from fedmq.boosting.screened_label import ScreenedLabel

PEOPLE, COLUMNS = 5_000, 20


def found(deviation: float) -> float:
    """The share of columns whose bin with the largest mean label holds the largest label.

    The columns say nothing of the label, which is log-normal; ten bins of 500 people each.
    """
    right = []
    for seed in range(20):
        random = np.random.default_rng(seed)
        numbers = np.exp(random.normal(size=PEOPLE) * deviation).astype(np.float32)
        label = ScreenedLabel.of(numbers, "number", "bank")
        values = random.normal(size=(PEOPLE, COLUMNS)).astype(np.float32)
        names = [f"x{number}" for number in range(COLUMNS)]
        for column in screened_columns(values, names, {}, 10, 50):
            means = label.by_bin(column) / column.counts
            right.append(column.bin_of[numbers.argmax()] == means.argmax())
    return float(np.mean(right))


def test_a_label_far_above_all_others_tells_the_bins_of_the_person_who_has_it() -> None:
    assert round(found(2.0), 2) == 0.67  # of ten bins a guess is right in 0.1


def test_a_label_less_far_above_the_others_tells_less() -> None:
    assert round(found(1.0), 2) == 0.31
    assert round(found(0.5), 2) == 0.18
