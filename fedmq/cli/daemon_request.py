"""Asking the daemon of a party, and showing what it says on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from fedmq.party.configuration.party import PartyFile
from fedmq.party.operations.control import ask

__all__ = ["ask_daemon", "party_argument_help", "state_of"]

party_argument_help = "PARTY is the party's configuration file, such as bank/party.toml."


def state_of(party: Path) -> Path:
    """The state folder of the party configured in the file ``party``."""
    return PartyFile.read(party)[0].state


def ask_daemon(
    state: Path,
    request: Mapping[str, Any],
    on_event: Callable[[Mapping[str, Any]], None] = lambda _: None,
) -> Any:
    """The result of ``request``; DaemonError where there is none."""

    async def follow() -> Any:
        async for event in ask(state, request):
            if event["event"] == "done":
                return event["result"]
            on_event(event)
        raise AssertionError("the answer ends with done or an error")

    return asyncio.run(follow())
