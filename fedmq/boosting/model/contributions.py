"""What did each player add to the margin of a row? Shapley values of trees.

Path-dependent TreeSHAP (S. M. Lundberg, G. Erion, S.-I. Lee, "Consistent Individualized Feature
Attribution for Tree Ensembles", 2018), as XGBoost's ``pred_contribs``. A player owns splits: a
feature, or a party with all of its features.

On the path to a leaf of weight w, player i has the share z_i of the training's cover that follows
it, and o_i is 1 if the row follows it, else 0. A Shapley weight is an Euler integral, so the values
of a leaf's game are

    phi_i = w (o_i - z_i) * integral over t from 0 to 1 of prod over j != i of (z_j (1 - t) + o_j t)

whose polynomial a Gauss-Legendre rule of half as many points as there are players sums exactly.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.served_forest import ServedForest
from fedmq.boosting.model.tree import ACTIVE_PARTY, DisclosedColumns, Tree, text_of
from fedmq.boosting.objectives.registry import objective_of
from fedmq.errors import ConfigError

__all__ = ["Explainer", "Player", "TreeShap", "expected_margin"]

_MOST_NUMBERS = 2**20
"""The most numbers of an array: rows are taken in parts."""


@dataclass(frozen=True, slots=True)
class _Path:
    """The path to a leaf: by player the share of training cover that follows it, and its steps.

    A step is a node and whether the path turns left there.
    """

    weight: float
    shares: dict[int, float]
    steps: dict[int, tuple[tuple[int, bool], ...]]


@dataclass(frozen=True, slots=True, eq=False)
class TreeShap:
    """The paths to all leaves of some trees, concatenated: made once, for any rows.

    A path has a factor for each of its players, a factor has a step for each of the player's nodes.
    ``step_node`` (steps,) counts nodes through all trees; ``first_step`` (factors,) and
    ``first_factor`` (paths,) say where those of a factor or path begin. ``order`` sorts factors by
    ``targets``, outputs * players + player, whose first ones stand at ``first_of_target``.
    ``expected`` (outputs,): the margin of a row without known values.
    """

    players: int
    step_node: NDArray[np.intp]
    step_left: NDArray[np.bool_]
    first_step: NDArray[np.intp]
    share: NDArray[np.float64]
    way: NDArray[np.intp]
    first_factor: NDArray[np.intp]
    weight: NDArray[np.float64]
    order: NDArray[np.intp]
    targets: NDArray[np.intp]
    first_of_target: NDArray[np.intp]
    expected: NDArray[np.float64]
    points: NDArray[np.float64]
    point_weights: NDArray[np.float64]

    @classmethod
    def of(
        cls,
        trees: Sequence[Tree],
        players: Sequence[NDArray[np.integer]],
        n_players: int,
        outputs: Sequence[int] | None = None,
    ) -> Self:
        """Make the paths; ``players`` (nodes,) by tree own its splits, and are ignored at leaves.

        ``outputs``: the margin to which each tree adds; left out, all add to one.
        """
        of_tree = list(outputs) if outputs is not None else [0] * len(trees)
        expected = np.zeros(max(of_tree, default=0) + 1)
        steps: list[tuple[int, bool]] = []
        first_step: list[int] = []
        shares: list[float] = []
        targets: list[int] = []
        ways: list[int] = []
        first_factor: list[int] = []
        weights: list[float] = []
        root = 0
        for tree, owners, output in zip(trees, players, of_tree, strict=True):
            expected[output] += expected_margin(tree)
            for path in _paths(tree, owners):
                first_factor.append(len(shares))
                for player, turns in path.steps.items():
                    ways.append(len(weights))
                    shares.append(path.shares[player])
                    targets.append(output * n_players + player)
                    first_step.append(len(steps))
                    steps += [(root + node, turn) for node, turn in turns]
                weights.append(path.weight)
            root += len(tree)
        most = int(np.diff([*first_factor, len(shares)]).max(initial=1))
        points, point_weights = np.polynomial.legendre.leggauss((most + 1) // 2)
        order = np.argsort(targets, kind="stable").astype(np.intp)
        sorted_targets, first = np.unique(np.array(targets, np.intp)[order], return_index=True)
        way = np.array(ways, np.intp)
        return cls(
            n_players,
            np.array([node for node, _ in steps], np.intp),
            np.array([turn for _, turn in steps], np.bool_),
            np.array(first_step, np.intp),
            np.array(shares, np.float64),
            way,
            np.array(first_factor, np.intp),
            np.array(weights, np.float64)[way],
            order,
            sorted_targets,
            first,
            expected,
            (points + 1) / 2,
            point_weights / 2,
        )

    def values(self, left: NDArray[np.bool_]) -> NDArray[np.float64]:
        """The Shapley values of rows: float64 (rows, outputs, players).

        ``left`` (rows, nodes of all trees): which rows go left at each split. The values of a row
        and ``expected`` add up to the weights of its leaves.
        """
        values = np.zeros((len(left), len(self.expected) * self.players))
        if len(self.way):
            most = max(1, _MOST_NUMBERS // len(self.way))
            for start in range(0, len(left), most):
                rows = slice(start, start + most)
                values[rows, self.targets] = self._of_some(left[rows])
        return values.reshape(len(left), len(self.expected), self.players)

    def _of_some(self, left: NDArray[np.bool_]) -> NDArray[np.float64]:
        goes = left[:, self.step_node] == self.step_left
        goes = np.logical_and.reduceat(goes, self.first_step, axis=1)
        integral = np.zeros(goes.shape)
        for point, weight in zip(self.points, self.point_weights, strict=True):
            others = self.share * (1 - point)
            factor = np.where(goes, others + point, others)
            product = np.multiply.reduceat(factor, self.first_factor, axis=1)[:, self.way]
            # A factor is zero where neither cover nor the row follows the path: it adds nothing.
            np.divide(weight * product, factor, out=product, where=factor > 0)
            integral += product
        integral *= (goes - self.share) * self.weight
        return np.add.reduceat(integral[:, self.order], self.first_of_target, axis=1)


def expected_margin(tree: Tree) -> float:
    """The mean leaf weight by cover: a tree's addition to a row without known values."""
    means = [float(weight) for weight in tree.weight]
    for node in reversed(range(len(tree))):
        if not tree.is_leaf[node]:
            left, right = int(tree.left[node]), int(tree.right[node])
            shares = _share(tree, node, left), _share(tree, node, right)
            means[node] = shares[0] * means[left] + shares[1] * means[right]
    return means[0]


