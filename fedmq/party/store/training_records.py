"""How was a model trained? What its share does not say, in a file of the label holder."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedmq.errors import ConfigError, DataError
from fedmq.party.atomic_file import write_atomically
from fedmq.party.configuration.job import TrainingJob

__all__ = ["TrainingRecord", "training_record_path"]


def training_record_path(state: Path, model: str) -> Path:
    """The file of ``model`` in the state folder, whether it exists or not."""
    return state / "trained" / f"{model}.json"


class TrainingRecord(BaseModel):
    """The ``job`` of a training as it was asked for, and the rows that it had.

    Times are in ISO 8601.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: Annotated[int, Field(ge=1, le=1)] = 1
    session: str
    job: TrainingJob
    rows: int
    held_out: int
    began: str
    ended: str

    @classmethod
    def of(cls, session: str, job: TrainingJob, rows: int, held_out: int, began: float) -> Self:
        """Of a training that ends now; ``began`` in seconds since the epoch."""
        return cls(
            session=session,
            job=job,
            rows=rows,
            held_out=held_out,
            began=datetime.fromtimestamp(began, UTC).isoformat(timespec="seconds"),
            ended=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    def write(self, state: Path, model: str) -> None:
        """Keep it in the state folder; ConfigError if the disk refuses."""
        path = training_record_path(state, model)
        try:
            write_atomically(path, self.model_dump_json(), 0o600)
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None

    @classmethod
    def read(cls, state: Path, model: str) -> Self | None:
        """That of ``model``; None if none is kept, DataError if it is damaged."""
        path = training_record_path(state, model)
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except (OSError, ValidationError, ConfigError):
            raise DataError(
                f"{path}: is damaged; delete it, and the card says less of the training"
            ) from None
