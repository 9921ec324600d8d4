"""``fedmq console``: the pages of a daemon in a browser."""

from __future__ import annotations

import getpass
import webbrowser
from pathlib import Path
from typing import Any

import click

from fedmq.cli.daemon_request import request_daemon
from fedmq.cli.output import json_option, print_result
from fedmq.cli.party_argument import PARTY_HELP, party_argument, state_folder

__all__ = ["console"]


@click.command(epilog=PARTY_HELP)
@party_argument
@click.option(
    "--role",
    "roles",
    multiple=True,
    default=("approver", "operator"),
    show_default=True,
    type=click.Choice(["viewer", "approver", "operator"]),
    help="What may be done besides looking; may be given again.",
)
@click.option("--who", help="The name for the audit log; that of the user when left out.")
@click.option("--no-browser", is_flag=True, help="Print the address, and open no browser.")
@json_option
def console(
    party: Path, roles: tuple[str, ...], who: str | None, no_browser: bool, as_json: bool
) -> None:
    """Open the console of the daemon of PARTY in a browser.

    The address that is printed signs in one person, once and within five minutes. The party's file
    needs console = true under [http].
    """
    request = {"do": "console", "roles": list(roles), "who": who or getpass.getuser()}
    result = request_daemon(state_folder(party), request)
    print_result(result, as_json, _in_words)
    if not (no_browser or as_json):
        webbrowser.open(result["address"])


def _in_words(opened: Any) -> str:
    whom = f"{opened['who']} ({', '.join(opened['roles'])})"
    minutes = opened["seconds"] / 60
    return f"{opened['address']}\nThe address signs in {whom}, once, within {minutes:.0f} minutes."