def _paths(tree: Tree, players: NDArray[np.integer]) -> Iterator[_Path]:
    """The paths to all leaves, from the root; none in a tree of a single leaf."""
    waiting: list[tuple[int, _Path]] = [(0, _Path(0.0, {}, {}))]
    while waiting:
        node, path = waiting.pop()
        if tree.owner[node] < 0:
            if path.steps:
                yield _Path(float(tree.weight[node]), path.shares, path.steps)
            continue
        player = int(players[node])
        for child, turn in ((int(tree.left[node]), True), (int(tree.right[node]), False)):
            share = path.shares.get(player, 1.0) * _share(tree, node, child)
            shares = path.shares | {player: share}
            steps = path.steps | {player: (*path.steps.get(player, ()), (node, turn))}
            waiting.append((child, _Path(0.0, shares, steps)))


def _share(tree: Tree, node: int, child: int) -> float:
    """The share of the cover of ``node`` that goes to its ``child``."""
    cover = float(tree.cover[node])
    return float(tree.cover[child]) / cover if cover else 0.5


@dataclass(frozen=True, slots=True)
class Player:
    """A party, or one of its columns: the active party's by name, another party's by number.

    ``text``: the owner's published text about it.
    """

    party: str
    column: str | int | None
    text: str = ""

    def __str__(self) -> str:
        return self.party if self.column is None else f"{self.party}.{self.column}"


@dataclass(frozen=True, slots=True, eq=False)
class Explainer:
    """Shapley values of a model that its active party serves: each player's part in a score.

    ``players`` are in the order of :meth:`contributions`, which adds the bias last. The active
    party tells these apart: each of its own columns, each column of an owner that shows which of
    its records share a column, and any other owner as a whole. If all owners show that, the values
    are XGBoost's ``pred_contribs``. Otherwise they are those of the quotient game, in which the
    columns of an owner come and go together (G. Owen, "Values of Games with A Priori Unions",
    1977), and not sums of XGBoost's.
    """

    players: tuple[Player, ...]
    shap: TreeShap
    bias: NDArray[np.float64]
    base: NDArray[np.float64]
    """The base score's part of it, as a margin: (outputs,)."""

    @classmethod
    def of(
        cls,
        served: ServedForest,
        disclosed: Mapping[str, DisclosedColumns],
        texts: Mapping[str, str] | None = None,
    ) -> Self:
        """Make the explainer.

        ``disclosed``: by party; an owner that discloses nothing is one player.
        ``texts``: the active party's own reasons, by name of a column.

        Raises:
            ConfigError: leaves are vectors.
        """
        share = served.share
        if share.params.vector_outputs > 1:
            raise ConfigError("trees of vector leaves have no contributions, in XGBoost neither")
        table = share.lookup_table
        players = [
            Player(share.parties[0], name, text_of(name, texts or {})) for name in table.columns
        ]
        player = np.zeros(len(served.forest.owner), np.intp)
        own = np.flatnonzero(served.forest.owner == ACTIVE_PARTY)
        player[own] = table.column_of[table.feature[served.forest.record[own]]]
        for owner, party in served.asked.items():
            nodes = np.flatnonzero(served.forest.owner == owner)
            first, columns = len(players), disclosed.get(party)
            if columns is None:
                player[nodes] = first
                players.append(Player(party, None))
                continue
            player[nodes] = first + columns.column[served.forest.record[nodes]]
            players += [Player(party, number, text) for number, text in enumerate(columns.texts)]
        trees = share.used_trees
        outputs = [share.params.output_of(number) for number in range(len(trees))]
        by_tree = np.split(player, served.forest.roots[1:])
        shap = TreeShap.of(trees, by_tree if trees else [], len(players), outputs)
        bias = np.zeros(share.params.outputs)
        bias += objective_of(share.params).first_margin(share.base_score)
        base = bias.copy()
        bias[: len(shap.expected)] += shap.expected
        return cls(tuple(players), shap, bias, base)

    @property
    def factors(self) -> int:
        """The number of factors of a row's values: players on the paths to all leaves."""
        return len(self.shap.way)

    def contributions(
        self, left: NDArray[np.bool_], base_margin: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """Each player's addition to the margins of rows: float32 (rows, outputs, players + 1).

        ``left`` (rows, nodes) is of :meth:`ServedForest.directions`. The bias comes last, the
        margin of a row without known values; a row's values add up to its margins. Rows may start
        at a ``base_margin`` of their own, (rows,) or (rows, outputs).
        """
        values = np.zeros((len(left), len(self.bias), len(self.players) + 1), np.float32)
        found = self.shap.values(left)
        values[:, : found.shape[1], :-1] = found
        values[:, :, -1] = self.bias
        if base_margin is not None:
            values[:, :, -1] += base_margin.reshape(len(left), -1) - self.base
        return values
