from __future__ import annotations

import numpy as np
import pytest
from pydantic import ValidationError

from fedmq.boosting.model.tree import LEAF, LookupTable, Tree, TreeArrays, walk
from fedmq.errors import DataError


def small_tree() -> Tree:
    """Root asks owner 0; its right child asks owner 1."""
    growing = TreeArrays()
    left, right = growing.split(0, owner=0, record=0, gain=2.0, cover=3.0)
    growing.leaf(left, -1.0, cover=1.0)
    pair = growing.split(right, owner=1, record=0, gain=1.0, cover=2.0)
    for node, weight in zip(pair, (0.5, 0.25), strict=True):
        growing.leaf(node, weight, cover=1.0)
    return growing.finished()


def test_nodes_stand_in_order_of_insertion() -> None:
    tree = small_tree()
    assert tree.owner.tolist() == [0, LEAF, 1, LEAF, LEAF]
    assert tree.left.tolist() == [1, LEAF, 3, LEAF, LEAF]
    assert tree.right.tolist() == [2, LEAF, 4, LEAF, LEAF]
    assert tree.weight.tolist() == [0, -1, 0, 0.5, 0.25]
    assert tree.gain.tolist() == [2, 0, 1, 0, 0]
    assert tree.cover.tolist() == [3, 1, 2, 1, 1]
    assert tree.is_leaf.tolist() == [False, True, False, True, True]


def test_a_node_is_settled_once_and_all_must_be() -> None:
    growing = TreeArrays()
    growing.split(0, owner=0, record=0, gain=1.0, cover=1.0)
    with pytest.raises(ValueError, match="node 0 is settled already"):
        growing.leaf(0, 1.0, cover=1.0)
    with pytest.raises(ValueError, match="node 1 is neither"):
        growing.finished()


def test_each_row_walks_to_its_leaf_by_the_owners_answers() -> None:
    tables = [
        LookupTable.empty(("age",)).appended(0, 30.0, False),
        LookupTable.empty(("income", "debt")).appended(1, 5.0, True),
    ]
    X = [
        np.array([[20], [40], [40], [np.nan], [30]]),
        np.array([[0, 0], [0, 5], [0, 6], [0, np.nan], [0, 0]]),
    ]
    leaves = walk(
        small_tree(),
        5,
        lambda owner, rows, records: tables[owner].directions(X[owner], rows, records),
    )
    assert leaves.tolist() == [1, 3, 4, 3, 1]


def test_rows_go_the_same_way_at_one_record_as_at_a_record_each() -> None:
    table = LookupTable.empty(("age", "debt"))
    for feature, threshold, default_left in (
        (0, 30.0, False),
        (1, 30.0, True),
        (1, np.inf, False),
        (0, -np.inf, True),
    ):
        table = table.appended(feature, threshold, default_left)
    X = np.array([[20, np.inf], [30, 29], [31, np.nan], [np.nan, -np.inf]], np.float32)
    rows = np.array([3, 0, 2, 1], np.int32)
    for record in range(len(table)):
        one_by_one = table.directions(X, rows, np.full(len(rows), record))
        at_one = table.directions_at(X, rows, record)
        assert at_one.dtype == np.bool_
        assert at_one.tolist() == one_by_one.tolist()


def test_only_rows_at_an_owners_nodes_are_asked_about() -> None:
    asked: list[tuple[int, list[int]]] = []

    def all_right(owner: int, rows: np.ndarray, records: np.ndarray) -> np.ndarray:
        asked.append((owner, rows.tolist()))
        return rows == 0

    walk(small_tree(), 3, all_right)
    assert asked == [(0, [0, 1, 2]), (1, [1, 2])]


def test_infinite_thresholds_part_present_from_missing_values() -> None:
    table = LookupTable.empty(("x",)).appended([0, 0], [np.inf, -np.inf], [False, True])
    X = np.array([[-3.4e38], [3.4e38], [np.nan]], np.float32)
    rows = np.arange(3)
    assert table.directions(X, rows, np.zeros(3, int)).tolist() == [True, True, False]
    assert table.directions(X, rows, np.ones(3, int)).tolist() == [False, False, True]


