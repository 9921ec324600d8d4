"""The argument PARTY of most commands: a party's configuration file."""

from __future__ import annotations

from pathlib import Path

import click

from fedmq.party.configuration.party import PartyFile

__all__ = ["PARTY_HELP", "party_argument", "state_folder"]

PARTY_HELP = "PARTY is the party's configuration file, such as bank/party.toml."

party_argument = click.argument("party", type=click.Path(path_type=Path))


def state_folder(party: Path) -> Path:
    """The state folder that the file ``party`` names; ConfigError if the file is wrong."""
    return PartyFile.read(party)[0].state
