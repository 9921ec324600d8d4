from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from gmpy2 import mpz
from hypothesis import given
from hypothesis import strategies as st

from fedmq.errors import DataError, MessageError
from fedmq.privacy.homomorphic import histogram as sums
from fedmq.privacy.homomorphic import paillier
from fedmq.privacy.homomorphic.histogram import (
    JointCells,
    Tricks,
    plan_cells,
    products,
)
from fedmq.privacy.homomorphic.packing import SlotLayout
from tests.how_often import examples

KEY = paillier.generate(256)
PUBLIC = KEY.public
MODULUS = PUBLIC.modulus
LAYOUT = SlotLayout.for_sums(2**60, 2**50, PUBLIC.plaintext_bits)


class Table:
    """Random rows, their ciphertexts, and their histograms in the clear."""

    def __init__(self, seed: int, rows: int, features: int, codes: int, nodes: int) -> None:
        random = np.random.default_rng(seed)
        self.nodes, self.codes = nodes, codes
        self.g = random.integers(-(2**40), 2**40, rows)
        self.h = random.integers(0, 2**30, rows)
        # Skewed, so that some bins are full and some empty.
        skewed = random.random((rows, features)) ** random.integers(1, 6, features)
        self.bins = (skewed * codes).astype(np.uint8)
        self.slots = random.integers(-1, nodes, rows)
        # Noise does not change sums, and takes most of the time.
        self.ciphertexts = KEY.raw_encrypt(LAYOUT.join(self.g, self.h))

    def histogram(self, values: np.ndarray) -> np.ndarray:
        cells = np.zeros((self.nodes, self.bins.shape[1], self.codes), dtype=np.int64)
        for row in np.flatnonzero(self.slots >= 0):
            for feature, code in enumerate(self.bins[row]):
                cells[self.slots[row], feature, code] += values[row]
        return cells

    def sum_bins(
        self,
        rows: slice = slice(None),
        columns: slice = slice(None),
        tricks: Tricks = sums.ALL_TRICKS,
    ) -> sums.Sums:
        return sums.sum_bins(
            self.ciphertexts[rows],
            self.bins[rows, columns],
            self.slots[rows],
            nodes=self.nodes,
            codes=self.codes,
            modulus=MODULUS,
            tricks=tricks,
        )


def decrypted(cells: sums.Sums) -> tuple[np.ndarray, np.ndarray]:
    single = replace(LAYOUT, capacity=1)  # nothing is packed yet
    g, h = single.unpack(KEY.decrypt(cells.ravel().tolist()), cells.size)
    return g.reshape(cells.shape), h.reshape(cells.shape)


tables = st.builds(
    Table,
    seed=st.integers(0, 2**32),
    rows=st.integers(0, 300),
    features=st.integers(0, 6),
    codes=st.integers(1, 9),
    nodes=st.integers(1, 4),
)


@examples(40)
@given(tables)
def test_sums_equal_the_histograms_in_the_clear(table: Table) -> None:
    g, h = decrypted(table.sum_bins())
    np.testing.assert_array_equal(g, table.histogram(table.g))
    np.testing.assert_array_equal(h, table.histogram(table.h))


def test_sums_over_more_features_than_are_joined_at_once_are_exact() -> None:
    table = Table(seed=1, rows=200, features=35, codes=3, nodes=1)
    np.testing.assert_array_equal(decrypted(table.sum_bins())[0], table.histogram(table.g))


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("skip_fullest", [True, False])
def test_every_trick_gives_the_very_ciphertexts_of_separate_sums(
    joint: bool, skip_fullest: bool
) -> None:
    table = Table(seed=2, rows=600, features=4, codes=5, nodes=2)
    separate = [table.sum_bins(columns=slice(f, f + 1)) for f in range(4)]
    found = table.sum_bins(tricks=Tricks(joint, skip_fullest))
    assert (found == np.concatenate(separate, axis=1)).all()


def mostly_zero(columns: int, share: float = 0.05) -> np.ndarray:
    return (np.random.default_rng(0).random((2000, columns)) < share).astype(np.uint8)


def test_the_rows_of_the_fullest_bin_cost_no_product() -> None:
    bins, tricks = mostly_zero(3), Tricks(joint=False)
    groups = plan_cells(bins, tricks)
    others = sorted(np.count_nonzero(bins, axis=0).tolist())
    in_full, inverses = 2000 - 2, 2 * 32
    assert products(groups, tricks) == in_full + sum(others[:2]) + inverses


@pytest.mark.parametrize(("codes", "joined"), [(4, True), (33, False)])
def test_columns_that_are_mostly_zero_are_joined_where_that_saves(codes: int, joined: bool) -> None:
    bins = mostly_zero(16) * np.random.default_rng(1).integers(1, codes, (2000, 16))
    groups = plan_cells(bins.astype(np.uint8), Tricks())
    assert any(isinstance(group, JointCells) for group in groups) == joined
    assert products(groups, Tricks()) <= products(plan_cells(bins, Tricks(joint=False)), Tricks())


def test_a_total_that_shares_a_factor_with_the_key_is_refused() -> None:
    bins = mostly_zero(2)
    ciphertexts = [mpz(5)] * 1999 + [KEY.first.p]
    bins[-1] = 1
    with pytest.raises(MessageError, match="shares a factor with the key"):
        slots = np.zeros(2000, dtype=np.int8)
        sums.sum_bins(
            ciphertexts, bins, slots, nodes=1, codes=2, modulus=MODULUS, tricks=Tricks(joint=False)
        )


