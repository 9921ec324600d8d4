"""A column's WOE, IV, KS and AUC are those of scikit-learn and of a table of shares."""

from __future__ import annotations

import numpy as np
import pandas
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score, roc_curve

from fedmq.boosting.screened_columns import Strength, chosen_rows, screened_columns


def column(values, bins=10, smallest=1, categories=None):
    values = np.asarray(values, np.float32)
    values = values[:, None] if values.ndim == 1 else values
    names = categories or ["x"]
    of_column = {"c": tuple(categories)} if categories else {}
    [found] = screened_columns(values, names, of_column, bins, smallest)
    return found


def by_table(bin_of, label):
    """IV, and the weight of evidence of each row, from a table of shares."""
    table = pandas.crosstab(bin_of, label)
    half = np.where((table == 0).any(axis=1), 0.5, 0.0)
    shares = table.add(half, axis=0) / table.sum()
    woe = np.log(shares[1] / shares[0])
    return float(((shares[1] - shares[0]) * woe).sum()), woe.loc[bin_of].to_numpy()


@pytest.mark.parametrize("smallest", [1, 30])
@pytest.mark.parametrize("seed", range(4))
def test_figures_are_those_of_scikit_learn_and_of_a_table_of_shares(
    seed: int, smallest: int
) -> None:
    random = np.random.default_rng(seed)
    label = (random.random(400) < 0.3).astype(int)
    values = random.normal(size=400) + label * seed
    values[random.random(400) < 0.15] = np.nan
    found = column(values, smallest=smallest)
    strength = Strength.of(found.counts, found.ones(label == 1))
    iv, score = by_table(found.bin_of, label)
    assert strength.iv == pytest.approx(iv)
    assert strength.woe == pytest.approx(
        [score[found.bin_of == number][0] for number in range(len(found.counts))]
    )
    assert strength.auc == pytest.approx(roc_auc_score(label, score))
    false, true, _ = roc_curve(label, score, drop_intermediate=False)
    assert strength.ks == pytest.approx(np.abs(true - false).max())


def test_bins_are_the_quantiles_of_pandas_and_one_of_missing_values() -> None:
    random = np.random.default_rng(5)
    values = random.normal(size=500).astype(np.float32)
    values[:60] = np.nan
    found = column(values)
    cuts = np.quantile(values[60:], np.arange(1, 10) / 10, method="inverted_cdf")
    by_pandas = pandas.cut(values[60:], [-np.inf, *cuts, np.inf], labels=False)
    assert (found.bin_of[60:] == by_pandas).all()
    assert set(found.bin_of[:60]) == {10}


@given(
    st.lists(st.integers(-3, 8) | st.none(), min_size=1, max_size=60),
    st.integers(2, 12),
    st.integers(1, 20),
)
def test_no_bin_is_smaller_than_a_group_unless_all_are_fewer(
    values: list[int | None], bins: int, smallest: int
) -> None:
    found = column([np.nan if value is None else value for value in values], bins, smallest)
    assert found.counts.min() >= min(smallest, len(values))
    assert found.counts.sum() == len(values)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=60), st.integers(1, 20))
def test_small_categories_stand_together(codes: list[int], smallest: int) -> None:
    ones = np.eye(6, dtype=np.float32)[codes]
    found = column(ones, smallest=smallest, categories=[f"c={letter}" for letter in "abcdef"])
    assert found.kind == "categories"
    assert found.counts.min() >= min(smallest, len(codes))
    for category in range(6):
        assert len(set(found.bin_of[np.asarray(codes) == category])) <= 1


def test_a_column_of_many_categories_has_fifty_bins() -> None:
    codes = np.repeat(np.arange(80), np.arange(1, 81))
    ones = np.eye(80, dtype=np.float32)[codes]
    found = column(ones, categories=[f"c={number}" for number in range(80)])
    assert len(found.counts) == 50
    assert sorted(found.counts)[0] == 32  # the largest 49 are apart
    assert found.counts.max() == sum(range(1, 32))


@pytest.mark.parametrize(
    ("values", "missing", "distinct"),
    [
        ([1.0] * 50, 0.0, "1"),
        ([np.nan] * 50, 1.0, "1"),
        ([np.nan] * 3 + [1.0, 2.0] * 30, 0.0, "2"),
        ([np.nan] * 60 + [1.0, 2.0, 3.0], 1.0, "1"),
        ([np.nan] * 21 + list(range(42)), 0.33, "11 to 100"),
        (list(range(1000)), 0.0, "more than 100"),
    ],
)
def test_fewer_than_a_group_are_not_told_from_none(
    values: list[float], missing: float, distinct: str
) -> None:
    shown = column(values, smallest=10).for_others(10, np.random.default_rng(0))
    assert (shown.missing, shown.distinct) == (missing, distinct)


def test_labels_that_are_all_alike_have_no_strength() -> None:
    assert Strength.of(np.array([3, 4]), np.array([0, 0])) is None
    assert Strength.of(np.array([3, 4]), np.array([3, 4])) is None


def test_as_many_rows_are_drawn_as_are_wanted_and_the_same_for_a_seed() -> None:
    assert chosen_rows(5, 9, 0).tolist() == [0, 1, 2, 3, 4]
    drawn = chosen_rows(1000, 100, 3)
    assert len(set(drawn.tolist())) == 100 and (np.diff(drawn) > 0).all()
    assert drawn.tolist() == chosen_rows(1000, 100, 3).tolist()
    assert drawn.tolist() != chosen_rows(1000, 100, 4).tolist()


def test_given_cuts_are_taken_whatever_the_number_of_bins_and_49_at_most() -> None:
    values = np.arange(1000, dtype=np.float32)
    [few] = screened_columns(values[:, None], ["x"], {}, 2, 1, {"x": (99.0, 149.0, 899.0)})
    assert few.counts.tolist() == [100, 50, 750, 100]
    given = tuple(float(cut) for cut in range(0, 1000, 3))
    [many] = screened_columns(values[:, None], ["x"], {}, 2, 1, {"x": given})
    assert 40 <= len(many.counts) <= 50
    ends = np.cumsum(many.counts)[:-1] - 1  # the last value of each bin
    assert set(ends) <= set(given)
