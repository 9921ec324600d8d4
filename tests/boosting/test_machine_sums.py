from __future__ import annotations

import numpy as np
import pytest

from fedmq.boosting import binning, machine_sums
from fedmq.boosting.binning import BinMatrix, Cuts, histograms
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
@pytest.mark.parametrize("order", ["F", "C"])
def test_machine_code_and_numpy_add_the_same_sums(
    max_bin: int, columns: int, order: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, _ = scattered(ROWS, 3, seed=1, missing=0.1)
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
