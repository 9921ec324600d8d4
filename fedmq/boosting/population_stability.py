"""How far has a column moved? Counts in bins, and the population stability index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

__all__ = ["BinnedColumn", "binned_columns", "stability_index"]

_BINS = 10


class BinnedColumn(BaseModel):
    """A column in bins; the last bin counts missing values.

    Bin i counts the values up to ``edges[i]`` (ascending) and above the edge before; the last but
    one counts the values beyond all edges. ``counts``: rows by bin.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    edges: tuple[float, ...]
    counts: tuple[Annotated[int, Field(ge=0)], ...]

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if len(self.counts) != len(self.edges) + 2:
            raise ValueError("bins and edges differ in number")
        return self

    @classmethod
    def of(cls, name: str, values: NDArray[np.float32]) -> Self:
        """``values`` (rows,) cut at their tenths; equal tenths merge."""
        present = values[~np.isnan(values)]
        edges = np.empty(0, np.float32)
        if len(present):
            shares = np.arange(1, _BINS) / _BINS
            edges = np.unique(np.quantile(present, shares, method="lower"))
            edges = edges[edges < present.max()]
        empty = cls(name=name, edges=tuple(edges.tolist()), counts=(0,) * (len(edges) + 2))
        return empty.model_copy(update={"counts": tuple(empty.count(values).tolist())})

    def count(self, values: NDArray[np.float32]) -> NDArray[np.int64]:
        """How many of ``values`` (rows,) fall into each bin."""
        bins = np.searchsorted(np.asarray(self.edges, np.float32), values, side="left")
        bins[np.isnan(values)] = len(self.edges) + 1
        return np.bincount(bins, minlength=len(self.counts))


def binned_columns(names: Sequence[str], values: NDArray[np.float32]) -> tuple[BinnedColumn, ...]:
    """The columns of ``values``, float32 (rows, columns)."""
    return tuple(BinnedColumn.of(name, values[:, at]) for at, name in enumerate(names))


def stability_index(before: Sequence[int], now: NDArray[np.int64]) -> float:
    """The population stability index of two counts by bin: sum of (q - p) ln(q / p).

    Half a row is added to each bin, so that an empty bin gives no infinity.
    """
    p, q = np.asarray(before, np.float64) + 0.5, now + 0.5
    p, q = p / p.sum(), q / q.sum()
    return float(((q - p) * np.log(q / p)).sum())
