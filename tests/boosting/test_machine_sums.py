from __future__ import annotations

import numpy as np
import pytest

from fedmq.boosting import binning, machine_sums
from fedmq.boosting.binning import BinMatrix, Cuts, histograms
from fedmq.boosting.splits import CandidateTable
from fedmq.protocol.training import candidates
from tests.boosting.tables import scattered

pytest.importorskip("llvmlite")

ROWS = 9_000  # more than two pieces


def of_numpy(
    bins: BinMatrix, gradients: np.ndarray, nodes: list[np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> np.ndarray:
    with monkeypatch.context() as patch:
        patch.setattr(binning, "FEWEST_ROWS", 2**62)
        return histograms(bins, gradients, nodes)


@pytest.fixture(autouse=True)
def _for_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binning, "FEWEST_ROWS", 0)


@pytest.mark.parametrize("max_bin", [16, 600])
@pytest.mark.parametrize("columns", [1, 2, 3, 6])
@pytest.mark.parametrize(("order", "features"), [("F", 3), ("C", 3), ("F", 18)])
def test_machine_code_and_numpy_add_the_same_sums(
    max_bin: int, columns: int, order: str, features: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, _ = scattered(ROWS, features, seed=1, missing=0.1)
    cuts = Cuts.of(X, max_bin)
    bins = BinMatrix(np.asarray(BinMatrix.of(X, cuts).codes, order=order), cuts)
    random = np.random.default_rng(2)
    gradients = random.integers(-(2**60), 2**60, (ROWS, columns))
    nodes = [np.arange(ROWS), np.arange(0), random.permutation(ROWS)[:100].astype(np.uint32)]
    assert machine_sums.can_add(bins.codes, gradients)
    np.testing.assert_array_equal(
        histograms(bins, gradients, nodes), of_numpy(bins, gradients, nodes, monkeypatch)
    )


@pytest.mark.parametrize("row", [-1, ROWS])
def test_a_row_that_is_not_in_the_table_touches_no_memory(row: int) -> None:
    X, _ = scattered(ROWS, 3, seed=1)
    bins = BinMatrix.of(X, Cuts.of(X, 16))
    with pytest.raises(IndexError, match="not in the table"):
        histograms(bins, np.ones((ROWS, 2), np.int64), [np.array([0, row])])


def test_more_columns_than_a_vector_holds_are_left_to_numpy() -> None:
    codes = np.zeros((ROWS, 3), np.uint8)
    assert not machine_sums.can_add(codes, np.ones((ROWS, 9), np.int64))


def test_machine_code_and_numpy_count_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    X, _ = scattered(ROWS, 12, seed=1, missing=0.1)
    bins = BinMatrix.of(X, Cuts.of(X, 16))
    drawn = CandidateTable.of(bins.cuts, range(1, 12))
    nodes = [np.arange(ROWS), np.arange(0), np.random.default_rng(2).permutation(ROWS)[:100]]
    monkeypatch.setattr(candidates, "FEWEST_ROWS", 0)
    counted = candidates.count_cells(bins, drawn, nodes)
    assert (counted.sum(axis=1) == 11 * np.array([ROWS, 0, 100])).all()
    monkeypatch.setattr(candidates, "FEWEST_ROWS", 2**62)
    np.testing.assert_array_equal(counted, candidates.count_cells(bins, drawn, nodes))


@pytest.mark.parametrize("columns", [2, 6])
def test_bounds_are_the_sums_of_negative_and_of_positive_numbers(columns: int) -> None:
    random = np.random.default_rng(2)
    gradients = random.integers(-(2**40), 2**40, (ROWS, columns))
    for rows in (np.arange(ROWS, dtype=np.int32), np.arange(0), np.arange(7, ROWS, 3)):
        chosen = gradients[rows]
        expected = np.minimum(chosen, 0).sum(axis=0), np.maximum(chosen, 0).sum(axis=0)
        np.testing.assert_array_equal(machine_sums.bounds(gradients, rows), expected)
