"""``fedmq inbox``, ``approve`` and ``refuse``: what waits for the owner's consent."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from fedmq.cli.output import joined, json_option, print_next_step, print_result, table
from fedmq.cli.party_daemon import PARTY_HELP, party_argument, state_folder
from fedmq.party.consent.terms import asked_in_words, terms_in_words
from fedmq.party.operations.control import request_daemon

__all__ = ["approve", "inbox", "refuse"]

_REASON = 1000  # characters


@click.command(epilog=PARTY_HELP)
@party_argument
@click.option("--all", "every", is_flag=True, help="List answered requests, too.")
@json_option
def inbox(party: Path, every: bool, as_json: bool) -> None:
    """List the requests that wait for the consent of the owner of PARTY, with their terms."""
    found = request_daemon(state_folder(party), {"do": "inbox"})
    waiting = [request for request in found if request["state"] == "waiting"]
    shown = found if every else waiting
    print_result(shown, as_json, lambda _: joined(*_lines(shown)))
    step = ("approve", party, waiting[0]["request"]) if waiting else ("status", party)
    print_next_step(as_json, *step)


@click.command(epilog=PARTY_HELP)
@party_argument
@click.argument("request")
@click.option(
    "--alike",
    is_flag=True,
    help="Approve similar requests permanently, after a look at the change of the party file.",
)
@click.option("--yes", is_flag=True, help="Change the party file without asking.")
@json_option
def approve(party: Path, request: str, alike: bool, yes: bool, as_json: bool) -> None:
    """Approve REQUEST in the inbox of PARTY: its session continues.

    An activation is approved by another person than the one who asked for it.
    """
    state = state_folder(party)
    diff = ""
    if alike:
        diff = request_daemon(state, {"do": "alike", "request": request})["diff"]
        click.echo(diff, err=True, nl=False)
        if not yes:
            click.confirm("Apply this change?", abort=True, err=True)
    answer = {"do": "approve", "request": request, "diff": diff}
    done = request_daemon(state, answer)
    print_result(done, as_json, lambda _: f"request {request} is approved")
    print_next_step(as_json, "status", party)


@click.command(epilog=PARTY_HELP)
@party_argument
@click.argument("request")
@click.option("--reason", default="", help="The reason, for the asking party.")
@json_option
def refuse(party: Path, request: str, reason: str, as_json: bool) -> None:
    """Refuse REQUEST in the inbox of PARTY: its session ends."""
    if len(reason) > _REASON:
        raise click.BadParameter(f"at most {_REASON:,} characters", param_hint="--reason")
    answer = {"do": "refuse", "request": request, "reason": reason}
    done = request_daemon(state_folder(party), answer)
    print_result(done, as_json, lambda _: f"request {request} is refused")
    print_next_step(as_json, "status", party)


def _lines(requests: Sequence[Any]) -> list[str | Text]:
    if not requests:
        return ["nothing waits for consent"]
    rows = [
        (
            request["request"],
            request["until"].replace("T", " ")[:16],
            request["state"],
            asked_in_words(request),
        )
        for request in requests
    ]
    notes = [
        [*_decision(request), *(f"{about}: {what}" for about, what in terms_in_words(request))]
        for request in requests
    ]
    return [table(("request", "until", "state", "asks"), rows, notes)]


def _decision(request: Any) -> list[str]:
    if not request["decided_by"]:
        return []
    reason = f": {request['reason']}" if request["reason"] else ""
    return [f"{request['state']} by {request['decided_by']}{reason}"]
