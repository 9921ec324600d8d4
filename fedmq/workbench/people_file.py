"""A CSV file of people to score or evaluate: their ids, and where their rows start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from fedmq.errors import DataError
from fedmq.party.configuration.data import DataSection
from fedmq.party.data.columns import NumberSpelling
from fedmq.party.data.id_column import joined
from fedmq.party.data.loading import margins_of
from fedmq.party.data.sources.csv_file import CsvFile

__all__ = ["asked_margins", "read_ids"]


def read_ids(
    path: Path, columns: Sequence[str], separator: str = ",", encoding: str = "utf-8"
) -> list[str]:
    """The ids in ``columns`` of a CSV file, in the file's order.

    Raises:
        DataError: a column is missing, or there is no id.
    """
    with CsvFile(str(path), path, separator, encoding) as file:
        missing = next((column for column in columns if column not in file.columns), None)
        if missing is not None:
            # A file without a header must not lose its first id as a header.
            raise DataError(
                f"{path}: there is no column {missing!r} in line 1, which is "
                f"{list(file.columns[:5])}; give the ids this header"
            )
        ids = [
            joined([cell.strip() for cell in cells])
            for batch in file.batches(list(columns))
            for cells in zip(*(batch.cells[column] for column in columns), strict=True)
        ]
    if not ids:
        raise DataError(f"{path}: there are no ids")
    return ids


def asked_margins(
    columns: Sequence[str], rows: Path | None, section: DataSection
) -> Mapping[str, Any]:
    """The margins of a request for scores: those in the file ``rows``, or their columns.

    Raises:
        DataError: a cell of the file is no number.
    """
    if not columns:
        return {}
    if rows is not None:
        with CsvFile(str(rows), rows, section.separator, section.encoding) as file:
            if set(columns) <= set(file.columns):
                cells: dict[str, dict[str, str]] = {column: {} for column in columns}
                for batch in file.batches(list(columns)):
                    for column in columns:
                        texts = zip(batch.numbers, batch.cells[column], strict=True)
                        cells[column] |= {f"line {number}": text for number, text in texts}
                return {
                    "base_margin": margins_of(cells, str(rows), NumberSpelling.of(section)).tolist()
                }
    return {"base_margin_columns": list(columns)}
