"""The arithmetic that inference machines order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.changes import (
    Alternatives,
    Changed,
    ChangeRules,
    OfferedChanges,
    TargetScore,
    offered_changes,
    smallest_change,
)
from fedmq.boosting.model.contributions import Explainer, Player
from fedmq.boosting.model.served_forest import ServedForest
from fedmq.boosting.model.tree import ACTIVE_PARTY, DisclosedColumns, Forest, LookupTable
from fedmq.boosting.objectives.registry import objective_of
from fedmq.boosting.params import TrainParams
from fedmq.computation import computation
from fedmq.messages.array import Bitmap

__all__ = [
    "FoundChanges",
    "Scores",
    "ShownRows",
    "explain_rows",
    "find_changes",
    "offer_changes",
    "sum_leaves",
]


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """The scores of a batch's rows: float32 (rows,) each, NaN for a row without a score.

    With several classes, margins and probabilities are (rows, classes).

    ``unknown`` by party: the rows whose ids it does not know, bool (rows,); they may have a score
    if default directions are learned from such people. ``contributions``
    float32 (rows, outputs, players + 1): the contribution of each of ``players`` to the margin, the
    bias last; None without reasons.
    """

    margins: NDArray[np.float32]
    predictions: NDArray[np.float32]
    unknown: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    players: tuple[Player, ...] = ()
    contributions: NDArray[np.float32] | None = None

    def with_rows(self, rows: NDArray[np.int64], part: Scores) -> Scores:
        """These scores with those of the ``rows`` (n,) from ``part``, by another model.

        Such rows have no contributions.
        """
        margins, predictions = self.margins.copy(), self.predictions.copy()
        margins[rows], predictions[rows] = part.margins, part.predictions
        unknown = {party: mask.copy() for party, mask in self.unknown.items()}
        for party, mask in part.unknown.items():
            unknown.setdefault(party, np.zeros(len(margins), np.bool_))[rows[mask]] = True
        contributions = self.contributions
        if contributions is not None:
            contributions = contributions.copy()
            contributions[rows] = np.nan
        return replace(
            self,
            margins=margins,
            predictions=predictions,
            unknown=unknown,
            contributions=contributions,
        )


@computation("SumLeaves")
def sum_leaves(
    forest: Forest,
    leaves: NDArray[np.int32],
    params: TrainParams,
    unknown: Mapping[str, NDArray[np.bool_]],
    base_margin: NDArray[np.float32] | None = None,
) -> Scores:
    """Margins and predictions from the leaves (rows, trees) of all pairs.

    ``unknown``: rows by party that get no score, for the party does not know them. ``base_margin``,
    float32 (rows,) or (rows, classes), is the start of rows instead of the base score.
    """
    objective = objective_of(params)
    if base_margin is not None:
        margins = forest.added(leaves, base_margin)
    else:
        assert params.base_score is not None  # of a finished model
        base = objective.first_margin(params.base_score)
        margins = forest.margins(leaves, base)
    predictions = objective.predictions(margins)
    for rows in unknown.values():
        margins[rows] = predictions[rows] = np.nan
    return Scores(margins, predictions, unknown)


@dataclass(frozen=True, slots=True, eq=False)
class ShownRows:
    """Some ``rows`` (int64), and their directions at all records of each owner, by its index."""

    rows: NDArray[np.int64]
    directions: Mapping[int, Bitmap]


@computation("ExplainRows")
def explain_rows(
    served: ServedForest,
    values: NDArray[np.float32],
    parts: tuple[ShownRows, ...],
    columns: Mapping[str, DisclosedColumns],
    texts: Mapping[str, str],
    unknown: Mapping[str, NDArray[np.bool_]],
    base_margin: NDArray[np.float32] | None = None,
) -> Scores:
    """Scores and contributions of rows with known directions at all splits.

    ``values`` (rows, features): the active party's own values. ``texts``: its reasons by column.
    ``columns``: the shown columns of other parties. Rows in no part get no score. ``base_margin``
    as in :func:`sum_leaves`, and so are scores, to the last bit.

    Raises:
        ConfigError: leaves are vectors.
    """
    explainer = Explainer.of(served, columns, texts)
    shaped_alike = served.scores(np.zeros((1, served.trees), np.int32))
    count = len(values)
    margins, predictions = (
        np.full((count, *scores.shape[1:]), np.nan, np.float32) for scores in shaped_alike
    )
    shape = (count, len(explainer.bias), len(explainer.players) + 1)
    contributions = np.full(shape, np.nan, np.float32)
    for part in parts:
        rows = part.rows
        bitmaps = {
            owner: bits.numpy().reshape(len(rows), -1) for owner, bits in part.directions.items()
        }
        left = served.directions(values[rows], bitmaps)
        first = None if base_margin is None else base_margin[rows]
        margins[rows], predictions[rows] = served.scores(served.leaves(left), first)
        contributions[rows] = explainer.contributions(left, first)
    return Scores(margins, predictions, unknown, explainer.players, contributions)


@dataclass(frozen=True, slots=True)
class FoundChanges:
    """The ``score`` of a person now, and by owner its smallest change, None if it has none.

    ``own``: the active party's change in words. A score that is ``reached`` takes no change.
    """

    score: float
    reached: bool
    changed: Mapping[int, Changed | None]
    own: tuple[tuple[str, str], ...] = ()


@computation("OfferChanges")
def offer_changes(
    table: LookupTable, records: int, row: NDArray[np.float32], rules: ChangeRules
) -> OfferedChanges:
    """What a passive party could change for a person: see :func:`offered_changes`."""
    return offered_changes(table, records, row, rules)


@computation("FindChanges")
def find_changes(
    served: ServedForest,
    row: NDArray[np.float32],
    directions: Mapping[int, Bitmap],
    rules: ChangeRules,
    offered: Mapping[int, Alternatives],
    target: TargetScore,
) -> FoundChanges:
    """By owner, the active party first, the smallest change with which a person reaches ``target``.

    ``row`` (1, features): the active party's own values. ``directions``: those of the person at
    all records of each other owner, by its index; ``offered``: by the index of who offers any.

    Raises:
        DataError: a rule names an order of categories.
    """
    bitmaps = {owner: bits.numpy().reshape(1, -1) for owner, bits in directions.items()}
    left = served.directions(row, bitmaps)
    score = served.scores(served.leaves(left))[1]
    if target.reached(score)[0]:
        return FoundChanges(float(score[0]), True, {})
    records = len(served.node_of[ACTIVE_PARTY])
    own = offered_changes(served.share.lookup_table, records, row[0], rules)
    changed = {
        owner: smallest_change(served, left[0], owner, alternatives, target)
        for owner, alternatives in {ACTIVE_PARTY: own.alternatives, **offered}.items()
    }
    first = changed[ACTIVE_PARTY]
    numbers = () if first is None else first.numbers
    told = tuple(own.told[number] for number in numbers)
    return FoundChanges(float(score[0]), False, changed, told)
