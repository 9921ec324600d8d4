"""How does a program reach a daemon? By the socket on its own machine, or by HTTPS from any other.

Both take the requests that commands send, and give the same answers.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from fedmq.client import Client
from fedmq.errors import DaemonAway
from fedmq.party.operations.control import STOPPED, remote_error, request_daemon

__all__ = ["Daemon", "HttpDaemon", "LocalDaemon"]

OnEvent = Callable[[Mapping[str, Any]], None]


class Daemon(Protocol):
    """A party's daemon."""

    def request(self, request: Mapping[str, Any], on_progress: OnEvent = lambda _: None) -> Any:
        """The result of ``request``; ``on_progress`` takes the events before it.

        Raises:
            DaemonAway: no daemon answers, or it stopped meanwhile.
            DaemonError: it answered with an error, whose exit code the exception carries.
        """


class LocalDaemon:
    """The daemon with the state folder ``state`` on this machine."""

    def __init__(self, state: Path) -> None:
        self._state = state

    def request(self, request: Mapping[str, Any], on_progress: OnEvent = lambda _: None) -> Any:
        """As `Daemon.request`; ConfigError if the daemon is another user's."""
        return request_daemon(self._state, request, on_progress)


class HttpDaemon:
    """The daemon whose HTTP API ``client`` asks; it takes a token of ``operators``."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def request(self, request: Mapping[str, Any], on_progress: OnEvent = lambda _: None) -> Any:
        """As `Daemon.request`."""
        for line in self._client.lines("/v1/commands", dict(request)):
            event = json.loads(line)
            if event["event"] == "error":
                raise remote_error(event)
            if event["event"] == "done":
                return event["result"]
            on_progress(event)
        raise DaemonAway(STOPPED)
