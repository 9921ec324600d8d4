"""``fedmq screen``: all parties' columns before a training, and how well each tells the label."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from fedmq.cli.output import joined, json_option, print_next_step, print_result, table
from fedmq.cli.party_daemon import state_folder
from fedmq.errors import ConfigError
from fedmq.evaluation.page import require_pages
from fedmq.evaluation.screening import (
    FIGURES,
    columns_of,
    figure_of,
    label_in_words,
    label_type,
    screen_page,
    title_of,
)
from fedmq.party.atomic_file import write_atomically
from fedmq.party.configuration.job import ScreenJob
from fedmq.party.operations.control import request_daemon

__all__ = ["screen"]


@click.command()
@click.argument("job", type=click.Path(path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Folder to write screen.html and screen.json into.",
)
@json_option
def screen(job: Path, output: Path | None, as_json: bool) -> None:
    """Look at all parties' columns, as described in JOB, before a training.

    Each party says what its columns are like, as far as its policy lets it, and, where it agrees,
    how many people with either label stand in the bins of each: so IV, KS and AUC of each column
    alone; with label_type in JOB chi-square of a label of several classes, or F of one of numbers.
    With sums = "hidden" in JOB nobody sees a count: IV alone is told, in steps of 0.02.
    With correlation = true in JOB, also how columns of numbers are correlated. Labels and columns
    leave encrypted.
    """
    description = ScreenJob.read(job)
    if output is not None:
        if output.exists() and not output.is_dir():
            raise ConfigError(f"{output}: is no folder; name another one with --output")
        require_pages()
    request = {"do": "screen", "job": description.model_dump(mode="json")}
    found = request_daemon(state_folder(description.party), request)
    if output is not None:
        _write(output, found)
    print_result(found, as_json, _in_words)
    if output is None:
        print_next_step(as_json, "train", job.with_name("train.toml"))
    else:
        print_next_step(as_json, output / "screen.html", program="open")


def _write(folder: Path, found: Mapping[str, Any]) -> None:
    page = screen_page(found)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / "screen.json", json.dumps(found, indent=1).encode(), 0o600)
        write_atomically(folder / "screen.html", page.encode(), 0o600)
    except OSError as error:
        raise ConfigError(f"{folder}: cannot be written: {error.strerror}") from None


def _in_words(found: Any) -> Text:
    def shown(value: float | str | None) -> str:
        if value is None:
            return ""
        if isinstance(value, str):
            return value
        return f"{value:.4f}" if value == 0 or 1e-4 <= abs(value) < 1e6 else f"{value:.2e}"

    figures = FIGURES[label_type(found)]

    rows = [
        (
            column["party"],
            title_of(column),
            column["type"],
            f"{column['missing']:.0%}",
            column["distinct"],
            *(shown(figure_of(column, name)) for name in figures),
            "yes" if column.get("selected") else "",
        )
        for column in columns_of(found)
    ]
    columns = ("party", "column", "type", "missing", "distinct", *figures, "selected")
    refused = [
        told[why]
        for told in found["parties"].values()
        for why in ("refused", "uncorrelated")
        if why in told
    ]
    refused += [
        between["refused"]
        for told in found["parties"].values()
        for between in told.get("among", {}).values()
        if "refused" in between
    ]
    head = (
        f"{found['looked_at']:,} of {found['rows']:,} people, {label_in_words(found)}; "
        f"{found['seconds']:.1f} s, {found['bytes_sent'] / 1e6:.1f} MB sent"
    )
    return joined(head, table(columns, rows), *refused, *_to_pass_on(found))


def _to_pass_on(found: Mapping[str, Any]) -> Iterator[str]:
    """What each owner types to train with its selected columns alone."""
    if found["selected"] is None:
        return
    own, *others = found["selected"]
    yield f"of {own}: {len(found['selected'][own]):,} selected"
    for party in others:
        numbers = " ".join(map(str, found["selected"][party]))
        asked = f"; its owner names them with: fedmq data features PARTY.toml {numbers}"
        yield f"of {party}: {len(found['selected'][party]):,} selected" + asked * bool(numbers)
