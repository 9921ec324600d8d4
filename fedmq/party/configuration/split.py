"""How are the rows that a training holds out chosen?"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["ByGroup", "ByNewest", "Split", "column_of"]

_Column = Annotated[str, Field(min_length=1)]


class _ByColumn(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class ByGroup(_ByColumn):
    """Rows of one group, such as a household, stay together."""

    group: _Column
    """The column that names the group of each row."""


class ByNewest(_ByColumn):
    """The rows with the latest dates are held out."""

    newest: _Column
    """The column with the dates, as in 2026-11-22, or with numbers."""


Split = Literal["random", "stratified"] | ByGroup | ByNewest


def column_of(split: Split) -> str | None:
    """The label holder's column that ``split`` reads, if any."""
    if isinstance(split, ByGroup):
        return split.group
    return split.newest if isinstance(split, ByNewest) else None
