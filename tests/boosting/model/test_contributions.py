"""Shapley values are those of their definition, and add up to the leaf."""

from __future__ import annotations

from itertools import combinations
from math import factorial

import numpy as np
import pytest
from numpy.typing import NDArray

from fedmq.boosting.model.contributions import TreeShap, expected_margin
from fedmq.boosting.model.tree import Tree, TreeArrays


def grown(random: np.random.Generator, depth: int) -> Tree:
    """A tree with covers and weights at random, in which some nodes above ``depth`` are leaves."""
    tree = TreeArrays()
    waiting = [(0, 0, 2**20)]  # whole numbers, so that covers of children add up
    while waiting:
        node, level, cover = waiting.pop()
        if level == depth or cover == 1 or (level and random.random() < 0.2):
            tree.leaf(node, random.normal(), cover=cover)
            continue
        left, right = tree.split(node, int(random.integers(0, 3)), 0, gain=1.0, cover=cover)
        goes_left = int(random.integers(1, cover))
        waiting += [(left, level + 1, goes_left), (right, level + 1, cover - goes_left)]
    return tree.finished()


def expectation(tree: Tree, players: NDArray[np.int64], left: NDArray[np.bool_], known: set[int]):
    """What a row's margin is worth where only the directions of ``known`` players are told."""

    def below(node: int) -> float:
        if tree.is_leaf[node]:
            return float(tree.weight[node])
        children = int(tree.left[node]), int(tree.right[node])
        if int(players[node]) in known:
            return below(children[0] if left[node] else children[1])
        covers = [float(tree.cover[child]) for child in children]
        values = [below(child) for child in children]
        return float(np.average(values, weights=covers))

    return below(0)


def contributions(
    tree: Tree, players: NDArray[np.int64], left: NDArray[np.bool_], n_players: int
) -> NDArray[np.float64]:
    return TreeShap.of([tree], [players], n_players).values(left)[:, 0]


@pytest.mark.parametrize("seed", range(20))
def test_values_are_those_of_shapley_s_definition(seed: int) -> None:
    random = np.random.default_rng(seed)
    tree = grown(random, depth=4)
    n_players = int(random.integers(1, 6))
    players = random.integers(0, n_players, len(tree))
    left = random.random((7, len(tree))) < 0.5
    values = contributions(tree, players, left, n_players)
    everybody = set(range(n_players))
    for row in range(len(left)):
        for player in range(n_players):
            others = everybody - {player}
            expected = 0.0
            for size in range(n_players):
                weight = factorial(size) * factorial(n_players - size - 1) / factorial(n_players)
                for known in map(set, combinations(others, size)):
                    with_it = expectation(tree, players, left[row], known | {player})
                    expected += weight * (with_it - expectation(tree, players, left[row], known))
            assert values[row, player] == pytest.approx(expected, abs=1e-9)
        margin = expectation(tree, players, left[row], everybody)
        assert values[row].sum() + expected_margin(tree) == pytest.approx(margin, abs=1e-9)


def test_who_splits_nothing_adds_nothing() -> None:
    tree = grown(np.random.default_rng(1), depth=3)
    left = np.ones((2, len(tree)), np.bool_)
    values = contributions(tree, np.zeros(len(tree), np.int64), left, 2)
    assert (values[:, 1] == 0).all()
    assert (values[:, 0] != 0).all()


def test_a_tree_that_is_a_leaf_is_all_bias() -> None:
    tree = TreeArrays()
    tree.leaf(0, 0.5, cover=10.0)
    alone = tree.finished()
    assert expected_margin(alone) == 0.5
    left = np.ones((3, 1), np.bool_)
    assert not contributions(alone, np.zeros(1, np.int64), left, 4).any()


def test_trees_add_up_each_to_its_own_margin() -> None:
    random = np.random.default_rng(2)
    trees = [grown(random, depth=3) for _ in range(4)]
    players = [random.integers(0, 3, len(tree)) for tree in trees]
    left = random.random((9, sum(map(len, trees)))) < 0.5
    shap = TreeShap.of(trees, players, 3, [0, 1, 0, 1])
    expected, start = np.zeros((9, 2, 3)), 0
    for number, tree in enumerate(trees):
        of_tree = left[:, start : start + len(tree)]
        expected[:, number % 2] += contributions(tree, players[number], of_tree, 3)
        start += len(tree)
    np.testing.assert_allclose(shap.values(left), expected, atol=1e-12)
    margins = [sum(expected_margin(tree) for tree in trees[output::2]) for output in (0, 1)]
    np.testing.assert_allclose(shap.expected, margins, atol=1e-12)


def test_rows_are_taken_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(3)
    tree = grown(random, depth=4)
    players, left = random.integers(0, 4, len(tree)), random.random((50, len(tree))) < 0.5
    at_once = contributions(tree, players, left, 4)
    monkeypatch.setattr("fedmq.boosting.model.contributions._MOST_NUMBERS", 100)
    np.testing.assert_array_equal(contributions(tree, players, left, 4), at_once)


def test_a_side_that_no_cover_went_has_values_that_add_up() -> None:
    tree = TreeArrays()
    left, right = tree.split(0, 0, 0, gain=1.0, cover=4.0)
    inner = tree.split(left, 0, 1, gain=1.0, cover=4.0)
    for node, weight, cover in ((inner[0], 1.0, 4.0), (inner[1], 2.0, 0.0), (right, 5.0, 0.0)):
        tree.leaf(node, weight, cover=cover)
    held = tree.finished()
    ways = np.array([[a, b, 0, 0, 0] for a in (False, True) for b in (False, True)], np.bool_)
    values = contributions(held, np.array([0, 1, 0, 0, 0]), ways, 2)
    np.testing.assert_allclose(values.sum(axis=1) + expected_margin(held), [5.0, 5.0, 2.0, 1.0])
