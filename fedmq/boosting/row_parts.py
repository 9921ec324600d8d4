"""A table in parts of rows: sums of integers over them add up to those of the whole."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from fedmq.computation import Computation, Parts, Rows

__all__ = ["FEWEST_ROWS", "RowPart", "row_parts", "summed"]

FEWEST_ROWS = 2**15
"""Fewer rows are summed sooner than several machines are asked."""


_Bins = TypeVar("_Bins")


@dataclass(frozen=True, slots=True, eq=False)
class RowPart:
    """The rows from ``first`` to before ``stop``."""

    first: int
    stop: int

    def bins(self, bins: _Bins) -> _Bins:
        """These rows of a matrix of bins."""
        whole = cast("Any", bins)
        return cast("_Bins", replace(whole, codes=self.of(whole.codes)))

    def of(self, array: NDArray[Any]) -> NDArray[Any]:
        """These rows of ``array``."""
        return cast("NDArray[Any]", Rows(array, self.first, self.stop))

    def nodes(self, nodes: Sequence[NDArray[Any]]) -> list[NDArray[np.int32]]:
        """The rows of each node that lie here, counted from ``first``."""
        held = [rows[(rows >= self.first) & (rows < self.stop)] for rows in nodes]
        return [(rows - self.first).astype(np.int32) for rows in held]


def row_parts(
    parts: int,
    rows: int,
    of_part: Callable[[RowPart], Computation],
    join: Callable[[Sequence[Any]], Any],
) -> Parts | None:
    """The computations of ``parts`` of the ``rows`` of a table; None for few rows."""
    if rows < FEWEST_ROWS:
        return None
    edges = np.linspace(0, rows, parts + 1).astype(int).tolist()
    return Parts([of_part(RowPart(*ends)) for ends in pairwise(edges)], join)


def summed(sums: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Sums over parts, added up."""
    total: NDArray[np.int64] = np.add.reduce(sums)
    return total
