"""A sum of leaves tells which they are, where few combinations have it."""

from __future__ import annotations

import numpy as np
import pytest

from fedmq.leakage.attacks.leaves_from_scores import guessed_leaves, likeliest_leaves
from tests.how_often import each_seed


def leaves_of(trees: int, seed: int) -> tuple[list[np.ndarray], list[np.ndarray], list[int]]:
    """Weights of 30 bits, how much stood at each leaf, and somebody's leaves."""
    random = np.random.default_rng(seed)
    sizes = random.integers(1, 9, trees)
    weights = [random.integers(-(2**28), 2**28, size) // trees for size in sizes]
    covers = [random.random(size) + 0.05 for size in sizes]
    way = [int(random.choice(len(cover), p=cover / cover.sum())) for cover in covers]
    return weights, covers, way


def guessed(weights: list[np.ndarray], covers: list[np.ndarray], total: int) -> list[int]:
    return guessed_leaves([leaf[:, np.newaxis] for leaf in weights], covers, np.array([total]))


@each_seed(20)
@pytest.mark.parametrize("trees", [1, 2, 7])
def test_a_sum_of_few_trees_tells_all_leaves(trees: int, seed: int) -> None:
    weights, covers, way = leaves_of(trees, seed)
    total = sum(int(weight[leaf]) for weight, leaf in zip(weights, way, strict=True))
    assert guessed(weights, covers, total) == way


def test_of_equal_sums_the_likelier_leaves_are_guessed() -> None:
    weights = [np.array([1, 2]), np.array([2, 1])]
    covers = [np.array([0.9, 0.1]), np.array([0.8, 0.2])]
    assert guessed(weights, covers, 3) == [0, 0]
    assert guessed(weights, covers[::-1], 3) == [0, 0]
    assert guessed(weights, [cover[::-1] for cover in covers], 3) == [1, 1]


def test_a_sum_of_many_trees_tells_little_more_than_the_likeliest_leaves() -> None:
    right, likeliest, judged = 0, 0, 0
    for seed in range(30):
        weights, covers, way = leaves_of(60, seed)
        total = sum(int(weight[leaf]) for weight, leaf in zip(weights, way, strict=True))
        right += sum(np.equal(guessed(weights, covers, total), way))
        likeliest += sum(np.equal(likeliest_leaves(covers), way))
        judged += len(way)
    assert likeliest <= right <= likeliest + 0.05 * judged


def test_a_sum_that_no_leaves_have_is_guessed_all_the_same() -> None:
    weights = [np.array([10, 20]), np.array([1, 2])]
    covers = [np.array([0.5, 0.5])] * 2
    assert guessed(weights, covers, 100) == [1, 1]


def test_two_sums_tell_leaves_that_one_leaves_open() -> None:
    weights = [np.array([[1, 0], [1, 5]]), np.array([[2, 5], [2, 0], [3, 1]])]
    covers = [np.array([0.9, 0.1]), np.array([0.5, 0.3, 0.2])]
    one = [weight[:, :1] for weight in weights]
    assert guessed_leaves(one, covers, np.array([3])) == [0, 0]
    assert guessed_leaves(weights, covers, np.array([3, 0])) == [0, 1]
    assert guessed_leaves(weights, covers, np.array([3, 10])) == [1, 0]


def test_many_trees_are_told_apart_by_what_any_sum_says() -> None:
    random = np.random.default_rng(5)
    covers = [np.array([0.5, 0.5])] * 60
    weights = [np.array([[0, 0], [100, 0]]) for _ in range(60)]
    weights[7] = np.array([[0, 0], [0, 1000]])
    way = random.integers(0, 2, 60)
    total = sum(weight[leaf] for weight, leaf in zip(weights, way, strict=True))
    assert guessed_leaves(weights, covers, total)[7] == way[7]
