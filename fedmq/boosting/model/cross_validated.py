"""The result of a cross-validation: figures over its folds; their models are dropped."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationError

from fedmq.boosting.params import StoredParams
from fedmq.errors import ConfigError, DataError

__all__ = ["CrossValidated"]


class CrossValidated(BaseModel):
    """``figures`` are those of ``xgb.cv``: a number for each round, by ``test-auc-mean`` and so on.

    ``rounds`` were trained; where early stopping was due, the figures end with ``best_iteration``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    name: str
    parties: tuple[str, ...]
    folds: int
    params: StoredParams
    figures: dict[str, tuple[float, ...]]
    rounds: int
    best_iteration: int | None = None

    def dumps(self) -> str:
        """The result as one JSON document."""
        return self.model_dump_json()

    @classmethod
    def loads(cls, text: str, where: str) -> Self:
        """The result in ``text``; without one DataError, whose text begins with ``where``."""
        try:
            return cls.model_validate_json(text)
        except (ConfigError, ValidationError):
            raise DataError(f"{where}: is no cross-validation, or damaged") from None
