"""``--base-margin``: where rows start that are scored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from fedmq.party.configuration.data import DataSection
from fedmq.party.data.columns import NumberSpelling
from fedmq.party.data.loading import margins_of
from fedmq.party.data.sources.csv_file import CsvFile

__all__ = ["asked_margins", "base_margin_option"]


base_margin_option = click.option(
    "--base-margin",
    "base_margin",
    multiple=True,
    metavar="COLUMN",
    help="Where each row starts, not at the base score: a column of the file of ids, or else of "
    "PARTY's table; of several classes one for each.",
)


def asked_margins(
    columns: Sequence[str], rows: Path | None, section: DataSection
) -> Mapping[str, Any]:
    """What a request for scores says of margins: those in the file ``rows``, or where they are.

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
