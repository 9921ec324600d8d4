"""The tables that a training begins with, one per side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.objectives.custom import CustomMetric
from fedmq.boosting.objectives.objective import Objective
from fedmq.errors import ConfigError, DataError, Refused
from fedmq.messages.training import MOST_ROWS, TrainingOpen
from fedmq.privacy.engine import Engine
from fedmq.protocol.records import PassiveTree, RowSet

__all__ = ["SCORED", "ActiveTable", "Fold", "PassiveTable"]

SCORED = "test"
"""The set that the rows to score of a fold are, as ``xgb.cv`` names it."""

_ALIGN = "find the people that all share with: fedmq align"


@dataclass(frozen=True, slots=True, eq=False)
class Fold:
    """One of a cross-validation: rows to learn from, and rows to score, both bool (rows,)."""

    learning: NDArray[np.bool_]
    scored: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class ActiveTable:
    """The active party's rows, in the common order.

    ``values`` float32 (rows, features), NaN is missing; ``label`` float32 (rows,), or (rows, 2)
    for bounds of times; ``evaluation`` bool (rows,): rows that are scored but not learned from, and
    ``evaluation_sets`` how they are divided, "eval" being all of them where nothing is given;
    ``weight`` float32 (rows,): how often each row counts; ``base_margin`` float32 (rows,): where
    each row starts instead of at the base score; ``objective`` and ``metric``: a caller's own, the
    first in place of the one that parameters name. None of them leaves this party.
    ``held_out_ids`` are the ids of the rows of ``evaluation``, for whoever evaluates the model;
    with ``folds`` those of all other rows.
    ``alignment``: what tells the common rows from others, empty where rows are matched by position;
    it is that of the stored alignment ``alignment_name``, if there is one. ``digest`` tells this
    table from any other, and never leaves its party; empty where no session outlives a crash.
    ``signs``: 1 or -1 of columns that may only raise the prediction, or only lower it.
    ``column_groups``: columns by the names that interaction constraints may give them together.
    ``folds``: a model for each of them is trained and scored, in place of one of all rows; those of
    ``evaluation`` are in none.
    ``category_columns``: the features of each column of categories, 1 where a row has it, else 0.
    Raises `DataError` for more rows than a training takes.
    """

    values: NDArray[np.float32]
    features: tuple[str, ...]
    label: NDArray[np.float32]
    evaluation: NDArray[np.bool_]
    alignment: str = ""
    alignment_name: str = ""
    digest: str = ""
    signs: Mapping[str, int] = field(default_factory=dict)
    weight: NDArray[np.float32] | None = None
    base_margin: NDArray[np.float32] | None = None
    objective: Objective | None = None
    metric: CustomMetric | None = None
    evaluation_sets: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    held_out_ids: tuple[str, ...] = ()
    column_groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    folds: tuple[Fold, ...] = ()
    category_columns: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.evaluation_sets and self.evaluation.any():
            object.__setattr__(self, "evaluation_sets", {"eval": self.evaluation})
        if len(self.label) > MOST_ROWS:
            raise DataError(
                f"{len(self.label):,} rows; a training takes {MOST_ROWS:,} at most: draw some"
            )

    @property
    def turns(self) -> int:
        """How many models grow on it in turns."""
        return max(1, len(self.folds))

    def of_fold(self, fold: Fold) -> Self:
        """The table from which the model of ``fold`` is trained."""
        return replace(
            self,
            evaluation=~fold.learning,
            evaluation_sets={SCORED: fold.scored},
            held_out_ids=(),
            folds=(),
        )

    def check_engine(self, engine: Engine) -> None:
        """Raise `ConfigError` where ``engine`` cannot train on these rows."""
        if self.objective is not None and not engine.traits.takes_weights:
            raise ConfigError(
                f"engine {engine.name}: obj may give larger gradients than it is meant for"
            )
        if self.weight is not None and not engine.traits.takes_weights:
            raise ConfigError(
                f"engine {engine.name}: weights make gradients larger than it is meant for; leave "
                "weight out"
            )


@dataclass(frozen=True, slots=True)
class PassiveTable:
    """A passive party's rows, in the common order.

    ``values`` float32 (rows, features), NaN is missing; ``alignment``: what tells the common
    rows from others, empty where rows are matched by position; ``digest``, ``signs`` and
    ``column_groups`` and ``category_columns`` as in :class:`ActiveTable`; ``row_set``: whom it is
    about, None where nobody counts what is answered.
    """

    values: NDArray[np.float32]
    features: tuple[str, ...]
    alignment: str = ""
    digest: str = ""
    row_set: RowSet | None = None
    signs: Mapping[str, int] = field(default_factory=dict)
    column_groups: Mapping[str, Sequence[str]] = field(default_factory=dict)
    category_columns: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def check(
        self, party: str, peer: str, terms: TrainingOpen, saved: Sequence[PassiveTree]
    ) -> None:
        """Raise `Refused` unless ``party`` can train with ``peer`` on it, and go on ``saved``."""
        rows = len(self.values)
        if terms.alignment_name and terms.alignment != self.alignment:
            raise Refused(
                f"alignment {terms.alignment_name!r} of {party} is another one than that of "
                f"{peer}; make it anew with: fedmq align"
            )
        if terms.rows != rows or terms.evaluation.count != rows:
            raise Refused(
                f"the rows do not match: {party} holds {rows}, {peer} {terms.rows}; {_ALIGN}"
            )
        if terms.alignment != self.alignment:
            raise Refused(
                f"the ids do not match: {party} and {peer} hold {rows} rows each, "
                f"but not the same ids; {_ALIGN}"
            )
        for tree in saved:
            if tree.records.feature_names != self.features:
                raise Refused(f"the columns of {party} have changed since the session began")
            if tree.table and tree.table != self.digest:
                raise Refused(
                    f"the table of {party} has other values than when the session began, so "
                    "the session has ended; train anew with: fedmq train"
                )
