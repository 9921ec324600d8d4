"""A model as the label holder scores with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

from fedmq.boosting.model.contributions import Explainer
from fedmq.boosting.model.lookup_table import Agreed
from fedmq.boosting.model.served_forest import ServedForest
from fedmq.party.online.rows.rows import ServedRows
from fedmq.protocol.online.options import Mode

__all__ = ["ServedModel"]


@dataclass(frozen=True, slots=True, eq=False)
class ServedModel:
    """What is scored with: immutable, so that a batch goes on with what it began with.

    ``explainer`` gives reasons for scores; None where there are none, and ``unexplained`` says why.
    """

    forest: ServedForest
    rows: ServedRows
    mode: Mode
    explainer: Explainer | None = None
    unexplained: str = "no reasons are given for its scores"

    @property
    def id(self) -> str:
        """The model's id."""
        return self.forest.share.model_id

    def explained(self, agreed: Agreed, texts: Mapping[str, str]) -> Self:
        """The same with reasons, as far as the owners ``agreed``; ``texts``: the own ones."""
        if self.mode == "hop":
            reason = (
                "it is served in mode hop, and reasons need the directions beside a person's own "
                "way: activate it with --mode bitmap"
            )
        elif agreed.refusing:
            reason = f'explain = "none" in the [policy] of {", ".join(agreed.refusing)}'
        elif self.forest.share.params.outputs > 1:
            reason = "its scores are several numbers a row: use fedmq predict --explain"
        else:
            explainer = Explainer.of(self.forest, agreed.columns, texts)
            return replace(self, explainer=explainer, unexplained="")
        return replace(self, unexplained=reason)
