"""What did each player add to the margin of a row? Shapley values of trees.

S. M. Lundberg, G. Erion, S.-I. Lee, "Consistent Individualized Feature Attribution for Tree
Ensembles" (2018), Algorithm 2: path-dependent TreeSHAP, as XGBoost's ``pred_contribs``. A player
is whatever owns splits together: a feature, or a party with all of its features.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import comb

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.tree import Tree

__all__ = ["expected_margin", "tree_contributions"]


@dataclass(frozen=True, slots=True, eq=False)
class _Path:
    """The way to a leaf: by player the share of the training's cover that goes it, and its steps.

    A step is a node and whether the way turns left there.
    """

    weight: float
    shares: dict[int, float]
    steps: dict[int, tuple[tuple[int, bool], ...]]


def expected_margin(tree: Tree) -> float:
    """What ``tree`` adds to a row of which nothing is known: the mean leaf weight by cover."""
    return _means(tree)[0]


def tree_contributions(
    tree: Tree, players: NDArray[np.integer], left: NDArray[np.bool_], n_players: int
) -> NDArray[np.float64]:
    """The Shapley values of a tree: float64 (rows, players).

    ``players`` (nodes,) has each split's player, which means nothing at leaves; ``left`` (rows,
    nodes) which rows go left at each split. The values of a row and `expected_margin` add up to
    the weight of its leaf.
    """
    values = np.zeros((len(left), n_players))
    for path in _paths(tree, players):
        present = np.column_stack(
            [
                np.logical_and.reduce([left[:, node] == turn for node, turn in steps])
                for steps in path.steps.values()
            ]
        )
        # Rows that agree with the path at the same players share their values.
        codes = present @ (1 << np.arange(present.shape[1]))
        _, first, kind = np.unique(codes, return_index=True, return_inverse=True)
        shares = np.array(list(path.shares.values()))
        by_kind = path.weight * _shapley(shares, present[first].astype(np.float64))
        values[:, list(path.steps)] += by_kind[kind.reshape(-1)]
    return values


def _shapley(shares: NDArray[np.float64], present: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of the game prod(present of those who join) x prod(shares of the others).

    ``shares`` (players,), ``present`` (kinds, players) of 0 and 1; float64 (kinds, players).
    """
    count = len(shares)
    # So much counts a coalition of each size that a player joins.
    weights = np.array([1 / (count * comb(count - 1, size)) for size in range(count)])
    values = np.empty_like(present)
    for player in range(count):
        sizes = np.zeros_like(present)  # the others' product, by how many of them have joined
        sizes[:, 0] = 1
        for other in range(count):
            if other != player:
                joined = sizes * present[:, other, None]
                sizes *= shares[other]
                sizes[:, 1:] += joined[:, :-1]
        values[:, player] = (present[:, player] - shares[player]) * (sizes @ weights)
    return values


def _paths(tree: Tree, players: NDArray[np.integer]) -> Iterator[_Path]:
    """The ways to all leaves, from the root; a tree that is a leaf alone has none."""
    waiting: list[tuple[int, _Path]] = [(0, _Path(0.0, {}, {}))]
    while waiting:
        node, path = waiting.pop()
        if tree.is_leaf[node]:
            if path.steps:
                yield _Path(float(tree.weight[node]), path.shares, path.steps)
            continue
        player = int(players[node])
        for child, turn in ((tree.left[node], True), (tree.right[node], False)):
            share = float(tree.cover[child]) / float(tree.cover[node])
            shares = path.shares | {player: path.shares.get(player, 1.0) * share}
            steps = path.steps | {player: (*path.steps.get(player, ()), (node, turn))}
            waiting.append((int(child), _Path(0.0, shares, steps)))


def _means(tree: Tree) -> list[float]:
    """The mean leaf weight below each node, by cover."""
    means = [float(weight) for weight in tree.weight]
    for node in reversed(range(len(tree))):
        if not tree.is_leaf[node]:
            left, right = int(tree.left[node]), int(tree.right[node])
            covers = float(tree.cover[left]), float(tree.cover[right])
            total = covers[0] * means[left] + covers[1] * means[right]
            means[node] = total / float(tree.cover[node])
    return means
