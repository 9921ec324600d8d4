"""How were a party's own columns spread in the training? Counts of bins, beside its share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedmq.boosting.population_stability import BinnedColumn, binned_columns
from fedmq.errors import ConfigError, DataError
from fedmq.party.atomic_file import write_atomically

__all__ = ["TrainedCounts", "drift_files"]


def drift_files(state: Path, model: str) -> tuple[Path, Path]:
    """Where the state folder keeps the counts of a training, and those of who is scored now."""
    folder = state / "drift"
    return folder / f"{model}.trained", folder / f"{model}.scored"


class TrainedCounts(BaseModel):
    """What a party counted in a training: its own columns, and at the label holder the scores.

    ``scores`` are margins, a column for each output; other parties have none.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Annotated[int, Field(ge=1, le=1)] = 1
    columns: tuple[BinnedColumn, ...]
    scores: tuple[BinnedColumn, ...] = ()

    @classmethod
    def of(
        cls,
        features: tuple[str, ...],
        values: NDArray[np.float32],
        margins: NDArray[np.float32] | None = None,
    ) -> Self:
        """Of ``values`` (rows, features), and margins (rows,) or (rows, outputs)."""
        scores: tuple[BinnedColumn, ...] = ()
        if margins is not None:
            outputs = margins.reshape(len(margins), -1)
            names = ["score"]
            if outputs.shape[1] > 1:
                names = [f"score {output}" for output in range(outputs.shape[1])]
            scores = binned_columns(names, outputs)
        return cls(columns=binned_columns(features, values), scores=scores)

    def write(self, state: Path, model: str) -> None:
        """Keep it in the state folder; ConfigError if the disk refuses."""
        path, scored = drift_files(state, model)
        try:
            write_atomically(path, self.model_dump_json(), 0o600)
            scored.unlink(missing_ok=True)  # of an earlier model of this name
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None

    @classmethod
    def read(cls, state: Path, model: str) -> Self | None:
        """That of ``model``; None if none is kept, DataError if it is damaged."""
        path, _ = drift_files(state, model)
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValidationError):
            raise DataError(f"{path}: is damaged; delete it, and drift is not watched") from None
