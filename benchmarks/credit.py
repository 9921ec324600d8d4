"""The papers' two credit tables, dealt out to two parties, as every benchmark reads them.

A folder holds ``credit1_active.csv``, ``credit1_passive.csv``, ``credit2_active.csv`` and
``credit2_passive.csv``; the first column of each is ``id``, and the active files hold the label.
"""

from __future__ import annotations

import csv
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

__all__ = ["LABELS", "Credit"]

LABELS = {"credit1": "SeriousDlqin2yrs", "credit2": "default.payment.next.month"}


@dataclass(frozen=True, eq=False)
class Credit:
    """Features of both parties (rows, columns) and the label (rows,), float32, by ascending id."""

    name: str
    active: NDArray[np.float32]
    passive: NDArray[np.float32]
    label: NDArray[np.float32]

    @classmethod
    def read(cls, folder: Path, name: str, rows: int | None = None) -> Credit:
        """The table ``name``: its first ``rows``, or all. Ends the program if a file is missing."""
        columns, active = _values(folder / f"{name}_active.csv", rows)
        _, passive = _values(folder / f"{name}_passive.csv", rows)
        place = columns.index(LABELS[name])
        return cls(name, np.delete(active, place, axis=1), passive, active[:, place])

    def first(self, rows: int) -> Credit:
        """The table's first rows."""
        return Credit(self.name, self.active[:rows], self.passive[:rows], self.label[:rows])

    def held_out(self, seed: int) -> NDArray[np.bool_]:
        """A random third of the rows, for tests: two thirds are for training."""
        return np.random.default_rng(seed).random(len(self.label)) < 1 / 3

    def joined(self) -> NDArray[np.float32]:
        """All columns side by side, the active party's first."""
        return np.hstack([self.active, self.passive])


def _values(path: Path, rows: int | None) -> tuple[list[str], NDArray[np.float32]]:
    """The names and values of a file's columns but the id; an empty cell is NaN."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            header, *lines = csv.reader(file)
    except OSError as error:
        sys.exit(f"{path}: {error.strerror}")
    lines.sort(key=lambda line: int(line[0]))
    values = [[float(cell or "nan") for cell in line[1:]] for line in lines[:rows]]
    return header[1:], np.array(values, dtype=np.float32)
