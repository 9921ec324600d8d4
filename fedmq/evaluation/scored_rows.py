"""Which rows are evaluated? Their labels, and what a model says of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import DataError

__all__ = ["Kind", "ScoredRows", "kind_of"]

Kind = Literal["binary", "classes", "regression"]
"""What a label is: 0 or 1, one of several classes, or a number."""


def kind_of(objective: str) -> Kind:
    """What the labels of ``objective`` are.

    Raises:
        DataError: they are neither numbers nor classes.
    """
    if objective.startswith("survival:"):
        raise DataError(f"a report of {objective} is not known: its labels are bounds of times")
    if objective.startswith("multi:"):
        return "classes"
    return "binary" if objective in ("binary:logistic", "reg:logistic") else "regression"


@dataclass(frozen=True, slots=True, eq=False)
class ScoredRows:
    """Rows by ``ids``: ``label`` float64 (rows,), ``score`` float64 (rows,) or (rows, classes).

    ``sets`` names the set of each row, such as "eval"; ``groups`` the group of each, if any.
    """

    ids: tuple[str, ...]
    sets: tuple[str, ...]
    label: NDArray[np.float64]
    score: NDArray[np.float64]
    groups: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def taken(self, rows: NDArray[np.integer]) -> Self:
        """These rows alone: by number, (n,)."""
        groups = None if self.groups is None else tuple(self.groups[row] for row in rows)
        return type(self)(
            tuple(self.ids[row] for row in rows),
            tuple(self.sets[row] for row in rows),
            self.label[rows],
            self.score[rows],
            groups,
        )

    def check(self, kind: Kind) -> None:
        """Raise DataError unless there is something to evaluate; the text says what is missing."""
        if not len(self):
            raise DataError("there are no rows to evaluate: nobody of them has label and score")
        if kind == "regression":
            return
        found: Sequence[float] = np.unique(self.label).tolist()
        if len(found) == 1:
            raise DataError(
                f"all {len(self):,} rows have the label {found[0]:g}; both are needed to tell how "
                "well a model parts them"
            )
        if kind == "binary" and not set(found) <= {0.0, 1.0}:
            odd = next(label for label in found if label not in (0.0, 1.0))
            raise DataError(f"label {odd:g}: 0 or 1 is needed")
        classes = self.score.shape[1] if self.score.ndim > 1 else 0
        if kind == "classes" and not set(found) <= set(range(classes)):
            odd = next(label for label in found if label not in range(classes))
            raise DataError(f"label {odd:g}: a class from 0 to {classes - 1} is needed")
