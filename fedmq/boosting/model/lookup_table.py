"""What an owner keeps of its splits: feature, threshold and default direction by record id."""

from __future__ import annotations

from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, ConfigDict, model_validator

from fedmq.boosting.model.numpy_field import Bools, Float32s, Int32s
from fedmq.errors import DataError

__all__ = ["LookupTable"]


class LookupTable(BaseModel):
    """An owner's splits; a record id is a place in these vectors.

    ``x <= threshold`` goes left, NaN where ``default_left`` says. ``feature`` indexes
    ``feature_names``. A threshold of +inf sends every present value left, -inf none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    feature_names: tuple[str, ...]
    feature: Int32s
    threshold: Float32s
    default_left: Bools

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not len(self.feature) == len(self.threshold) == len(self.default_left):
            raise ValueError("vectors of a lookup table differ in length")
        if ((self.feature < 0) | (self.feature >= len(self.feature_names))).any():
            raise ValueError("a record names no feature")
        if np.isnan(self.threshold).any():
            raise ValueError("a threshold is not a number")
        return self

    @classmethod
    def empty(cls, feature_names: tuple[str, ...]) -> LookupTable:
        """A table without records."""
        return cls.model_validate(
            {"feature_names": feature_names, "feature": [], "threshold": [], "default_left": []}
        )

    def __len__(self) -> int:
        return len(self.feature)

    def appended(
        self, feature: ArrayLike, threshold: ArrayLike, default_left: ArrayLike
    ) -> LookupTable:
        """The table with further records, whose ids start at ``len(self)``; scalars or (n,)."""
        return LookupTable(
            feature_names=self.feature_names,
            feature=np.append(self.feature, np.asarray(feature, np.int32)),
            threshold=np.append(self.threshold, np.asarray(threshold, np.float32)),
            default_left=np.append(self.default_left, np.asarray(default_left, np.bool_)),
        )

    def directions(
        self, X: NDArray[np.float32], rows: NDArray[np.integer], records: NDArray[np.integer]
    ) -> NDArray[np.bool_]:
        """Whether ``X[rows[i]]`` goes left at ``records[i]``: bool, of the length of ``rows``.

        ``X`` is float32 (rows, features).

        Raises:
            DataError: the table lacks a record; the text names it.
        """
        foreign = (records < 0) | (records >= len(self))
        if foreign.any():
            raise DataError(
                f"record {int(records[foreign][0])} is not among the {len(self)} records of the "
                "lookup table; the parties hold shares of different models"
            )
        values = X[rows, self.feature[records]]
        left: NDArray[np.bool_] = values <= self.threshold[records]
        return np.where(np.isnan(values), self.default_left[records], left)

    def directions_at(
        self, X: NDArray[np.float32], rows: NDArray[np.integer], record: int
    ) -> NDArray[np.bool_]:
        """Whether ``X[rows[i]]`` goes left at the one ``record``, which the table has."""
        values = X[rows, self.feature[record]]
        left: NDArray[np.bool_] = values <= self.threshold[record]
        if self.default_left[record]:
            left |= np.isnan(values)
        return left
