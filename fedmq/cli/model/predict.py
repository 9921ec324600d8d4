"""``fedmq predict``: scores of a file of ids."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from fedmq.cli.daemon_request import ask_daemon, party_argument_help
from fedmq.cli.output import json_option, print_result
from fedmq.cli.progress import ProgressBar
from fedmq.errors import ConfigError, DataError
from fedmq.party.atomic_file import write_atomically
from fedmq.party.configuration.party import PartyFile
from fedmq.party.data.sources.csv_file import CsvFile

__all__ = ["predict", "read_ids"]

_HEADER = ("id", "score")


@click.command(epilog=party_argument_help)
@click.argument("party", type=click.Path(path_type=Path))
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
    _check(output)  # before others are asked about people
    request = {"do": "predict", "model": model, "ids": names, "output_margin": margin}
    with ProgressBar("predicting, leaves", quiet=as_json) as bar:

        def show(event: Mapping[str, Any]) -> None:
            if event["total"] or event["waiting"]:
                bar.show(event["done"], event["total"], note="; ".join(event["waiting"]))

        result = ask_daemon(config.state, request, show)
    _write(output, names, result["scores"])
    summary = {"model": result["model"], "rows": len(names), "output": str(output)}
    print_result(
        summary, as_json, lambda done: f"{done['rows']} scores by {done['model']} in {output}"
    )


def _check(output: Path) -> None:
    """Only scores are overwritten: a slip must not cost a table, or keys."""
    if not output.parent.is_dir():
        raise ConfigError(f"{output}: there is no folder {output.parent}; make it first")
    if output.is_dir():
        raise ConfigError(f"{output}: is a folder; name a file in it")
    if output.is_file():
        with output.open("rb") as file:
            if file.readline().strip() not in (b"", ",".join(_HEADER).encode()):
                raise ConfigError(f"{output}: exists already and holds no scores; choose another")


def _write(output: Path, ids: list[str], scores: list[float]) -> None:
    """All scores or no file: a half-written one would look complete. What is no file is written to.

    Such as a pipe, or /dev/stdout.
    """
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
