"""A list of ids in a CSV file."""

from __future__ import annotations

from pathlib import Path

from fedmq.errors import DataError
from fedmq.party.sources.csv_file import CsvFile

__all__ = ["read_ids"]


def read_ids(path: Path, column: str | None) -> list[str]:
    """The ids in the ``column`` of a CSV file, or its only one; in the order of the file."""
    with CsvFile(str(path), path) as file:
        if column is None and len(file.columns) == 1:
            column = file.columns[0]
        if column is None or column not in file.columns:
            # A file without a header must not lose its first person.
            raise DataError(
                f"{path}: there is no column {column or 'id'!r} in line 1, which is "
                f"{list(file.columns[:5])}; give the ids this header"
            )
        ids = [each.strip() for batch in file.batches([column]) for each in batch.cells[column]]
    if not ids:
        raise DataError(f"{path}: there are no ids")
    return ids
