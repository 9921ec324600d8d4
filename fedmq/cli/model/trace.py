"""``fedmq trace``: timelines of sessions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fedmq.cli.next_step import print_next_step
from fedmq.cli.output import json_option, print_result
from fedmq.party.telemetry.timeline import JoinedTrace, check_writable, read_trace, write_trace

__all__ = ["trace"]


@click.group()
def trace() -> None:
    """Look at timelines of sessions."""


@trace.command()
@click.argument(
    "files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path)
)
@click.option(
    "-o",
    "--output",
    required=True,
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file to write; see ui.perfetto.dev.",
)
@json_option
def join(files: tuple[Path, ...], output: Path, as_json: bool) -> None:
    """Lay the timelines of one session, one FILE from each party's owner, into one.

    Messages then show as arrows from party to party.
    """
    check_writable(output)
    joined = JoinedTrace.of([(str(file), read_trace(file)) for file in files])
    write_trace(joined.document, output)
    result = {
        "parties": list(joined.parties),
        "arrows": joined.arrows,
        "clocks_differ_by_seconds": round(joined.early, 6),
    }
    print_result(result, as_json, _in_words)
    print_next_step(as_json, output, "at ui.perfetto.dev", program="open")


def _in_words(result: Any) -> str:
    words = f"{', '.join(result['parties'])}: {result['arrows']} messages from one to another"
    if not result["arrows"]:
        words += "; are the files of the same session?"
    if result["clocks_differ_by_seconds"]:
        words += (
            f"; clocks differ by {result['clocks_differ_by_seconds']:.6f} s at least: "
            "something arrived before it left"
        )
    return words
