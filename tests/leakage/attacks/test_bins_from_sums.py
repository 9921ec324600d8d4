"""Small constructed cases of what sums tell."""

from __future__ import annotations

import numpy as np

from fedmq.leakage.attacks.bins_from_sums import (
    NodeSums,
    followed,
    left_shares,
    linked,
    named_rows,
)

RANDOM = np.random.default_rng(0)
ROWS = 30
PAIRS = RANDOM.integers(-(2**40), 2**40, (ROWS, 2))
ORDER = RANDOM.permutation(ROWS)
# Candidate c has the first c + 1 rows of the hidden order on its left.
LEFT = np.cumsum(PAIRS[ORDER], axis=0)
EVERYONE = np.arange(ROWS, dtype=np.int32)
NEIGHBOURS = np.array([(higher, lower) for higher in range(ROWS) for lower in range(higher)])


def named(pairs: np.ndarray) -> dict[tuple[int, int], set[int]]:
    node = NodeSums(EVERYONE + 100, pairs, np.cumsum(pairs[ORDER], axis=0))
    return {
        (int(higher), int(lower)): set(rows.tolist())
        for claim in named_rows(node, NEIGHBOURS)
        for (higher, lower), rows in zip(claim.pairs, claim.rows, strict=True)
    }


def test_rows_between_two_candidates_are_named_if_there_are_three_at_most() -> None:
    found = named(PAIRS)
    assert set(found) == {
        (higher, lower) for higher, lower in NEIGHBOURS.tolist() if higher - lower <= 3
    }
    for (higher, lower), rows in found.items():
        assert rows == set(ORDER[lower + 1 : higher + 1].tolist())


def test_gradients_that_many_share_name_nobody() -> None:
    assert not named(RANDOM.integers(0, 2, (ROWS, 2)) + 1)


def test_a_candidate_is_followed_to_both_children_in_whatever_order() -> None:
    side = RANDOM.random(ROWS) < 0.5
    goes_left = np.argsort(ORDER)[:, None] < np.array([6, 12, 18, 24])
    whole, low, high = ((goes_left & part[:, None]).T @ PAIRS for part in (side >= 0, side, ~side))
    one, other = np.array([2, 0, 3, 1]), np.array([1, 3, 2, 0])
    places = followed(whole, low[one], high[other])
    np.testing.assert_array_equal(one[places[:, 0]], np.arange(4))
    np.testing.assert_array_equal(other[places[:, 1]], np.arange(4))


def test_a_candidate_whose_sums_two_others_have_as_well_is_not_followed() -> None:
    twice = LEFT[[0, 1, 1]]
    places = followed(twice * 2, twice, twice)
    assert places.tolist() == [[0, 0], [-1, -1], [-1, -1]]


def test_nothing_is_followed_where_sums_do_not_add_up() -> None:
    assert (followed(LEFT, LEFT, LEFT + 1) == -1).all()


def test_the_nearest_sums_are_linked() -> None:
    shown = LEFT.astype(np.float64)
    order = RANDOM.permutation(ROWS)
    match = linked(shown + RANDOM.normal(size=shown.shape), shown[order])
    np.testing.assert_array_equal(order[match], np.arange(ROWS))


def test_as_many_equations_as_rows_are_solved() -> None:
    goes_left = (np.argsort(ORDER)[:, None] <= np.arange(ROWS)).astype(float)
    nodes = []
    for _ in range(ROWS // 2):
        pairs = RANDOM.integers(-(2**20), 2**20, (ROWS, 2))
        nodes.append(NodeSums(EVERYONE, pairs, (goes_left.T @ pairs).astype(np.int64)))
    expected = goes_left.mean(axis=0)
    shown = np.ones((len(nodes), ROWS), dtype=np.bool_)
    shares = left_shares(ROWS, nodes, expected, shown)
    np.testing.assert_allclose(shares, goes_left, atol=1e-4)
    few = left_shares(ROWS, nodes[:1], expected, shown[:1])
    assert 0.5 < ((few > 0.5) == (goes_left == 1)).mean() < 1


def test_a_candidate_is_read_from_those_nodes_that_show_it() -> None:
    goes_left = (np.argsort(ORDER)[:, None] <= np.arange(ROWS)).astype(float)
    nodes = []
    for _ in range(ROWS // 2):
        pairs = RANDOM.integers(-(2**20), 2**20, (ROWS, 2))
        nodes.append(NodeSums(EVERYONE, pairs, (goes_left.T @ pairs).astype(np.int64)))
    shown = np.ones((len(nodes), ROWS), dtype=np.bool_)
    shown[:, 1::2] = False
    expected = goes_left.mean(axis=0)
    shares = left_shares(ROWS, nodes, expected, shown)
    np.testing.assert_allclose(shares[:, ::2], goes_left[:, ::2], atol=1e-4)
    np.testing.assert_array_equal(shares[:, 1::2], np.broadcast_to(expected, (ROWS, ROWS))[:, 1::2])
