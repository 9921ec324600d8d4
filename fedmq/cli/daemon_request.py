"""One request to the daemon of a party, and its progress on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedmq.party.operations.control import send_request

__all__ = ["request_daemon"]


def request_daemon(
    state: Path,
    request: Mapping[str, Any],
    on_progress: Callable[[Mapping[str, Any]], None] = lambda _: None,
) -> Any:
    """The result of ``request``, which goes to the daemon with the state folder ``state``.

    ``on_progress`` takes the events that come before the result.

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
