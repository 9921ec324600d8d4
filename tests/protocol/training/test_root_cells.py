"""The cells of a root are counted again only where they may be others."""

from __future__ import annotations

import numpy as np

from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.boosting.splits import CandidateTable
from fedmq.protocol.training.candidates import RootCells, count_cells

VALUES = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
BINS = BinMatrix.of(VALUES, Cuts.of(VALUES, 8))
CANDIDATES = CandidateTable.of(BINS.cuts)
ROWS = np.arange(40, dtype=np.int32)


def counted(rows: int) -> RootCells:
    root = RootCells(40)
    [cells] = count_cells(BINS, CANDIDATES, [ROWS[:rows]])
    root.keep(rows, CANDIDATES, cells)
    return root


def test_a_root_of_all_rows_and_the_same_columns_is_known() -> None:
    [cells] = count_cells(BINS, CANDIDATES, [ROWS])
    known = counted(40).get(40, CANDIDATES)
    assert known is not None
    np.testing.assert_array_equal(known, cells)


def test_a_sample_of_rows_is_neither_kept_nor_known() -> None:
    assert counted(30).get(30, CANDIDATES) is None
    assert counted(40).get(30, CANDIDATES) is None


def test_other_columns_are_counted_anew() -> None:
    fewer = CandidateTable.of(BINS.cuts, np.array([0, 2]))
    assert len(fewer) < len(CANDIDATES)
    assert counted(40).get(40, fewer) is None
