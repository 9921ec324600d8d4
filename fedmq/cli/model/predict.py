"""``fedmq predict``: scores of a file of ids."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from fedmq.cli.daemon_request import request_daemon
from fedmq.cli.model.base_margin import asked_margins, base_margin_option
from fedmq.cli.next_step import print_next_step
from fedmq.cli.output import json_option, print_result
from fedmq.cli.party_argument import PARTY_HELP, party_argument
from fedmq.cli.progress import ProgressBar
from fedmq.errors import ConfigError, DataError
from fedmq.party.atomic_file import write_atomically
from fedmq.party.configuration.party import PartyFile
from fedmq.party.data.sources.csv_file import CsvFile

__all__ = ["predict", "read_ids", "request_scores"]

_SCORES = re.compile(rb"[^,]+,score(_0(,score_[0-9]+)+)?(,reason)?(,.+,bias(_[0-9]+)?)?")
"""The first line of a file of scores."""


@click.command(epilog=PARTY_HELP)
@party_argument
@click.argument("ids", required=False, type=click.Path(path_type=Path))
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, help="CSV to write."
)
@click.option("-m", "--model", help="Model to use; the newest when left out.")
@click.option("--margin", is_flag=True, help="Raw scores instead of predictions.")
@click.option(
    "--explain", is_flag=True, help="Also what each column, or party, added to the raw score."
)
@click.option("--strict", is_flag=True, help="No scores at all if a party does not know an id.")
@click.option("--all-aligned", is_flag=True, help="Score everybody in the newest alignment.")
@click.option("--alignment", help="Score everybody in the alignment of this name.")
@base_margin_option
@json_option
def predict(
    party: Path,
    ids: Path | None,
    output: Path,
    model: str | None,
    margin: bool,
    explain: bool,
    strict: bool,
    all_aligned: bool,
    alignment: str | None,
    base_margin: tuple[str, ...],
    as_json: bool,
) -> None:
    """Score the people whose ids stand in the CSV file IDS, or everybody in an alignment.

    The id column has the header that PARTY names. An id that a party does not know has no score,
    and the column reason names the party. With --explain columns of contributions follow (Shapley
    values), the bias last, which add up to the raw score. Ctrl-C only stops waiting (see: fedmq
    cancel).
    """
    config, _ = PartyFile.read(party)
    section = config.serving or config.data
    column = section.id
    aligned = all_aligned or alignment is not None
    if (ids is None) != aligned:
        raise click.UsageError("write either a file IDS, or --all-aligned")
    names = None
    if ids is not None:
        names = read_ids(ids, column, section.separator, section.encoding)
    _check_no_loss(output)  # before the other parties learn which people are scored
    request = {
        "do": "predict",
        "model": model,
        "ids": names,
        "alignment": alignment,
        "strict": strict,
        "output_margin": margin,
        "explain": explain,
        **asked_margins(base_margin, ids, section),
    }
    result = request_scores(config.state, request, as_json)
    names = names if names is not None else result["ids"]
    _write_scores(output, column, names, result, strict)
    summary = {
        "model": result["model"],
        "rows": len(names),
        "without_score": sum(map(bool, result["unknown_at"])),
        "output": str(output),
    }
    print_result(summary, as_json, _in_words)
    if any(isinstance(score, list) for score in result["scores"]):
        print_next_step(as_json, "models list", party)  # online scores are one number a row
    else:
        print_next_step(as_json, "activate", party, result["model"])


def _in_words(done: Any) -> str:
    scored = done["rows"] - done["without_score"]
    blanks = f", {done['without_score']} blank (see the column reason)"
    return (
        f"{scored} scores by {done['model']}{blanks * bool(done['without_score'])} "
        f"in {done['output']}"
    )


def request_scores(state: Path, request: Mapping[str, Any], quiet: bool) -> Any:
    """What the daemon answers to ``request``, a prediction; its progress is shown meanwhile."""
    with ProgressBar("predicting, leaves", "leaf", quiet=quiet) as bar:

        def show(event: Mapping[str, Any]) -> None:
            if event["total"] or event["waiting"]:
                bar.show(event["done"], event["total"], note="; ".join(event["waiting"]))

        return request_daemon(state, request, show)


def read_ids(
    path: Path, column: str | None, separator: str = ",", encoding: str = "utf-8"
) -> list[str]:
    """The ids in ``column`` of a CSV file, in the file's order.

    Without ``column`` the file has to have a single one.

    Raises:
        DataError: there is no such column, or no id in it.
    """
    with CsvFile(str(path), path, separator, encoding) as file:
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
            first = file.readline().strip()
            if first and not _SCORES.fullmatch(first):
                raise ConfigError(f"{output}: exists already and holds no scores; choose another")


def _columns(scores: Sequence[Any]) -> tuple[list[str], list[list[str]]]:
    """Headers and cells: one column, or one for each class."""
    several = next((score for score in scores if isinstance(score, list)), None)
    width = 1 if several is None else len(several)
    headers = ["score"] if several is None else [f"score_{name}" for name in range(width)]
    rows = [score if isinstance(score, list) else [score] * width for score in scores]
    return headers, [["" if cell is None else f"{cell:.9g}" for cell in row] for row in rows]


def _contributions(
    players: Sequence[str], rows: Sequence[Sequence[Sequence[float]] | None]
) -> tuple[list[str], list[list[str]]]:
    """Headers and cells: a column for each player, or for each player and class."""
    outputs = next((len(row) for row in rows if row is not None), 1)
    suffixes = [""] if outputs == 1 else [f"_{name}" for name in range(outputs)]
    headers = [f"{player}{suffix}" for suffix in suffixes for player in players]
    blank = [""] * len(headers)
    return headers, [
        blank if row is None else [f"{cell:.9g}" for values in row for cell in values]
        for row in rows
    ]


def _write_scores(
    output: Path, column: str, ids: list[str], result: Mapping[str, Any], strict: bool
) -> None:
    """Write all scores or no file; but write into a pipe or link, such as /dev/stdout."""
    table = io.StringIO(newline="")
    writer = csv.writer(table)
    headers, cells = _columns(result["scores"])
    if not strict:
        headers.append("reason")
        for row, found in zip(cells, result["unknown_at"], strict=True):
            row.append(f"unknown at {', '.join(found)}" if found else "")
    if "players" in result:
        added, values = _contributions(result["players"], result["contributions"])
        headers += added
        cells = [[*row, *more] for row, more in zip(cells, values, strict=True)]
    writer.writerow((column, *headers))
    writer.writerows((name, *row) for name, row in zip(ids, cells, strict=True))
    try:
        if not output.is_symlink() and (output.is_file() or not output.exists()):
            write_atomically(output, table.getvalue())
        else:
            output.write_text(table.getvalue(), newline="", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{output}: cannot be written: {error.strerror}") from None
