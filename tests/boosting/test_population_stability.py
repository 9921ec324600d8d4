"""Counts of bins, and how far two of them are apart."""

from __future__ import annotations

import numpy as np
import pytest

from fedmq.boosting.population_stability import BinnedColumn, stability_index

RANDOM = np.random.default_rng(3)


def test_a_column_is_cut_in_tenths_and_missing_values_have_a_bin() -> None:
    values = np.append(np.arange(1000), [np.nan] * 7).astype(np.float32)
    column = BinnedColumn.of("age", values)
    assert column.counts == (*[100] * 10, 7)
    assert column.count(np.array([-5, 99, 100, 1e9, np.nan], np.float32)).tolist() == [
        2, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1,
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("values", "counts"),
    [([], (0, 0)), ([np.nan] * 3, (0, 3)), ([2.0] * 5, (5, 0)), ([0, 0, 0, 1], (3, 1, 0))],
    ids=["no rows", "all missing", "one value", "two values"],
)
def test_few_values_have_few_bins(values: list[float], counts: tuple[int, ...]) -> None:
    assert BinnedColumn.of("x", np.array(values, np.float32)).counts == counts


def test_the_index_is_that_of_its_definition() -> None:
    before, now = np.array([60.0, 40.0]), np.array([30, 70])
    p, q = (before + 0.5) / 101, (now + 0.5) / 101
    expected = sum((q - p) * np.log(q / p))
    assert stability_index((60, 40), now) == pytest.approx(expected)


def test_the_same_people_do_not_drift_and_others_do() -> None:
    column = BinnedColumn.of("x", RANDOM.normal(size=5000).astype(np.float32))
    same = column.count(RANDOM.normal(size=2000).astype(np.float32))
    other = column.count(RANDOM.normal(0.8, size=2000).astype(np.float32))
    assert stability_index(column.counts, same) < 0.03
    assert stability_index(column.counts, other) > 0.25
