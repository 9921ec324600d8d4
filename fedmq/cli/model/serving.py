"""``fedmq activate``, ``rollback`` and ``serving``: which model answers for a name."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from fedmq.cli.daemon_request import request_daemon
from fedmq.cli.next_step import print_next_step
from fedmq.cli.output import json_option, print_result
from fedmq.cli.party_argument import PARTY_HELP, party_argument, state_folder
from fedmq.cli.progress import ProgressBar
from fedmq.cli.table import joined, table

__all__ = ["activate", "rollback", "serving"]

_name = click.option("--name", default="production", show_default=True, help="The name.")


@click.command(epilog=PARTY_HELP)
@party_argument
@click.argument("model", required=False)
@_name
@click.option("--mode", type=click.Choice(["hop", "bitmap"]), help="As in [online] if left out.")
@json_option
def activate(party: Path, model: str | None, name: str, mode: str | None, as_json: bool) -> None:
    """Let a name stand for MODEL (the newest if left out) at all parties together.

    Every party loads its share first; if one of them cannot, the name keeps its meaning. Ctrl-C
    only stops watching (see: fedmq cancel).
    """
    request = {"do": "activate", "model": model, "name": name, "mode": mode}
    print_result(_watched(party, request, as_json), as_json, _switched)
    print_next_step(as_json, "serving", party)


@click.command(epilog=PARTY_HELP)
@party_argument
@_name
@json_option
def rollback(party: Path, name: str, as_json: bool) -> None:
    """Let a name stand for the model before again, at all parties together."""
    print_result(_watched(party, {"do": "rollback", "name": name}, as_json), as_json, _switched)
    print_next_step(as_json, "serving", party)


@click.command(epilog=PARTY_HELP)
@party_argument
@json_option
def serving(party: Path, as_json: bool) -> None:
    """Show what the daemon of PARTY serves, and how that goes."""
    result = request_daemon(state_folder(party), {"do": "serving"})
    print_result(result, as_json, _in_words)
    if "questions" in result:
        print_next_step(as_json, "audit-log list", party, "--online")
    elif result["models"]:
        print_next_step(as_json, "health", party)
    else:
        print_next_step(as_json, "activate", party)


def _watched(party: Path, request: Mapping[str, Any], quiet: bool) -> Any:
    with ProgressBar("activating, parties", "party", quiet=quiet) as bar:

        def show(event: Mapping[str, Any]) -> None:
            if event["waiting"]:
                bar.show(event["done"], event["total"], note="; ".join(event["waiting"]))

        return request_daemon(state_folder(party), request, show)


def _switched(result: Any) -> str:
    before = f", it was {result['before']}" if result["before"] else ""
    return f"{result['name']} is {result['model']} in mode {result['mode']}{before}"


def _in_words(result: Any) -> Text:
    warnings = result["troubles"]
    if "questions" in result:
        models = [(model,) for model in result["models"]]
        answers = (
            f"{result['party']}: {result['questions']} questions, "
            f"{result['turned_away']} turned away"
        )
        return joined(answers, table(("model",), models) if models else "no model", *warnings)
    rows = [
        (name, model["model"], model["mode"], model["rounds"])
        for name, model in result["models"].items()
    ]
    columns = ("name", "model", "mode", "rounds at most")
    counts, recent = result["counts"], result["recent"]
    pace = (
        ""
        if recent["p99"] is None
        else (
            f"{recent['per_second']:.1f} requests a second in the last minute; of the last "
            f"{recent['requests']}, half within {1e3 * recent['median']:.1f} ms, 99 of 100 within "
            f"{1e3 * recent['p99']:.1f} ms"
        )
    )
    away = f"; away: {', '.join(result['away'])}" if result["away"] else ""
    return joined(
        table(columns, rows) if rows else "no model is served",
        f"{counts['requests']} requests, {counts['rows']} rows, {counts['failed']} failed, "
        f"{counts['degraded']} degraded, {counts['turned_away']} turned away{away}",
        pace,
        *warnings,
    )
