from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.sampling import ColumnSampler, sampled_rows


def sampled_columns(
    columns: int, share: float, *, seed: int, tree: int, salt: int = 0
) -> NDArray[np.int32]:
    return ColumnSampler(columns, share, 1.0, 1.0, seed, tree, salt).of_tree()


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


def test_a_node_draws_from_its_level_and_a_level_from_its_tree() -> None:
    sampler = ColumnSampler(40, 0.75, 0.6, 0.5, seed=0, tree=0, salt=3)
    of_tree = set(sampler.of_tree().tolist())
    level = {node: set(sampler.of_node(node, 2).tolist()) for node in (4, 5, 6, 7)}
    whole = ColumnSampler(40, 0.75, 0.6, 1.0, seed=0, tree=0, salt=3)
    of_level = set(whole.of_node(4, 2).tolist())
    assert (len(of_tree), len(of_level)) == (30, 18)
    assert of_level < of_tree
    assert all(set(whole.of_node(node, 2).tolist()) == of_level for node in level)
    assert all(len(columns) == 9 and columns < of_level for columns in level.values())
    assert len({frozenset(columns) for columns in level.values()}) == 4
    assert set(whole.of_node(2, 1).tolist()) != of_level


def test_without_shares_every_node_has_every_column() -> None:
    sampler = ColumnSampler(5, 1.0, 1.0, 1.0, seed=0, tree=0)
    assert sampler.of_node(9, 3).tolist() == [0, 1, 2, 3, 4]
    assert not sampler.narrows
    assert ColumnSampler(5, 1.0, 0.9, 1.0, seed=0, tree=0).narrows
