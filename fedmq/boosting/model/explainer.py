"""Who shares in a score, and how much? Shapley values of a model as its label holder serves it.

The players are what the label holder can tell apart: each of its own columns, each column of an
owner that shows which of its records share one, and any other owner as a whole. Where all owners
show that much, the values are XGBoost's ``pred_contribs``; otherwise those of the quotient game,
in which the columns of an owner come and go together (G. Owen, "Values of Games with A Priori
Unions", 1977), and not sums of XGBoost's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.contributions import TreeShap
from fedmq.boosting.model.served_forest import ServedForest
from fedmq.boosting.model.shown_columns import ShownColumns, text_of
from fedmq.boosting.model.tree import LABEL_HOLDER
from fedmq.boosting.objectives.registry import objective_of
from fedmq.errors import ConfigError

__all__ = ["Explainer", "Player"]


@dataclass(frozen=True, slots=True)
class Player:
    """A party, or one of its columns: by name the label holder's own, by number another's.

    ``text``: what its owner publishes of it.
    """

    party: str
    column: str | int | None
    text: str = ""

    def __str__(self) -> str:
        return self.party if self.column is None else f"{self.party}.{self.column}"


@dataclass(frozen=True, slots=True, eq=False)
class Explainer:
    """``players`` in the order of :meth:`contributions`, in which the bias comes last."""

    players: tuple[Player, ...]
    shap: TreeShap
    bias: NDArray[np.float64]
    base: NDArray[np.float64]
    """What of it is the base score's margin, (outputs,)."""

    @classmethod
    def of(
        cls,
        served: ServedForest,
        shown: Mapping[str, ShownColumns],
        texts: Mapping[str, str] | None = None,
    ) -> Self:
        """``shown`` by party; an owner that shows nothing is one player.

        ``texts``: the label holder's own reasons, by name of a column.

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
        own = np.flatnonzero(served.forest.owner == LABEL_HOLDER)
        player[own] = table.column_of[table.feature[served.forest.record[own]]]
        for owner, party in served.asked.items():
            nodes = np.flatnonzero(served.forest.owner == owner)
            first, columns = len(players), shown.get(party)
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
        """How many factors a row's values take: players on the ways to all leaves."""
        return len(self.shap.way)

    def contributions(
        self, left: NDArray[np.bool_], base_margin: NDArray[np.float32] | None = None
    ) -> NDArray[np.float32]:
        """What each player adds to the margins of rows: float32 (rows, outputs, players + 1).

        ``left`` (rows, nodes) is of :meth:`ServedForest.directions`. The bias, which comes last, is
        what rows get of which nothing is known; a row's values add up to its margins. Rows may
        start at a ``base_margin`` of their own, (rows,) or (rows, outputs).
        """
        values = np.zeros((len(left), len(self.bias), len(self.players) + 1), np.float32)
        found = self.shap.values(left)
        values[:, : found.shape[1], :-1] = found
        values[:, :, -1] = self.bias
        if base_margin is not None:
            values[:, :, -1] += base_margin.reshape(len(left), -1) - self.base
        return values
