from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from fedmq.boosting.binning import BinMatrix, Cuts, histograms
from fedmq.boosting.splits import CandidateTable
from tests.boosting.tables import scattered

NAN = float("nan")


def listed(table: CandidateTable) -> list[tuple[int, int, bool]]:
    vectors = (table.feature, table.bin, table.default_left)
    return list(zip(*(vector.tolist() for vector in vectors), strict=True))


def cuts_of(*columns: list[float], max_bin: int = 3) -> Cuts:
    return Cuts.of(np.array(columns, np.float32).T, max_bin)


def test_without_missing_values_bins_ascend_and_the_last_is_no_candidate() -> None:
    assert listed(CandidateTable.of(cuts_of([1, 2, 3]))) == [(0, 0, False), (0, 1, False)]


def test_with_missing_values_a_backward_scan_follows_down_to_minus_one() -> None:
    assert listed(CandidateTable.of(cuts_of([1, 2, 3, NAN]))) == [
        (0, 0, False),
        (0, 1, False),
        (0, 2, False),
        (0, 1, True),
        (0, 0, True),
        (0, -1, True),
    ]


def test_a_feature_with_one_bin_splits_only_present_from_missing() -> None:
    cuts = Cuts.model_validate({"thresholds": [[], []], "has_missing": [False, True]})
    assert listed(CandidateTable.of(cuts)) == [(1, 0, False), (1, -1, True)]


def test_thresholds_are_cuts_with_infinities_at_the_ends() -> None:
    table = CandidateTable.of(cuts_of([1, 2, 3, NAN]))
    assert table.threshold.tolist() == [1, 2, np.inf, 2, 1, -np.inf]
    assert table.threshold.dtype == np.float32


def test_chosen_features_keep_their_order() -> None:
    cuts = cuts_of([1, 2, 3], [1, 2, NAN], [4, 5, 6])
    assert set(CandidateTable.of(cuts, [2, 0]).feature.tolist()) == {0, 2}
    everything = listed(CandidateTable.of(cuts))
    assert listed(CandidateTable.of(cuts, [2, 0])) == [
        candidate for candidate in everything if candidate[0] != 1
    ]
    assert len(CandidateTable.of(cuts, [])) == 0


@given(st.integers(0, 10_000), st.sampled_from([0.0, 0.3]))
def test_left_sums_are_those_of_the_rows_that_go_left(seed: int, missing: float) -> None:
    X, _ = scattered(30, 3, seed=seed, missing=missing)
    cuts = Cuts.of(X, 6)
    gradients = np.random.default_rng(seed).integers(-(2**56), 2**56, (30, 2))
    table = CandidateTable.of(cuts)
    nodes = [np.arange(30), np.arange(7, 19)]
    left = table.left_sums(histograms(BinMatrix.of(X, cuts), gradients, nodes))
    assert left.shape == (2, len(table), 2)
    for node, rows in enumerate(nodes):
        for c in range(len(table)):
            x = X[rows, table.feature[c]]
            goes_left = np.where(np.isnan(x), table.default_left[c], x <= table.threshold[c])
            expected = gradients[rows[goes_left.astype(bool)]].sum(axis=0)
            np.testing.assert_array_equal(left[node, c], expected)
