"""The argument PARTY of most commands, and what its daemon says of changed files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from fedmq.errors import DaemonAway, DaemonError
from fedmq.party.configuration.party import PartyFile
from fedmq.party.operations.control import request_daemon, user_name

__all__ = [
    "PARTY_HELP",
    "kept_for",
    "name_party",
    "noted",
    "party_argument",
    "state_folder",
    "taken_up",
]

PARTY_HELP = "PARTY is the party's configuration file, such as bank/party.toml."


def name_party(party: Path) -> Path:
    """Name the file ``party`` in this command's messages; returns it."""
    click.get_current_context().ensure_object(dict)["party"] = party
    return party


party_argument = click.argument(
    "party", type=click.Path(path_type=Path), callback=lambda _, __, party: name_party(party)
)


def state_folder(party: Path) -> Path:
    """The state folder that the file ``party`` names; ConfigError if the file is wrong."""
    return PartyFile.read(name_party(party))[0].state


def kept_for(periods: Mapping[str, str]) -> str:
    """The periods of ``retention`` in words."""
    return ", ".join(f"{key.replace('_', ' ')} {period}" for key, period in periods.items())


def noted(state: Path, did: str, **details: Any) -> None:
    """Put into the audit log what this command did to the files of a party.

    Its daemon writes the log; where none runs, this command does.

    Raises:
        ConfigError: the log cannot be written.
    """
    note = {"did": did, **details}
    try:
        request_daemon(state, {"do": "noted", **note})
    except DaemonAway:
        _note_alone(state, note)


def _note_alone(state: Path, note: Mapping[str, Any]) -> None:
    if state.is_dir():  # a party that never ran has no log yet
        from fedmq.party.consent.audit_log import AuditLog  # most commands need none

        by, whence = user_name(os.getuid()), "command line"
        AuditLog(state).record("command", what="noted", by=by, whence=whence, **note)


def taken_up(config: PartyFile, did: str, **details: Any) -> str:
    """Make the daemon of ``config`` reload its files; returns the outcome in a line.

    ``did``, with ``details``, is what the audit log keeps of what was changed in them.
    """
    note = {"did": did, **details}
    try:
        request_daemon(config.state, {"do": "reload", **note})
    except DaemonAway:
        _note_alone(config.state, note)
        return "no daemon runs; it takes this up when it starts"
    except DaemonError as error:
        return str(error)
    return "the running daemon has taken it up"
