"""A list of ids in a CSV file."""

from __future__ import annotations

from pathlib import Path

from fedmq.errors import DataError
from fedmq.party.sources.csv_file import CsvFile

__all__ = ["read_ids"]


def read_ids(path: Path, column: str | None) -> list[str]:
    """The ids in a CSV file: its ``column``, or its only one; in the order of the file."""
    with CsvFile(str(path), path) as file:
        if column not in file.columns and len(file.columns) == 1:
            column = file.columns[0]
        if column is None or column not in file.columns:
            raise DataError(
                f"{path}: there is no id column {column or ''!r}; it has {list(file.columns[:5])}"
            )
        ids = [each.strip() for batch in file.batches([column]) for each in batch.cells[column]]
    if not ids:
        raise DataError(f"{path}: there are no ids")
    return ids
