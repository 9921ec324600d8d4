"""The argument PARTY of most commands: a party's configuration file."""

from __future__ import annotations

from pathlib import Path

import click

from fedmq.party.configuration.party import PartyFile

__all__ = ["PARTY_HELP", "name_party", "party_argument", "state_folder"]

PARTY_HELP = "PARTY is the party's configuration file, such as bank/party.toml."


def name_party(party: Path) -> Path:
    """Let messages of this command name the file ``party``; returns it."""
    click.get_current_context().ensure_object(dict)["party"] = party
    return party


party_argument = click.argument(
    "party", type=click.Path(path_type=Path), callback=lambda _, __, party: name_party(party)
)


def state_folder(party: Path) -> Path:
    """The state folder that the file ``party`` names; ConfigError if the file is wrong."""
    return PartyFile.read(name_party(party))[0].state
