from __future__ import annotations

from importlib.util import find_spec

import numpy as np
import pytest

from fedmq.boosting import machine_rows
from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.boosting.model.tree import LookupTable
from fedmq.boosting.node_rows import marked, masked, parted, span
from fedmq.boosting.splits import CandidateTable
from tests.boosting.tables import scattered

ROWS = np.array([2, 3, 5, 8, 9], np.int32)


@pytest.mark.parametrize("fewest", [0, 2**62])
@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_both_halves_keep_their_order(
    fewest: int, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_rows, "FEWEST_ROWS", fewest)
    assert machine_rows.can_part(ROWS) == (find_spec("llvmlite") is not None)
    rows = np.arange(0, 3_000, 3, dtype=np.int32)
    left = np.random.default_rng(1).random(len(rows)) < share
    for found, expected in zip(parted(rows, left), (rows[left], rows[~left]), strict=True):
        assert found.dtype == np.int32
        np.testing.assert_array_equal(found, expected)
    assert [len(half) for half in parted(rows[:0], left[:0])] == [0, 0]


def test_directions_of_other_rows_touch_no_memory() -> None:
    pytest.importorskip("llvmlite")
    with pytest.raises(ValueError, match="for 5 rows"):
        machine_rows.parted(ROWS, np.ones(4, np.bool_))


def test_rows_that_all_have_a_mark_are_not_copied() -> None:
    marks = np.ones(10, np.bool_)
    assert marked(ROWS, marks) is ROWS
    assert masked(ROWS, marks[:5]) is ROWS
    marks[[2, 8]] = False
    assert marked(ROWS, marks).tolist() == [3, 5, 9]
    assert masked(ROWS, marks[:5]).tolist() == [2, 3, 8, 9]


@pytest.mark.parametrize(
    ("rows", "expected"),
    [([4], slice(4, 5)), ([3, 4, 5], slice(3, 6)), ([3, 5], None), ([3, 5, 4, 6], None)],
)
def test_rows_that_follow_each_other_are_a_slice(rows: list[int], expected: slice | None) -> None:
    numbers = np.array(rows, np.uint32)
    found = span(numbers)
    assert found is numbers if expected is None else found == expected


def test_no_rows_and_repeated_rows_are_no_slice() -> None:
    for rows in (np.empty(0, np.uint32), np.array([1, 1, 3], np.uint32)):
        assert span(rows) is rows


@pytest.mark.parametrize("missing", [0.0, 0.2])
@pytest.mark.parametrize("max_bin", [8, 400])
def test_a_row_goes_the_same_way_by_its_code_as_by_its_value(missing: float, max_bin: int) -> None:
    X, _ = scattered(600, 3, seed=4, missing=missing)
    later, _ = scattered(600, 3, seed=5, missing=0.3)
    values = np.concatenate((X, later))
    cuts = Cuts.of(X, max_bin)
    bins, candidates = BinMatrix.of(values, cuts), CandidateTable.of(cuts)
    records = LookupTable.empty(("a", "b", "c")).appended(
        candidates.feature, candidates.threshold, candidates.default_left
    )
    for rows in (np.arange(len(values)), np.arange(1, len(values), 7)):
        for record in range(0, len(candidates), 1 if max_bin < 100 else 17):
            feature, threshold = int(records.feature[record]), records.threshold[record]
            default_left = bool(records.default_left[record])
            np.testing.assert_array_equal(
                bins.goes_left(rows, feature, threshold, default_left),
                records.directions_at(values, rows, record),
            )
