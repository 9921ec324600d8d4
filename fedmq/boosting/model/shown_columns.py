"""What does an owner show of its columns, so that reasons can be given for a score?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, model_validator

from fedmq.boosting.model.lookup_table import LookupTable
from fedmq.boosting.model.numpy_field import Int32s

__all__ = ["Agreed", "Explain", "ShownColumns", "text_of"]

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
