"""What does an owner keep of its splits, and what does it show of their columns?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from fedmq.boosting.model.numpy_field import Bools, Float32s, Int32s
from fedmq.errors import DataError

__all__ = ["Agreed", "Explain", "LookupTable", "ShownColumns", "text_of"]

_Features = tuple[Annotated[int, Field(ge=0)], ...]


class LookupTable(BaseModel):
    """An owner's splits; a record id is a place in these vectors.

    ``x <= threshold`` goes left, NaN where ``default_left`` says. ``feature`` indexes
    ``feature_names``. A threshold of +inf sends every present value left, -inf none.
    ``category_sets``: of a record that splits by a set of categories, the features of those that go
    right; nothing of the others, and empty where there are no such records. ``category_columns``:
    the features of each column that may be split so, by its name: first those whose category some
    training row has. A document without such columns has neither.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    feature_names: tuple[str, ...]
    feature: Int32s
    threshold: Float32s
    default_left: Bools
    category_sets: tuple[_Features, ...] = ()
    category_columns: Mapping[str, _Features] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not len(self.feature) == len(self.threshold) == len(self.default_left):
            raise ValueError("vectors of a lookup table differ in length")
        if self.category_sets and len(self.category_sets) != len(self):
            raise ValueError("sets of categories and records differ in number")
        if ((self.feature < 0) | (self.feature >= len(self.feature_names))).any():
            raise ValueError("a record names no feature")
        named = (*self.category_sets, *self.category_columns.values())
        if any(feature >= len(self.feature_names) for features in named for feature in features):
            raise ValueError("a set of categories names no feature")
        if np.isnan(self.threshold).any():
            raise ValueError("a threshold is not a number")
        return self

    @model_serializer(mode="wrap")
    def _without_nothing(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Tables without sets of categories are written as before there were any."""
        document: dict[str, Any] = handler(self)
        for name in ("category_sets", "category_columns"):
            if not document.get(name):
                document.pop(name, None)
        return document

    @classmethod
    def empty(cls, feature_names: tuple[str, ...]) -> LookupTable:
        """A table without records."""
        return cls.model_validate(
            {"feature_names": feature_names, "feature": [], "threshold": [], "default_left": []}
        )

    def __len__(self) -> int:
        return len(self.feature)

    @property
    def columns(self) -> Mapping[str, tuple[int, ...]]:
        """The features of each column by its name: one, or those of all its categories."""
        first = {min(features): name for name, features in self.category_columns.items()}
        held = {feature for features in self.category_columns.values() for feature in features}
        columns: dict[str, tuple[int, ...]] = {}
        for place, name in enumerate(self.feature_names):
            if place in first:
                columns[first[place]] = self.category_columns[first[place]]
            elif place not in held:
                columns[name] = (place,)
        return columns

    @property
    def column_of(self) -> NDArray[np.int32]:
        """Of each feature the place of its column among ``columns``; int32 (features,)."""
        places = np.empty(len(self.feature_names), np.int32)
        for place, features in enumerate(self.columns.values()):
            places[list(features)] = place
        return places

    def appended(
        self,
        feature: ArrayLike,
        threshold: ArrayLike,
        default_left: ArrayLike,
        category_sets: Sequence[tuple[int, ...]] = (),
    ) -> LookupTable:
        """The table with further records, whose ids start at ``len(self)``; scalars or (n,).

        ``category_sets``: of each of them, or of none.
        """
        features = np.append(self.feature, np.asarray(feature, np.int32))
        sets = self.category_sets
        if sets or any(category_sets):
            none: tuple[int, ...] = ()
            later = category_sets or (none,) * (len(features) - len(self))
            sets = (*(sets or (none,) * len(self)), *later)
        return LookupTable(
            feature_names=self.feature_names,
            feature=features,
            threshold=np.append(self.threshold, np.asarray(threshold, np.float32)),
            default_left=np.append(self.default_left, np.asarray(default_left, np.bool_)),
            category_sets=sets,
            category_columns=self.category_columns,
        )

    def followed_by(self, later: LookupTable) -> LookupTable:
        """The table with the records of ``later``, of the same features, after its own."""
        table = self.appended(
            later.feature, later.threshold, later.default_left, later.category_sets
        )
        columns = {**later.category_columns, **self.category_columns}
        return table.model_copy(update={"category_columns": columns})

    def since(self, start: int) -> LookupTable:
        """The records from ``start`` on, as a table of their own."""
        sets = self.category_sets[start:]
        return LookupTable(
            feature_names=self.feature_names,
            feature=self.feature[start:],
            threshold=self.threshold[start:],
            default_left=self.default_left[start:],
            category_sets=sets if any(sets) else (),
            category_columns=self.category_columns,
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
        if self.category_sets:
            for record in np.unique(records).tolist():
                if self.category_sets[record]:
                    here = records == record
                    left[here] = self.directions_at(X, rows[here], record)
        return np.where(np.isnan(values), self.default_left[records], left)

    def directions_at(
        self, X: NDArray[np.float32], rows: NDArray[np.integer], record: int
    ) -> NDArray[np.bool_]:
        """Whether ``X[rows[i]]`` goes left at the one ``record``, which the table has."""
        values = X[rows, self.feature[record]]
        left: NDArray[np.bool_] = values <= self.threshold[record]
        if self.category_sets and (right := self.category_sets[record]):
            left = ~np.isnan(values) & ~(X[rows[:, np.newaxis], list(right)] > 0).any(axis=1)
        if self.default_left[record]:
            left |= np.isnan(values)
        return left


Explain = Literal["none", "party", "column"]
"""What reasons may say of an owner's part in a score: nothing, the party's as a whole, or that of
each of its columns, which have numbers and no names."""


class ShownColumns(BaseModel):
    """``column`` int32 (records,): the number of each record's column, in the order of first use.

    ``texts`` by column: what its owner publishes as the reason; "" where it publishes nothing.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    column: Int32s
    texts: tuple[str, ...]

    @model_validator(mode="after")
    def _numbered_by_first_use(self) -> Self:
        first = np.unique(self.column, return_index=True)
        in_order = np.array_equal(first[0], np.arange(len(self.texts)))
        if not in_order or (np.diff(first[1]) < 0).any():
            raise ValueError("columns are not numbered from 0 in the order of their first use")
        return self

    @classmethod
    def of(cls, table: LookupTable, records: int, texts: Mapping[str, str]) -> Self:
        """Of the first ``records`` of ``table``; ``texts`` by name of a column."""
        columns, column_of = tuple(table.columns), table.column_of
        used, first, inverse = np.unique(
            column_of[table.feature[:records]], return_index=True, return_inverse=True
        )
        number = np.empty(len(used), np.int32)
        number[np.argsort(first)] = np.arange(len(used), dtype=np.int32)
        names = [columns[column] for column in used[np.argsort(first)].tolist()]
        return cls(
            column=number[inverse.reshape(-1)],
            texts=tuple(text_of(name, texts) for name in names),
        )


class Agreed(BaseModel):
    """What the owners agreed to when a model was activated.

    ``columns`` of those that show them; reasons are given for no score while some are
    ``refusing``. Nothing is said here of all others, which are a player each.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    columns: Mapping[str, ShownColumns] = {}
    refusing: tuple[str, ...] = ()


def text_of(feature: str, texts: Mapping[str, str]) -> str:
    """What is published of ``feature``, or of the column COLUMN that it was made from, or "".

    A category is ``COLUMN=CATEGORY``, a part of a date ``COLUMN.PART``.
    """
    made_from = [name for name in texts if feature.startswith((f"{name}=", f"{name}."))]
    return texts.get(feature) or texts.get(max(made_from, key=len, default=""), "")
