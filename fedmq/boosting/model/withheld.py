"""Which sums does an owner keep to itself, so that a model is not quite XGBoost's?"""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["WITHHELD_NOTHING", "Withheld"]


class Withheld(BaseModel):
    """Sums of nodes, and of cells of a column within a node, with fewer rows than this; 0: none."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    smallest_node: Annotated[int, Field(ge=0)] = 0
    smallest_cell: Annotated[int, Field(ge=0)] = 0

    def and_of(self, other: Withheld) -> Withheld:
        """What either of the two withholds."""
        return Withheld(
            smallest_node=max(self.smallest_node, other.smallest_node),
            smallest_cell=max(self.smallest_cell, other.smallest_cell),
        )

    def in_words(self, party: str) -> tuple[str, ...]:
        """What ``party`` did, a sentence each."""
        words = []  # of cells and nodes without rows nothing is lost
        if self.smallest_cell > 1:
            words.append(f"{party} merged cells of fewer than {self.smallest_cell} rows")
        if self.smallest_node > 1:
            words.append(f"{party} summed no nodes of fewer than {self.smallest_node} rows")
        return tuple(words)


WITHHELD_NOTHING = Withheld()
