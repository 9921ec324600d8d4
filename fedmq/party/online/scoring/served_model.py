"""A model as the label holder scores with it."""

from __future__ import annotations

from dataclasses import dataclass

from fedmq.boosting.model.served_forest import ServedForest
from fedmq.party.online.rows.rows import ServedRows
from fedmq.protocol.online.options import Mode

__all__ = ["ServedModel"]


@dataclass(frozen=True, slots=True, eq=False)
class ServedModel:
    """What is scored with: immutable, so that a batch goes on with what it began with."""

    forest: ServedForest
    rows: ServedRows
    mode: Mode

    @property
    def id(self) -> str:
        """The model's id."""
        return self.forest.share.model_id
