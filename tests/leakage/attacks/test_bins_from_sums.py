"""Small constructed cases of what sums tell."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fedmq.leakage.attacks.bins_from_sums import (
    Equations,
    NodeSums,
    _assigned,
    _never_falling,
    followed,
    linked,
    named_rows,
    ordered_by_counts,
    shares_left,
)
from fedmq.protocol.training.candidates import shown_order

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


def drawn_nodes(goes_left: np.ndarray, count: int, random: np.random.Generator) -> list[NodeSums]:
    """Nodes of half of the rows each, drawn anew, with gradients drawn anew."""
    rows = len(goes_left)
    nodes = []
    for _ in range(count):
        held = np.sort(random.permutation(rows)[: rows // 2]).astype(np.int32)
        pairs = random.integers(-(2**40), 2**40, (len(held), 2))
        nodes.append(NodeSums(held, pairs, goes_left[held].astype(np.int64).T @ pairs))
    return nodes


def people(rows: int, cuts: int, random: np.random.Generator) -> np.ndarray:
    """Who goes left of the cuts of a column: bool (rows, cuts)."""
    return random.permutation(rows)[:, None] < np.linspace(0, rows, cuts + 2)[1:-1]


def read(nodes: list[NodeSums], goes_left: np.ndarray, together: bool) -> np.ndarray:
    rows, cuts = goes_left.shape
    equations = Equations.of(rows, nodes, [np.ones(cuts, np.bool_)] * len(nodes))
    alone = shares_left(equations, np.tile(goes_left.mean(axis=0), (rows, 1)))
    return shares_left(equations, alone, [np.arange(cuts)]) if together else alone


def test_as_many_equations_as_rows_are_solved() -> None:
    random = np.random.default_rng(1)
    goes_left = people(60, 5, random)
    shares = read(drawn_nodes(goes_left, 60, random), goes_left, together=False)
    np.testing.assert_allclose(shares, goes_left, atol=1e-4)


def test_a_column_is_read_whole_from_half_as_many_equations_as_rows() -> None:
    random = np.random.default_rng(2)
    goes_left = people(200, 12, random)
    shares = read(drawn_nodes(goes_left, 50, random), goes_left, together=True)
    np.testing.assert_array_equal(shares > 0.5, goes_left)


def test_who_knows_that_cuts_are_of_one_column_reads_more() -> None:
    random = np.random.default_rng(3)
    goes_left = people(200, 12, random)
    nodes = drawn_nodes(goes_left, 25, random)
    alone, together = (
        ((read(nodes, goes_left, known) > 0.5) == goes_left).mean() for known in (False, True)
    )
    assert 0.8 < alone < together


def test_a_candidate_is_read_from_those_nodes_that_show_it() -> None:
    random = np.random.default_rng(4)
    goes_left = people(60, 6, random)
    nodes = drawn_nodes(goes_left, 60, random)
    shown = np.arange(6) % 2 == 0
    expected = goes_left.mean(axis=0)
    equations = Equations.of(60, nodes, [shown] * len(nodes))
    shares = shares_left(equations, np.tile(expected, (60, 1)))
    np.testing.assert_allclose(shares[:, shown], goes_left[:, shown], atol=1e-4)
    np.testing.assert_array_equal(shares[:, ~shown], np.tile(expected, (60, 1))[:, ~shown])


def test_sums_under_a_mask_tell_no_more_than_guessing() -> None:
    random = np.random.default_rng(5)
    goes_left = people(200, 12, random)
    shares = goes_left.mean(axis=0)
    nodes = []
    for node in drawn_nodes(goes_left, 50, random):
        low, high = (node.pairs.clip(*ends).sum(axis=0) for ends in ((None, 0), (0, None)))
        nodes.append(NodeSums(node.rows, node.pairs, random.integers(low, high, (12, 2))))
    right = ((read(nodes, goes_left, together=True) > 0.5) == goes_left).mean()
    assert right < np.maximum(shares, 1 - shares).mean()


def test_shares_of_a_column_are_made_to_rise_by_as_little_as_possible() -> None:
    values = np.array([[0.0, 1.0, 2.0], [3.0, 1.0, 2.0], [0.0, 3.0, 1.0], [1.0, 0.0, -4.0]])
    rising = [[0, 1, 2], [2, 2, 2], [0, 2, 2], [-1, -1, -1]]
    np.testing.assert_array_equal(_never_falling(values), rising)


def test_the_cheapest_assignment_is_found() -> None:
    random = np.random.default_rng(6)
    lines = np.arange(5)
    for _ in range(20):
        cost = random.random((5, 5))
        least = min(cost[lines, order].sum() for order in itertools.permutations(range(5)))
        assert cost[lines, _assigned(cost)].sum() == pytest.approx(least)


def test_candidates_in_a_new_order_are_linked_by_a_forecast_of_their_sums() -> None:
    random = np.random.default_rng(7)
    rows = 400
    goes_left = np.concatenate([people(rows, 15, random) for _ in range(3)], axis=1)
    leaf = random.integers(0, 8, rows)
    everyone = np.arange(rows, dtype=np.int32)
    g, h = random.integers(-(2**30), 2**30, rows), random.integers(2**28, 2**30, rows)
    pairs = np.stack((g, h), axis=1)
    nodes = [
        NodeSums(held, pairs[held], goes_left[held].astype(np.int64).T @ pairs[held])
        for held in (everyone, *(np.flatnonzero(leaf == number) for number in range(8)))
    ]
    # The next tree: g changes by a leaf's weight times h, and h by a little.
    changed = g + random.normal(size=8)[leaf] * h
    weights = np.rint([changed, h * (1 + random.normal(size=rows) / 100)])
    shown = random.permutation(goes_left.shape[1])
    equations = Equations.of(rows, nodes, [np.ones(goes_left.shape[1], np.bool_)] * len(nodes))
    match = linked(equations, goes_left.mean(axis=0), weights, (weights @ goes_left).T[shown])
    assert (shown[match] == np.arange(len(shown))).mean() > 0.9


def test_where_h_is_a_count_candidates_have_one_order_in_all_nodes_of_the_same_rows() -> None:
    random = np.random.default_rng(8)
    goes_left = np.concatenate([people(100, 9, random) for _ in range(3)], axis=1)
    everyone = np.arange(100, dtype=np.int32)
    found = []
    for _ in range(2):
        pairs = np.stack((random.integers(-(2**30), 2**30, 100), np.full(100, 2**20)), axis=1)
        shown = shown_order(goes_left.sum(axis=0), 100, random)
        sums = goes_left[:, shown].astype(np.int64).T @ pairs
        order = ordered_by_counts(NodeSums(everyone, pairs, sums))
        assert order is not None
        found.append(shown[order])
    np.testing.assert_array_equal(*found)
    assert ordered_by_counts(NodeSums(everyone[:ROWS], PAIRS, LEFT)) is None
