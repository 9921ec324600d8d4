"""What came of this party's cross-validations, as files in its state folder.

The figures as JSON; beside them a CSV file with the fold by which each row was scored, for whoever
does it again.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np

from fedmq.boosting.model.cross_validated import CrossValidated
from fedmq.errors import ConfigError, DataError
from fedmq.party.atomic_file import write_atomically
from fedmq.protocol.training.tables import ActiveTable

__all__ = ["CrossValidationStore"]


class CrossValidationStore:
    """By name; a later one of the same name takes the place of the earlier."""

    def __init__(self, state: Path) -> None:
        self._folder = state / "cross-validations"

    def save(self, found: CrossValidated, table: ActiveTable) -> None:
        """Write ``found``, and the folds of ``table``; ConfigError if the disk refuses."""
        path = self._path(found.name)
        numbers = np.full(len(table.label), -1)
        for number, fold in enumerate(table.folds):
            numbers[fold.scored] = number
        text = io.StringIO(newline="")
        writer = csv.writer(text)
        writer.writerow(("id", "fold"))
        folds = numbers[~table.evaluation].tolist()
        writer.writerows(zip(table.held_out_ids, folds, strict=True))
        try:
            write_atomically(self._folder / f"{found.name}.folds.csv", text.getvalue(), 0o600)
            write_atomically(path, found.dumps(), 0o600)
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None

    def load(self, name: str) -> CrossValidated:
        """That of ``name``; DataError if there is none, or it is damaged."""
        path = self._path(name)
        try:
            return CrossValidated.loads(path.read_text(encoding="utf-8"), str(path))
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror}") from None

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.json"
