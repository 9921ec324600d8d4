"""Cells of few rows are merged: whatever sums are subtracted, none is left of a few rows."""

from __future__ import annotations

from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.boosting.splits import CandidateTable, children
from fedmq.privacy.masking import splitting_matrix
from fedmq.protocol.training.candidates import _longest_chain, count_cells, kept_candidates
from tests.how_often import examples

MASK = NDArray[np.bool_]


def binned(random: np.random.Generator, rows: int, missing: float) -> BinMatrix:
    values = random.normal(size=(rows, 3)).round(1).astype(np.float32)
    values[random.random(values.shape) < missing] = np.nan
    return BinMatrix.of(values, Cuts.of(values, 16))


def shown(bins: BinMatrix, above: MASK, nodes: list[NDArray[np.int32]], smallest: int) -> MASK:
    candidates = CandidateTable.of(bins.cuts)
    counts = count_cells(bins, candidates, nodes)
    return kept_candidates(bins.cuts, candidates, above, counts, smallest)


class Tree:
    """Rows and shown candidates of each node of a tree that is split at random."""

    def __init__(
        self, bins: BinMatrix, random: np.random.Generator, smallest: int, depth: int = 3
    ) -> None:
        everything = np.ones(len(CandidateTable.of(bins.cuts)), np.bool_)
        self.rows = {1: np.arange(bins.n_rows, dtype=np.int32)}
        self.shown = {1: shown(bins, everything, [self.rows[1]], smallest)}
        for node in range(1, 2**depth):
            left = random.random(len(self.rows[node])) < random.choice([0.03, 0.2, 0.5])
            below = [self.rows[node][left], self.rows[node][~left]]
            kept = shown(bins, self.shown[node], below, smallest)
            self.rows |= zip(children(node), below, strict=True)
            self.shown |= dict.fromkeys(children(node), kept)


def smallest_difference(bins: BinMatrix, rows: NDArray[np.int32], shown: MASK) -> int:
    """The fewest rows by which two shown candidates of a column, or one and none, differ."""
    candidates = CandidateTable.of(bins.cuts)
    found = [10**6]
    for feature in range(bins.cuts.n_features):
        own = np.flatnonzero(shown & (candidates.feature == feature))
        left = splitting_matrix(bins, rows, candidates, own).astype(np.bool_)
        sides = [np.zeros(len(rows), np.bool_), *left.T, np.ones(len(rows), np.bool_)]
        if len(own):
            found += [
                int((one & ~other).sum())
                for one, other in permutations(sides, 2)
                if (one | other == one).all() and (one != other).any()
            ]
    return min(found)


@examples(25)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.02, 0.3]), st.integers(1, 12))
def test_no_difference_of_sums_in_a_tree_is_that_of_a_few_rows(
    seed: int, missing: float, smallest: int
) -> None:
    random = np.random.default_rng(seed)
    bins = binned(random, 150, missing)
    tree = Tree(bins, random, smallest)
    for node, rows in tree.rows.items():
        assert smallest_difference(bins, rows, tree.shown[node]) >= smallest
        above = node // 2
        while above:
            # What an ancestor and a node both show tells of the ancestor's other rows.
            others = np.setdiff1d(tree.rows[above], rows)
            both = tree.shown[node] & tree.shown[above]
            assert smallest_difference(bins, others, both) >= smallest
            above //= 2


@examples(20)
@given(st.integers(0, 10**6), st.sampled_from([0.0, 0.02, 0.3]))
def test_with_cells_of_one_row_only_repetitions_are_left_out(seed: int, missing: float) -> None:
    random = np.random.default_rng(seed)
    bins = binned(random, 60, missing)
    candidates = CandidateTable.of(bins.cuts)
    tree = Tree(bins, random, 1)
    for node, rows in tree.rows.items():
        left = splitting_matrix(bins, rows, candidates, np.arange(len(candidates)))
        for candidate in np.flatnonzero(~tree.shown[node]):
            side = left[:, candidate]
            alike = (candidates.feature == candidates.feature[candidate]) & (
                (left == side[:, None]).all(axis=0) | (left == 1 - side[:, None]).all(axis=0)
            )
            earlier = np.flatnonzero(alike & tree.shown[node])
            assert side.all() or not side.any() or (earlier < candidate).any()


@examples(100)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=7),
    st.integers(1, 6),
)
def test_as_many_cells_as_can_be_stay_apart(steps: list[tuple[int, int]], smallest: int) -> None:
    steps = [step for step in steps if any(step)] or [(1, 0)]
    ranks = np.cumsum([(0, 0), *steps], axis=0).T
    last = len(steps)

    def allowed(chain: tuple[int, ...]) -> bool:
        cells = np.diff(ranks[:, chain], axis=1)
        return bool(((cells == 0) | (cells >= smallest)).all())

    chains = [
        (0, *middle, last)
        for size in range(last)
        for middle in combinations(range(1, last), size)
        if allowed((0, *middle, last))
    ]
    found = _longest_chain(ranks, smallest)
    assert len(found) == max(map(len, chains), default=0)
    assert not found or allowed(tuple(found))


def test_the_root_keeps_every_cut_whose_cells_have_enough_rows() -> None:
    values = np.arange(40, dtype=np.float32)[:, None]
    bins = BinMatrix.of(values, Cuts.of(values, 4))
    everything = np.ones(3, np.bool_)
    rows = np.arange(40, dtype=np.int32)
    assert shown(bins, everything, [rows], 10).all()
    assert shown(bins, everything, [rows], 11).tolist() == [False, True, False]


@pytest.mark.parametrize(("missing", "both"), [(9, False), (10, True)])
def test_where_few_rows_are_missing_one_default_direction_is_shown(
    missing: int, both: bool
) -> None:
    values = np.append(np.arange(40), np.full(missing, np.nan)).astype(np.float32)[:, None]
    bins = BinMatrix.of(values, Cuts.of(values, 4))
    candidates = CandidateTable.of(bins.cuts)
    everything = np.ones(len(candidates), np.bool_)
    kept = shown(bins, everything, [np.arange(len(values), dtype=np.int32)], 10)
    assert candidates.default_left[kept].any() == both
    assert (~candidates.default_left[kept]).sum() == (4 if both else 3)
