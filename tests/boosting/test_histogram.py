from __future__ import annotations

import numpy as np
import pytest

from fedmq.boosting.binning import BinMatrix, Cuts, histograms
from tests.boosting.pooled import children_histograms
from tests.boosting.tables import scattered


@pytest.fixture
def bins() -> BinMatrix:
    X, _ = scattered(200, 4, seed=1, missing=0.1)
    return BinMatrix.of(X, Cuts.of(X, 16))


@pytest.fixture
def gradients() -> np.ndarray:
    return np.random.default_rng(2).integers(-(2**54), 2**54, (200, 2))


def test_each_cell_is_the_exact_sum_of_its_rows(bins: BinMatrix, gradients: np.ndarray) -> None:
    nodes = [np.arange(0, 150), np.arange(100, 200), np.arange(0)]
    sums = histograms(bins, gradients, nodes)
    assert sums.shape == (3, bins.cuts.n_cells, 2)
    for node, rows in enumerate(nodes):
        for feature in range(4):
            first, stop = bins.cuts.first_cell[feature : feature + 2]
            for code in range(stop - first):
                inside = rows[bins.codes[rows, feature] == code]
                expected = [sum(column) for column in gradients[inside].T.tolist()]
                assert sums[node, first + code].tolist() == (expected or [0, 0])


def test_children_are_read_or_subtracted_to_the_same_sums(
    bins: BinMatrix, gradients: np.ndarray
) -> None:
    parents = [np.arange(0, 100), np.arange(100, 200)]
    children = [(np.arange(0, 30), np.arange(30, 100)), (np.arange(100, 180), np.arange(180, 200))]
    both = children_histograms(bins, gradients, histograms(bins, gradients, parents), children)
    flat = [rows for pair in children for rows in pair]
    expected = histograms(bins, gradients, flat)
    np.testing.assert_array_equal(both.reshape(expected.shape), expected)


def test_no_nodes_have_no_histograms(bins: BinMatrix, gradients: np.ndarray) -> None:
    assert histograms(bins, gradients, []).shape == (0, bins.cuts.n_cells, 2)
