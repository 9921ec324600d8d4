"""``fedmq party``: who is in the federation, and who comes and goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.text import Text

from fedmq.cli.next_step import print_next_step
from fedmq.cli.output import json_option, print_result
from fedmq.cli.party_argument import PARTY_HELP, party_argument
from fedmq.cli.setup.daemon_reload import taken_up
from fedmq.cli.table import joined, table
from fedmq.errors import ConfigError
from fedmq.party.configuration.federation import Federation, add_party, remove_party
from fedmq.party.configuration.party import PartyFile
from fedmq.party.configuration.toml_file import read_toml
from fedmq.party.identity.joining import JoinRequest
from fedmq.party.operations.health import certificate_expiry

__all__ = ["party"]


@click.group(epilog=PARTY_HELP)
def party() -> None:
    """See who is in the federation, and let parties in and out."""


@party.command("list", epilog=PARTY_HELP)
@party_argument
@json_option
def list_parties(party: Path, as_json: bool) -> None:
    """List the parties that PARTY knows, with the fingerprints of their keys."""
    config = read_toml(party, PartyFile)
    federation = Federation.read(config.federation)
    until = certificate_expiry(config)
    result = {
        "parties": [
            {
                "party": name,
                "role": "active" if name == federation.active else "passive",
                "own": name == config.party,
                "fingerprints": [keys.fingerprint for keys in federation.pinned(name)],
            }
            for name in federation.parties
        ],
        "certificate_until": None if until is None else until.isoformat(timespec="seconds"),
    }
    print_result(result, as_json, _in_words)
    print_next_step(as_json, "data check", party)


@party.command(epilog=PARTY_HELP)
@party_argument
@click.argument("request", type=click.Path(path_type=Path))
@click.option("--fingerprint", help="As the newcomer read it out; asked for when left out.")
@json_option
def add(party: Path, request: Path, fingerprint: str | None, as_json: bool) -> None:
    """Let the party that made the file REQUEST take part, with the keys in it.

    Its owner reads the fingerprint out to you. All members add newcomers in the same order. A
    running daemon takes it up at once.
    """
    config = read_toml(party, PartyFile)
    asked = JoinRequest.read(request)
    federation = Federation.read(config.federation)
    if fingerprint is None and asked.federation == federation.name:
        fingerprint = click.prompt(f"The fingerprint that {asked.party} reads out", err=True)
    asked.check(federation.name, fingerprint or "", str(request))
    add_party(config.federation, asked.party, asked.public)
    words = f"{asked.party} is a party, {asked.public.fingerprint}; " + taken_up(config)
    print_result({"party": asked.party}, as_json, lambda _: words)
    print_next_step(as_json, "party list", party)


@party.command(epilog=PARTY_HELP)
@party_argument
@click.argument("name")
@json_option
def remove(party: Path, name: str, as_json: bool) -> None:
    """Let the party NAME take part no more: nothing of it is opened here from now on.

    What runs with it ends. Models without its records go on; the broker's operator also types
    fedmq broker remove.
    """
    config = read_toml(party, PartyFile)
    if name == config.party:
        raise ConfigError(f"{name} is this party itself; the others remove it")
    remove_party(config.federation, name)
    words = f"{name} is no party any more; " + taken_up(config)
    print_result({"party": name}, as_json, lambda _: words)
    print_next_step(as_json, "party list", party)


def _in_words(result: Any) -> Text:
    rows = [
        (
            found["party"] + " (here)" * found["own"],
            found["role"],
            ", ".join(found["fingerprints"]) or "no keys",
        )
        for found in result["parties"]
    ]
    until = result["certificate_until"]
    return joined(
        table(("party", "role", "fingerprint"), rows),
        f"this party's certificate is good until {until[:10]}" if until else "",
    )
