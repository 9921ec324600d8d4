"""``fedmq score``: one score, as callers get it, from the model that is served."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.text import Text

from fedmq.cli.daemon_request import request_daemon
from fedmq.cli.next_step import print_next_step
from fedmq.cli.output import json_option, print_result
from fedmq.cli.party_argument import PARTY_HELP, party_argument, state_folder
from fedmq.cli.table import joined, table
from fedmq.errors import ConfigError

__all__ = ["score"]


@click.command(epilog=PARTY_HELP)
@party_argument
@click.argument("person", metavar="ID")
@click.option("--name", default="production", show_default=True, help="The name that is served.")
@click.option(
    "--feature",
    "features",
    multiple=True,
    metavar="COLUMN=VALUE",
    help="In place of what PARTY has stored of the person; columns that are left out are missing.",
)
@click.option(
    "--explain", type=click.IntRange(1, 1000), metavar="N", help="The N strongest reasons."
)
@json_option
def score(
    party: Path,
    person: str,
    name: str,
    features: tuple[str, ...],
    explain: int | None,
    as_json: bool,
) -> None:
    """Score the person ID by the model that is served, and say how long each party took."""
    given = [dict(map(_column, features))] if features else None
    request = {"do": "score", "name": name, "ids": [person], "features": given, "explain": explain}
    result = request_daemon(state_folder(party), request)
    print_result(result, as_json, _in_words)
    print_next_step(as_json, "serving", party)


def _column(text: str) -> tuple[str, float | str]:
    name, equals, value = text.rpartition("=")
    if not equals or not name:
        raise ConfigError(f"--feature {text!r}: write COLUMN=VALUE")
    try:
        return name, float(value)
    except ValueError:
        return name, value


def _in_words(result: Any) -> Text:
    [scored] = result["scores"]
    reasons = [
        (reason["party"], reason.get("text") or reason.get("column", ""), f"{reason['value']:+.5f}")
        for reason in scored.get("reasons") or ()
    ]
    waited = [(party, f"{1e3 * seconds:.1f}") for party, seconds in result["waited"].items()]
    guessed = ", ".join(result.get("degraded", ()))
    return joined(
        f"{scored['id']}: {scored['score']} by {result['model']}, {1e3 * result['seconds']:.1f} ms",
        f"guessed in part: {guessed} did not answer" if guessed else "",
        table(("party", "column", "added to the margin"), reasons) if reasons else "",
        table(("party", "ms to its answers"), waited) if waited else "",
    )
