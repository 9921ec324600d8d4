"""Writes each party's tables of the example: scikit-learn's breast-cancer data, dealt out.

::

    python examples/demo/make_tables.py [FOLDER]

FOLDER has a folder per party; it is the folder of this script when left out. ``training.csv`` holds
four fifths of the people, ``serving.csv`` all of them, and the bank's ``ids.csv`` names those who
are not trained on. Needs the extra ``fedmq[demo]``.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from fedmq.cli.example_data import breast_cancer

ACTIVE = "bank"
PARTIES = (ACTIVE, "telco", "retail")


def write(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write one CSV file, and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])


def main(folder: Path) -> None:
    """Write the tables of all parties."""
    data = breast_cancer(PARTIES)
    for party in PARTIES:
        label = [data.label] if party == ACTIVE else []
        rows = list(zip(data.ids, *label, *data.columns[party].T, strict=True))
        header = ["id", *(["label"] if label else []), *data.names[party]]
        trained = [row for row, out in zip(rows, data.test, strict=True) if not out]
        write(folder / party / "tables" / "training.csv", header, trained)
        write(folder / party / "tables" / "serving.csv", header, rows)
    asked = [[name] for name, out in zip(data.ids, data.test, strict=True) if out]
    write(folder / ACTIVE / "tables" / "ids.csv", ["id"], asked)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
