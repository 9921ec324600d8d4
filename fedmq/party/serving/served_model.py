"""A model as the label holder scores with it."""

from __future__ import annotations

from dataclasses import dataclass

from fedmq.boosting.served_forest import ServedForest
from fedmq.party.serving.rows import ServedRows
from fedmq.protocol.online_terms import Mode

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
