"""A column's categories in the order of their weights, and the sets that are tried."""

from __future__ import annotations

import numpy as np
import pytest

from fedmq.boosting.binning import Cuts
from fedmq.boosting.gradients import FixedPoint
from fedmq.boosting.params import TrainParams
from fedmq.boosting.splits import CandidateTable, CategorySet, SetScan, first_named

NAN = np.nan
SCALE = FixedPoint(8, 8, 40)


def indicators(codes: list[int], count: int) -> np.ndarray:
    """Columns 1 where a row has the category, else 0; NaN where its code is -1."""
    held = np.array(codes)[:, None]
    return np.where(held < 0, NAN, (held == np.arange(count)) * 1.0).astype(np.float32)


def scanned(g: list[int], missing: int = 0, **params: int) -> tuple[SetScan, np.ndarray]:
    """A node whose categories have these sums of g, and the sum of h 1 each."""
    sums = np.array([[value, 1] for value in g], np.int64) << 8
    total = sums.sum(axis=0) + np.array([missing << 8, int(missing != 0) << 8])
    given = TrainParams.model_validate({"min_child_weight": 0, "max_cat_to_onehot": 4, **params})
    places = np.arange(len(g)) + 2  # two other candidates stand before them
    left = np.concatenate((np.zeros((2, 2), np.int64), total - sums))
    return SetScan.of(places, left, total, SCALE, given), total


def test_sets_are_the_beginnings_of_the_order_of_weights() -> None:
    scan, total = scanned([5, -3, 0, -7], missing=11)
    right = [
        (scan.split(place).right.tolist(), scan.split(place).default_left) for place in range(6)
    ]
    # Weights are -g / (h + 1): the category of the largest g comes first.
    assert right == [
        ([2], True),
        ([2, 4], True),
        ([2, 3, 4], True),
        ([2, 3, 4], False),
        ([2, 4], False),
        ([2], False),
    ]
    left = (scan.left >> 8)[:, 0].tolist()
    assert left == [1, 1, 4, -7, -10, -10]  # of 6 in all, missing values 11 on the left, then right
    assert (total >> 8).tolist() == [6, 5]


def test_equal_weights_keep_the_order_of_the_categories() -> None:
    scan, _ = scanned([1, 1, 0, 1])
    assert scan.order.tolist() == [0, 1, 3, 2]


@pytest.mark.parametrize(("most", "sets"), [(1, 0), (2, 2), (3, 4), (64, 6)])
def test_no_side_is_made_of_more_categories_than_the_threshold(most: int, sets: int) -> None:
    scan, _ = scanned([5, -3, 0, -7], max_cat_threshold=most)
    assert len(scan) == sets
    sizes = [min(len(split.right), 4 - len(split.right)) for split in map(scan.split, range(sets))]
    assert max(sizes, default=0) <= most - 1


def by_sets(X: np.ndarray, columns: list[tuple[int, ...]], fewest: int | None) -> Cuts:
    return Cuts.of(X, 8).by_sets(columns, fewest)


def test_only_columns_of_enough_categories_of_training_rows_are_split_by_sets() -> None:
    X = indicators([0, 1, 2, 1, -1], 4)  # nobody has the last category
    assert by_sets(X, [(0, 1, 2, 3)], 3).category_columns == ((0, 1, 2, 3),)
    assert by_sets(X, [(0, 1, 2, 3)], 4).category_columns == ()
    assert by_sets(X, [(0, 1, 2, 3)], None).category_columns == ()
    assert by_sets(indicators([0, 0], 1), [(0,)], 1).category_columns == ()


def test_a_category_has_one_candidate_of_which_it_alone_goes_right() -> None:
    X = np.column_stack(([3, 4, 3, 4, 3], indicators([0, 1, 2, 1, -1], 4))).astype(np.float32)
    cuts = by_sets(X, [(1, 2, 3, 4)], 3)
    table = CandidateTable.of(cuts)
    assert table.feature.tolist() == [0, 1, 2, 3]
    assert table.columns.tolist() == [0, 1, 1, 1]
    assert table.default_left.tolist() == [False, True, True, True]
    assert [held.tolist() for held in table.categories] == [[1, 2, 3]]
    assert cuts.columns == ((0,), (1, 2, 3, 4))  # drawn as one


def test_of_what_ties_the_first_column_splits() -> None:
    X = np.column_stack((indicators([0, 1, 2, 1], 3), [3, 4, 3, 4])).astype(np.float32)
    table = CandidateTable.of(by_sets(X, [(0, 1, 2)], 3))
    split = CategorySet(np.array([1, 2], np.uint32), True)
    assert first_named(table, np.array([3]), [split]) is split
    assert first_named(table, np.array([3]), []) == 3
