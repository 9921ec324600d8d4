"""The arithmetic that inference machines order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.contributions import Explainer, Player
from fedmq.boosting.model.served_forest import ServedForest
from fedmq.boosting.model.tree import Forest, ShownColumns
from fedmq.boosting.objectives.registry import objective_of
from fedmq.boosting.params import TrainParams
from fedmq.messages.array import Bitmap

__all__ = ["ExplainRows", "Scores", "ShownRows", "SumLeaves"]


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """The scores of a batch's rows: float32 (rows,) each, NaN for a row without a score.

    With several classes, margins and probabilities are (rows, classes).

    ``unknown`` by party: the rows whose ids it does not know, bool (rows,). ``contributions``
    float32 (rows, outputs, players + 1): the contribution of each of ``players`` to the margin, the
    bias last; None without reasons.
    """

    margins: NDArray[np.float32]
    predictions: NDArray[np.float32]
    unknown: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    players: tuple[Player, ...] = ()
    contributions: NDArray[np.float32] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class SumLeaves:
    """Margins and predictions from the leaves (rows, trees) of all pairs.

    ``unknown`` as in :class:`Scores`; these rows get no score. ``base_margin``, float32 (rows,) or
    (rows, classes), is the start of rows instead of the base score.
    """

    label: ClassVar[str] = "SumLeaves"
    forest: Forest
    leaves: NDArray[np.int32]
    params: TrainParams
    unknown: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    base_margin: NDArray[np.float32] | None = None

    def run(self) -> Scores:
        objective = objective_of(self.params)
        if self.base_margin is not None:
            margins = self.forest.added(self.leaves, self.base_margin)
        else:
            assert self.params.base_score is not None  # of a finished model
            base = objective.first_margin(self.params.base_score)
            margins = self.forest.margins(self.leaves, base)
        predictions = objective.predictions(margins)
        for rows in self.unknown.values():
            margins[rows] = predictions[rows] = np.nan
        return Scores(margins, predictions, self.unknown)


@dataclass(frozen=True, slots=True, eq=False)
class ShownRows:
    """Some ``rows`` (int64), and their directions at all records of each owner, by its index."""

    rows: NDArray[np.int64]
    directions: Mapping[int, Bitmap]


@dataclass(frozen=True, slots=True, eq=False)
class ExplainRows:
    """Scores and contributions of rows with known directions at all splits.

    ``values`` (rows, features): the active party's own values. ``texts``: its reasons by column.
    ``columns``: the shown columns of other parties. Rows in no part get no score. ``base_margin``
    as in :class:`SumLeaves`.
    """

    label: ClassVar[str] = "ExplainRows"
    served: ServedForest
    values: NDArray[np.float32]
    parts: tuple[ShownRows, ...]
    columns: Mapping[str, ShownColumns]
    texts: Mapping[str, str]
    unknown: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    base_margin: NDArray[np.float32] | None = None

    def run(self) -> Scores:
        """As :class:`SumLeaves`, to the last bit.

        Raises:
            ConfigError: leaves are vectors.
        """
        explainer = Explainer.of(self.served, self.columns, self.texts)
        shaped_alike = self.served.scores(np.zeros((1, self.served.trees), np.int32))
        count = len(self.values)
        margins, predictions = (
            np.full((count, *scores.shape[1:]), np.nan, np.float32) for scores in shaped_alike
        )
        shape = (count, len(explainer.bias), len(explainer.players) + 1)
        contributions = np.full(shape, np.nan, np.float32)
        for part in self.parts:
            rows = part.rows
            bitmaps = {
                owner: bits.numpy().reshape(len(rows), -1)
                for owner, bits in part.directions.items()
            }
            left = self.served.directions(self.values[rows], bitmaps)
            first = None if self.base_margin is None else self.base_margin[rows]
            margins[rows], predictions[rows] = self.served.scores(self.served.leaves(left), first)
            contributions[rows] = explainer.contributions(left, first)
        return Scores(margins, predictions, self.unknown, explainer.players, contributions)