def test_appending_leaves_the_old_table_alone() -> None:
    old = LookupTable.empty(("x",))
    new = old.appended(0, 1.5, True)
    assert (len(old), len(new)) == (0, 1)


@pytest.mark.parametrize("record", [-1, 1])
def test_a_foreign_record_is_refused(record: int) -> None:
    table = LookupTable.empty(("x",)).appended(0, 1.5, True)
    with pytest.raises(DataError, match=f"record {record} is not among the 1 records"):
        table.directions(np.zeros((1, 1), np.float32), np.array([0]), np.array([record]))


def test_tree_and_table_return_through_json() -> None:
    tree = small_tree()
    assert (
        Tree.model_validate_json(tree.model_dump_json()).model_dump_json() == tree.model_dump_json()
    )
    table = LookupTable.empty(("x",)).appended(
        [0, 0, 0], [0.1, np.inf, -np.inf], [True, False, True]
    )
    after = LookupTable.model_validate_json(table.model_dump_json())
    np.testing.assert_array_equal(after.threshold, table.threshold)
    assert after.feature_names == ("x",)


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"left": [0, -1, 3, -1, -1]}, "child of one other"),
        ({"left": [1, -1, 9, -1, -1]}, "child of one other"),
        ({"left": [3, -1, 1, -1, -1]}, "before its parent"),
        ({"owner": [0, -1, -2, -1, -1]}, "negative owner"),
        ({"weight": [0.0]}, "vectors of one length"),
    ],
)
def test_what_is_no_tree_is_refused(changed: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        Tree.model_validate(small_tree().model_dump() | changed)


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"feature": [1]}, "names no feature"),
        ({"threshold": []}, "differ in length"),
        ({"threshold": np.array([np.nan], np.float32)}, "not a number"),
    ],
)
def test_what_is_no_lookup_table_is_refused(changed: dict[str, object], complaint: str) -> None:
    table = LookupTable.empty(("x",)).appended(0, 1.5, True)
    with pytest.raises(ValidationError, match=complaint):
        LookupTable.model_validate(table.model_dump() | changed)


def test_a_set_of_categories_goes_right_wherever_it_is_asked_for() -> None:
    table = LookupTable.empty(("a", "b", "c")).appended(
        [0, 1, 0], [0.0] * 3, [True, False, False], [(0, 2), (), (0, 1)]
    )
    X = np.array([[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 0], [np.nan] * 3], np.float32)
    rows = np.arange(5)
    left = [[False, True, False, True, True], [True, False, True, True, False]]
    left += [[False, False, True, True, False]]
    for record, expected in enumerate(left):
        assert table.directions_at(X, rows, record).tolist() == expected
        assert table.directions(X, rows, np.full(5, record)).tolist() == expected
    together = table.directions(X, np.repeat(rows, 3), np.tile(np.arange(3), 5))
    assert together.tolist() == np.array(left).T.ravel().tolist()


def test_records_with_sets_are_parted_and_joined_again() -> None:
    whole = (
        LookupTable.empty(("a", "b", "c"))
        .appended(2, 1.5, True)
        .appended(0, 0.0, True, [(0, 1)])
        .appended(1, 0.0, False)
    )
    assert whole.category_sets == ((), (0, 1), ())
    assert "category" not in whole.since(2).model_dump_json()
    parts = [LookupTable.model_validate_json(whole.since(1).model_dump_json())]
    joined = LookupTable.empty(("a", "b", "c")).appended(2, 1.5, True).followed_by(parts[0])
    assert joined.model_dump_json() == whole.model_dump_json()


def test_a_set_of_no_feature_of_the_table_is_no_record() -> None:
    with pytest.raises(ValidationError, match="names no feature"):
        LookupTable.empty(("a",)).appended(0, 0.0, True, [(0, 1)])
