"""The argument PARTY of most commands, and requests to that party's daemon."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from fedmq.errors import DaemonAway, DaemonError
from fedmq.party.configuration.party import PartyFile
from fedmq.party.operations.control import send_request

__all__ = [
    "PARTY_HELP",
    "name_party",
    "party_argument",
    "request_daemon",
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


def request_daemon(
    state: Path,
    request: Mapping[str, Any],
    on_progress: Callable[[Mapping[str, Any]], None] = lambda _: None,
) -> Any:
    """Send ``request`` to the daemon with the state folder ``state``; returns its result.

    ``on_progress`` takes the events before the result.

    Raises:
        ConfigError: the socket in ``state`` is another user's.
        DaemonError: no daemon listens, it stopped, or it answered with an error, whose exit code
            the exception carries.
    """

    async def last_event() -> Any:
        async for event in send_request(state, request):
            if event["event"] == "done":
                return event["result"]
            on_progress(event)
        raise AssertionError("the answer ends with done or an error")

    return asyncio.run(last_event())


def taken_up(config: PartyFile) -> str:
    """Make the daemon of ``config`` reload its files; returns the outcome in a line."""
    try:
        request_daemon(config.state, {"do": "reload"})
    except DaemonAway:
        return "no daemon runs; it takes this up when it starts"
    except DaemonError as error:
        return str(error)
    return "the running daemon has taken it up"
