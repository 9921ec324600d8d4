"""What a desk is, and what all desks work with."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from fedmq.errors import DaemonError
from fedmq.messages.body import Body
from fedmq.messages.envelope import Envelope
from fedmq.party.compute.pool import ComputePool
from fedmq.party.configuration.federation import Federation
from fedmq.party.configuration.party import PartyFile
from fedmq.party.consent.consent import Consent
from fedmq.party.sessions.open_sessions import Sessions
from fedmq.party.sessions.progress import OnProgress
from fedmq.party.sessions.running import RunningSession
from fedmq.party.store.models import ModelStore
from fedmq.party.store.sessions import SessionStore

__all__ = ["Command", "PartyContext", "Service", "followed"]

Command = Callable[[Mapping[str, Any], OnProgress], Awaitable[Any]]
"""Does what a request asks and reports progress meanwhile; its value is the result."""
Opening = Callable[[Envelope], Awaitable[RunningSession]]


@dataclass(slots=True)
class PartyContext:
    """One party's settings, shares, workers and sessions; ``config`` changes with the policy."""

    config: PartyFile
    federation: Federation
    store: ModelStore
    pool: ComputePool
    sessions: Sessions
    consent: Consent
    kept: SessionStore

    @property
    def party(self) -> str:
        """This party's name."""
        return self.config.party

    @property
    def is_active(self) -> bool:
        """Whether this party holds the label."""
        return self.party == self.federation.active

    def only_active(self, what: str) -> None:
        """Raise DaemonError unless this party holds the label."""
        if not self.is_active:
            raise DaemonError(
                f"{self.party} holds no label: ask the daemon of {self.federation.active} to {what}"
            )


class Service:
    """``opened_sessions``: bodies that open a session here when the active party says them.

    ``commands``: what the owner may ask for over the control socket.
    """

    def __init__(self, context: PartyContext) -> None:
        self.at = context

    @property
    def opened_sessions(self) -> Mapping[type[Body], Opening]:
        """How to join the sessions of this desk, by the body that opens them."""
        return {}

    @property
    def commands(self) -> Mapping[str, Command]:
        """What this desk does for the owner of the party, by name."""
        return {}


async def followed(
    running: RunningSession, changes: asyncio.Queue[RunningSession], say: OnProgress
) -> Any:
    """Start a session and return its outcome; whoever asked for it is told of the progress."""
    outcome = running.runner.outcome
    running.runner.start()
    while not outcome.done():
        change = asyncio.ensure_future(changes.get())
        await asyncio.wait({change, outcome}, return_when=asyncio.FIRST_COMPLETED)
        if not change.cancel():
            await say({"event": "progress", **running.status()})
    return await outcome
