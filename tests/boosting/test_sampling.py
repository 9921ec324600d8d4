from __future__ import annotations

import numpy as np

from fedmq.boosting.sampling import sampled_columns, sampled_rows


def test_the_same_seed_and_tree_draw_the_same_rows() -> None:
    draws = [sampled_rows(1000, 0.5, seed=7, tree=3) for _ in range(2)]
    np.testing.assert_array_equal(*draws)


def test_other_trees_and_seeds_draw_others() -> None:
    rows = sampled_rows(1000, 0.5, seed=7, tree=3)
    assert (rows != sampled_rows(1000, 0.5, seed=7, tree=4)).any()
    assert (rows != sampled_rows(1000, 0.5, seed=8, tree=3)).any()


def test_the_draw_is_the_same_on_every_machine() -> None:
    rows = np.flatnonzero(sampled_rows(20, 0.3, seed=1, tree=2))
    assert rows.tolist() == [0, 2, 5, 11, 12, 15, 16, 19]
    assert sampled_columns(10, 0.4, seed=1, tree=2, salt=5).tolist() == [1, 2, 6, 7]


def test_subsample_is_the_share_of_rows() -> None:
    assert abs(sampled_rows(100_000, 0.8, seed=0, tree=0).mean() - 0.8) < 0.01
    assert sampled_rows(100, 1.0, seed=0, tree=0).all()


def test_columns_are_counted_as_xgboost_counts_them() -> None:
    for share, count in ((1.0, 10), (0.75, 7), (0.7, 7), (0.01, 1)):
        columns = sampled_columns(10, share, seed=0, tree=0)
        assert len(set(columns.tolist())) == count
        assert (np.diff(columns) > 0).all()
    assert len(sampled_columns(0, 0.5, seed=0, tree=0)) == 0


def test_owners_with_other_salts_draw_apart() -> None:
    draws = [sampled_columns(100, 0.5, seed=0, tree=0, salt=salt).tolist() for salt in (0, 1)]
    assert draws[0] != draws[1]


def test_rows_and_columns_are_drawn_apart() -> None:
    rows = np.flatnonzero(sampled_rows(100, 0.5, seed=0, tree=0))
    columns = sampled_columns(100, 0.5, seed=0, tree=0)
    assert len(np.intersect1d(rows, columns)) < 40