def test_a_cell_that_no_row_falls_into_is_one() -> None:
    table = Table(seed=3, rows=50, features=2, codes=4, nodes=2)
    table.slots[:] = -1
    assert (table.sum_bins() == 1).all()


def test_noisy_ciphertexts_sum_like_raw_ones() -> None:
    table = Table(seed=4, rows=100, features=2, codes=4, nodes=2)
    table.ciphertexts = KEY.encrypt(LAYOUT.join(table.g, table.h))
    np.testing.assert_array_equal(decrypted(table.sum_bins())[0], table.histogram(table.g))


@examples(20)
@given(tables, st.integers(0, 300), st.integers(0, 300))
def test_partial_sums_merge_to_the_whole_however_rows_are_shared(
    table: Table, one: int, other: int
) -> None:
    first, second = sorted((one, other))
    parts = [
        table.sum_bins(slice(first)),
        table.sum_bins(slice(first, second)),
        table.sum_bins(slice(second, None)),
    ]
    whole = table.sum_bins()
    left_first = sums.merge([sums.merge(parts[:2], MODULUS), parts[2]], MODULUS)
    right_first = sums.merge([parts[0], sums.merge(parts[1:], MODULUS)], MODULUS)
    assert (sums.merge(parts, MODULUS) == whole).all()
    assert (left_first == whole).all()
    assert (right_first == whole).all()


@examples(20)
@given(tables)
def test_a_parent_less_one_child_is_the_other_child(table: Table) -> None:
    children = table.sum_bins()
    smaller, larger = (
        children[:1],
        sums.merge([children[i : i + 1] for i in range(len(children))], MODULUS),
    )
    siblings = sums.subtract(larger, smaller, MODULUS)
    g = table.histogram(table.g)
    np.testing.assert_array_equal(decrypted(siblings)[0], g[1:].sum(axis=0, keepdims=True))


def test_a_sum_that_shares_a_factor_with_the_key_cannot_be_subtracted() -> None:
    parents = np.array([[mpz(5), mpz(6)]], dtype=object)
    children = np.array([[mpz(5), KEY.first.p]], dtype=object)
    with pytest.raises(MessageError, match="shares a factor with the key"):
        sums.subtract(parents, children, MODULUS)


def test_running_sums_start_anew_with_each_run() -> None:
    table = Table(seed=5, rows=120, features=3, codes=6, nodes=2)
    cells = table.sum_bins()
    index = np.arange(cells.size).reshape(cells.shape)
    # The last code stands for a missing value, and is no cut.
    runs = [index[node, feature, :-1] for node in range(2) for feature in range(3)]
    g, h = decrypted(sums.cumulate(cells, runs, MODULUS))
    for values, found in ((table.g, g), (table.h, h)):
        expected = table.histogram(values)[:, :, :-1].cumsum(axis=2)
        np.testing.assert_array_equal(found, expected.ravel())


def test_no_runs_give_no_sums() -> None:
    cells = Table(seed=6, rows=9, features=1, codes=2, nodes=1).sum_bins()
    assert sums.cumulate(cells, [], MODULUS).shape == (0,)


def test_sums_travel_between_processes() -> None:
    cells = Table(seed=7, rows=40, features=2, codes=3, nodes=2).sum_bins()
    assert (pickle.loads(pickle.dumps(cells)) == cells).all()  # noqa: S301


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda t: t.ciphertexts.pop(), r"^sums: 19 ciphertexts, bins of shape \(20, 3\)"),
        (lambda t: t.bins.__setitem__((4, 2), 9), r"^row 4, feature 2: bin 9 is not in \[0, 4\)"),
        (lambda t: t.slots.__setitem__(7, 2), r"^row 7: node slot 2 is not in \[-1, 2\)"),
        (lambda t: t.slots.__setitem__(8, -2), r"^row 8: node slot -2 is not in \[-1, 2\)"),
    ],
    ids=["rows", "bin", "late node", "early node"],
)
def test_rows_that_do_not_fit_are_refused_where_they_are(spoil, message: str) -> None:
    table = Table(seed=8, rows=20, features=3, codes=4, nodes=2)
    spoil(table)
    with pytest.raises(DataError, match=message):
        table.sum_bins()


def test_two_features_of_few_bins_are_summed_jointly() -> None:
    bins = np.random.default_rng(0).integers(0, 8, (1000, 2))
    (group,) = plan_cells(bins, Tricks())
    assert isinstance(group, JointCells)
    assert group.size == 64


def test_features_of_too_many_bins_are_summed_separately() -> None:
    bins = np.stack([np.arange(1000), np.arange(1000)[::-1]], axis=1)
    assert len(plan_cells(bins, Tricks())) == 2


def test_a_few_rows_are_not_worth_a_plan() -> None:
    assert len(plan_cells(np.zeros((20, 3), dtype=np.uint8), Tricks())) == 3


@pytest.mark.parametrize(
    ("codes", "features", "fewer"), [(2, 40, 5.0), (33, 10, 1.7)], ids=["binary", "independent"]
)
def test_joint_sums_take_several_times_fewer_products(
    codes: int, features: int, fewer: float
) -> None:
    rows = 30_000
    bins = np.random.default_rng(0).integers(0, codes, (rows, features)).astype(np.uint8)
    blocks = (bins[:, start : start + 16] for start in range(0, features, 16))
    groups = [group for block in blocks for group in plan_cells(block, Tricks())]
    assert bins.size / products(groups, Tricks()) >= fewer
