"""An owner's splits as another party may be told them: thresholds by column, without the table."""

from __future__ import annotations

from typing import Annotated, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from fedmq.boosting.model.tree import Bools, DisclosedColumns, Float32s, Int32s, LookupTable

__all__ = ["OwnerSplits"]

_Codes = tuple[Annotated[int, Field(ge=0)], ...]


class OwnerSplits(BaseModel):
    """The splits of an owner, by record, of the columns ``columns``.

    ``column`` int32 (records,), a place among ``columns``; ``threshold`` float32 (records,), ``x <=
    threshold`` goes left; ``default_left`` bool (records,). ``categories`` by column: the names of
    its codes, in their order; empty for a column of numbers. ``codes_right`` by record: the codes
    that go right, at a split by a set of categories; empty if no record has a set.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    columns: tuple[str, ...]
    column: Int32s
    threshold: Float32s
    default_left: Bools
    categories: tuple[tuple[str, ...], ...]
    codes_right: tuple[_Codes, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        records = len(self.column)
        if not records == len(self.threshold) == len(self.default_left):
            raise ValueError("vectors of splits differ in length")
        if self.codes_right and len(self.codes_right) != records:
            raise ValueError("sets of categories and records differ in number")
        if len(self.categories) != len(self.columns) or len({*self.columns}) != len(self.columns):
            raise ValueError("columns need a name each, and a list of categories each")
        if ((self.column < 0) | (self.column >= len(self.columns))).any():
            raise ValueError("a record names no column")
        if np.isnan(self.threshold).any():
            raise ValueError("a threshold is not a number")
        for column, codes in zip(self.column.tolist(), self.codes_right, strict=False):
            known = len(self.categories[column])
            # The two codes beyond are of rows with another category, and of no row.
            if max(codes, default=0) > known + 1 or (codes and not known):
                raise ValueError("a set of categories names no category")
        return self

    @classmethod
    def of(cls, table: LookupTable) -> OwnerSplits:
        """All columns and all records of ``table``."""
        columns = table.columns
        records = range(len(table)) if table.category_columns else ()
        codes = tuple(_codes_right(table, record) for record in records)
        return cls(
            columns=tuple(columns),
            column=table.column_of[table.feature],
            threshold=table.threshold,
            default_left=table.default_left,
            categories=tuple(
                tuple(table.feature_names[feature].removeprefix(f"{name}=") for feature in features)
                if name in table.category_columns
                else ()
                for name, features in columns.items()
            ),
            codes_right=codes if any(codes) else (),
        )

    def told(self, names: bool) -> OwnerSplits:
        """The columns that split, in the order of their first use.

        Without ``names`` columns and categories have numbers instead.
        """
        used, first, inverse = np.unique(self.column, return_index=True, return_inverse=True)
        order = np.argsort(first)
        places = used[order].tolist()
        number = np.empty(len(used), np.int32)
        number[order] = np.arange(len(used), dtype=np.int32)
        categories = [self.categories[place] for place in places]
        if not names:
            categories = [tuple(map(str, range(len(held)))) for held in categories]
        return OwnerSplits(
            columns=tuple(
                self.columns[place] if names else f"column_{index}"
                for index, place in enumerate(places, 1)
            ),
            column=number[inverse.reshape(-1)],
            threshold=self.threshold,
            default_left=self.default_left,
            categories=tuple(categories),
            codes_right=self.codes_right,
        )

    @property
    def disclosed(self) -> DisclosedColumns:
        """The column of each record, of splits that are `told`."""
        return DisclosedColumns(column=self.column, texts=self.columns)


def _codes_right(table: LookupTable, record: int) -> _Codes:
    """The codes that go right at ``record``; empty unless its column is split by sets."""
    feature = int(table.feature[record])
    features = next((held for held in table.category_columns.values() if feature in held), None)
    if features is None:
        return ()
    right = table.category_sets[record] if table.category_sets else ()
    if right:
        return tuple(sorted(features.index(category) for category in right))
    # A record of an earlier model, where the category was a separate column.
    code, threshold = features.index(feature), table.threshold[record]
    held = range(len(features) + 1)  # the last one is that of rows with another category
    above = tuple(other for other in held if (1.0 if other == code else 0.0) > threshold)
    return above or (len(features) + 1,)  # XGBoost has no empty sets: a code that no row has
