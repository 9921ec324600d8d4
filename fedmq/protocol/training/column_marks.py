"""What does an owner show of the columns of its candidates, with the sums of a node?"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.splits import ColumnsInPath
from fedmq.protocol.training.candidate_constraints import shown_constraints
from fedmq.protocol.training.candidate_signs import shown_signs
from fedmq.protocol.training.column_constraints import KeptConstraints

__all__ = ["ColumnMarks"]


class ColumnMarks:
    """The marks of columns under constraints, while a tree grows."""

    def __init__(self, constraints: KeptConstraints) -> None:
        self._constraints = constraints
        self._columns = ColumnsInPath(constraints.interactions)

    def split(self, node: int, column: int) -> None:
        """One of the columns splits ``node``."""
        self._columns.split(node, column)

    def shown(self, node: int, columns: NDArray[np.int32]) -> dict[str, Any]:
        """Fields of the first piece of a reply about ``node``, whose candidates are of ``columns``.

        ``columns`` (candidates,) in the order in which candidates are shown.
        """
        kept = self._constraints
        marks: dict[str, Any] = {}
        if kept.signs.any():
            marks |= shown_signs(kept.signs[columns])
        if kept.count:
            shown = self._columns.of(node, columns)
            marks["constraints"] = shown_constraints(shown, kept.count)
        return marks
