"""Changed files, and whether a running daemon has taken them up."""

from __future__ import annotations

from fedmq.cli.daemon_request import request_daemon
from fedmq.errors import DaemonAway, DaemonError
from fedmq.party.configuration.party import PartyFile

__all__ = ["taken_up"]


def taken_up(config: PartyFile) -> str:
    """Have the daemon of ``config`` read its files again; what came of it, in a line."""
    try:
        request_daemon(config.state, {"do": "reload"})
    except DaemonAway:
        return "no daemon runs; it takes this up when it starts"
    except DaemonError as error:
        return str(error)
    return "the running daemon has taken it up"
