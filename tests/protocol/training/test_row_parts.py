"""What is computed in parts of the rows is the same, to the last bit, as over all of them."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from fedmq.boosting.binning import BinMatrix, Cuts, histograms
from fedmq.boosting.splits import CandidateTable
from fedmq.protocol.training.candidates import Siblings, count_cells, merge_cells

RANDOM = np.random.default_rng(0)
VALUES = RANDOM.normal(size=(600, 3)).round(1).astype(np.float32)
BINS = BinMatrix.of(VALUES, Cuts.of(VALUES, 16))
CANDIDATES = CandidateTable.of(BINS.cuts)
GRADIENTS = RANDOM.integers(-(2**54), 2**54, (600, 2))
LEFT = RANDOM.random(600) < 0.3
# Rows of a node stand in any order, and a part may have none of them.
NODES = [np.flatnonzero(LEFT).astype(np.int32)[::-1], np.flatnonzero(~LEFT).astype(np.int32)]
FEW = [np.arange(40, dtype=np.int32)]
EVERY = np.ones(len(CANDIDATES), np.bool_)
FAMILIES = [Siblings(NODES, EVERY), Siblings(FEW, EVERY)]


@pytest.fixture(autouse=True)
def worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedmq.boosting.row_parts.FEWEST_ROWS", 1)


@pytest.mark.parametrize("parts", [1, 2, 7])
@pytest.mark.parametrize(
    "whole",
    [
        histograms.bind(BINS, GRADIENTS, [*NODES, *FEW]),
        count_cells.bind(BINS, CANDIDATES, [*NODES, *FEW]),
        merge_cells.bind(BINS, CANDIDATES, FAMILIES, 20),
    ],
    ids=repr,
)
def test_parts_make_the_whole(whole: Any, parts: int) -> None:
    made = whole.parted(parts)
    assert len(made.computations) == parts
    # As a worker gets them: with its rows alone.
    sent = [pickle.dumps(part) for part in made.computations]
    found = made.join([pickle.loads(part).run() for part in sent])  # noqa: S301
    for one, other in zip(found, whole.run(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_few_rows_are_not_parted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedmq.boosting.row_parts.FEWEST_ROWS", 601)
    assert histograms.bind(BINS, GRADIENTS, NODES).parted(2) is None
