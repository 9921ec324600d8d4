"""``fedmq predict``: scores of a file of ids."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from fedmq.cli.daemon_request import request_daemon
from fedmq.cli.output import json_option, print_result
from fedmq.cli.party_argument import PARTY_HELP, party_argument
from fedmq.cli.progress import ProgressBar
from fedmq.errors import ConfigError, DataError
from fedmq.party.atomic_file import write_atomically
from fedmq.party.configuration.party import PartyFile
from fedmq.party.data.sources.csv_file import CsvFile

__all__ = ["predict", "read_ids"]

_HEADER = ("id", "score")


@click.command(epilog=PARTY_HELP)
@party_argument
@click.argument("ids", type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, help="CSV to write."
)
@click.option("-m", "--model", help="Model to use; the newest when left out.")
@click.option("--margin", is_flag=True, help="Raw scores instead of predictions.")
@json_option
def predict(
    party: Path, ids: Path, output: Path, model: str | None, margin: bool, as_json: bool
) -> None:
    """Score the people whose ids stand in the CSV file IDS.

    The id column has the header that PARTY names. Ctrl-C only stops waiting (see: fedmq cancel).
    """
    config, _ = PartyFile.read(party)
    names = read_ids(ids, (config.serving or config.data).id)
    _check_no_loss(output)  # before the other parties learn which people are scored
    request = {"do": "predict", "model": model, "ids": names, "output_margin": margin}
    with ProgressBar("predicting, leaves", quiet=as_json) as bar:

        def show(event: Mapping[str, Any]) -> None:
            if event["total"] or event["waiting"]:
                bar.show(event["done"], event["total"], note="; ".join(event["waiting"]))

        result = request_daemon(config.state, request, show)
    _write_scores(output, names, result["scores"])
    summary = {"model": result["model"], "rows": len(names), "output": str(output)}
    print_result(
        summary, as_json, lambda done: f"{done['rows']} scores by {done['model']} in {output}"
    )


def read_ids(path: Path, column: str | None) -> list[str]:
    """The ids in ``column`` of a CSV file, in the file's order.

    Without ``column`` the file has to have a single one.

    Raises:
        DataError: there is no such column, or no id in it.
    """
    with CsvFile(str(path), path) as file:
        if column is None and len(file.columns) == 1:
            column = file.columns[0]
        if column is None or column not in file.columns:
            # The first id of a file without a header must not be taken for one.
            raise DataError(
                f"{path}: there is no column {column or 'id'!r} in line 1, which is "
                f"{list(file.columns[:5])}; give the ids this header"
            )
        ids = [cell.strip() for batch in file.batches([column]) for cell in batch.cells[column]]
    if not ids:
        raise DataError(f"{path}: there are no ids")
    return ids


def _check_no_loss(output: Path) -> None:
    """ConfigError if ``output`` cannot be written, or is a file of anything but scores."""
    if not output.parent.is_dir():
        raise ConfigError(f"{output}: there is no folder {output.parent}; make it first")
    if output.is_dir():
        raise ConfigError(f"{output}: is a folder; name a file in it")
    if output.is_file():
        with output.open("rb") as file:
            if file.readline().strip() not in (b"", ",".join(_HEADER).encode()):
                raise ConfigError(f"{output}: exists already and holds no scores; choose another")


def _write_scores(output: Path, ids: list[str], scores: list[float]) -> None:
    """Write all scores or no file; but write into a pipe or link, such as /dev/stdout."""
    table = io.StringIO(newline="")
    writer = csv.writer(table)
    writer.writerow(_HEADER)
    writer.writerows(zip(ids, (f"{score:.9g}" for score in scores), strict=True))
    try:
        if not output.is_symlink() and (output.is_file() or not output.exists()):
            write_atomically(output, table.getvalue())
        else:
            output.write_text(table.getvalue(), newline="", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{output}: cannot be written: {error.strerror}") from None
