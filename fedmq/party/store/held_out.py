"""Which rows did a training hold out? Their ids, sets and labels, beside the model's share.

A CSV file, as whoever validates the model wants it: the columns id, set and label, and of bounds of
times label_upper_bound.
"""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import ConfigError, DataError
from fedmq.party.atomic_file import write_atomically
from fedmq.protocol.training.tables import ActiveTable

__all__ = ["HeldOutRows", "held_out_path"]

_HEADERS = ("id", "set", "label", "label_upper_bound")


def held_out_path(state: Path, model: str) -> Path:
    """The file of ``model`` in the state folder, whether it exists or not."""
    return state / "models" / f"{model}.held-out.csv"


@dataclass(frozen=True, slots=True, eq=False)
class HeldOutRows:
    """Rows by ``ids`` and their evaluation ``sets``; ``label`` is float32 (rows,) or (rows, 2)."""

    ids: tuple[str, ...]
    sets: tuple[str, ...]
    label: NDArray[np.float32]

    @classmethod
    def of(cls, table: ActiveTable) -> Self:
        """Those of a training's table."""
        names = np.empty(len(table.label), dtype=object)
        for name, rows in table.evaluation_sets.items():
            names[rows] = name
        held_out = table.evaluation
        return cls(table.held_out_ids, tuple(names[held_out]), table.label[held_out])

    def write(self, state: Path, model: str) -> None:
        """Keep them in the state folder; ConfigError if the disk refuses."""
        text = io.StringIO(newline="")
        writer = csv.writer(text)
        labels = self.label.reshape(len(self.ids), -1)
        writer.writerow(_HEADERS[: 2 + labels.shape[1]])
        writer.writerows(
            (name, held, *(f"{value:.9g}" for value in values))
            for name, held, values in zip(self.ids, self.sets, labels.tolist(), strict=True)
        )
        path = held_out_path(state, model)
        try:
            write_atomically(path, text.getvalue(), 0o600)
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None

    @classmethod
    def read(cls, state: Path, model: str) -> Self:
        """Those of ``model``.

        Raises:
            DataError: none are kept, or the file is not what `write` writes.
        """
        path = held_out_path(state, model)
        try:
            with path.open(newline="", encoding="utf-8") as file:
                headers, *rows = csv.reader(file)
            if tuple(headers) not in (_HEADERS, _HEADERS[:3]):
                raise ValueError
            labels = np.array([row[2:] for row in rows], np.float32).reshape(len(rows), -1)
            if labels.shape[1] != len(headers) - 2:
                raise ValueError
            label = labels if len(headers) > 3 else labels.reshape(-1)
            return cls(tuple(row[0] for row in rows), tuple(row[1] for row in rows), label)
        except FileNotFoundError:
            raise DataError(
                f"model {model!r} has no held-out rows: its job had no evaluation, or an earlier "
                "fedmq trained it; name a file of ids and labels with --rows"
            ) from None
        except (OSError, ValueError, IndexError):
            raise DataError(f"{path}: is damaged; name a file with --rows instead") from None
