"""What is a transition table, and which rows has every session's table?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from fedmq.messages.body import Abort, SessionUnknown
from fedmq.protocol.events import Cancelled, ComputationFailed, PeerLost, PlanReturned, Start

__all__ = [
    "ASKS_OWNER",
    "REFUSES",
    "Done",
    "Key",
    "Rows",
    "Table",
    "Transition",
    "When",
    "Yields",
    "session_table",
]


@dataclass(frozen=True, slots=True)
class Done:
    """The plan of this name has ended."""

    plan: str

    def __str__(self) -> str:
        return f"Done({self.plan})"


@dataclass(frozen=True, slots=True)
class Yields:
    """The plan of this name wants to exchange messages with the other half, or to reply to it."""

    plan: str

    def __str__(self) -> str:
        return f"Yields({self.plan})"


@dataclass(frozen=True, slots=True)
class When:
    """What the machine itself finds to be so while it handles an event."""

    condition: str

    def __str__(self) -> str:
        return f"when {self.condition}"


ASKS_OWNER = When("its owner has to agree first")
REFUSES = When("it refuses")

Key = type | Done | Yields | When
"""What a row is about: an event's class (its body's class for a message), a plan, a condition."""


@dataclass(frozen=True, slots=True)
class Transition:
    """The next state; an event that is ``ignored`` has no other effect."""

    to: Enum
    ignored: bool = False


Table = Mapping[tuple[Enum, Key], Transition]

Rows = Mapping[Enum, Mapping[Key, Enum]]
"""The next state by state and key."""


def session_table(live: Rows, over: tuple[Enum, ...], states: type[Enum]) -> Table:
    """The table with rows ``live``, and with what every session has in common.

    ``over``: where it has finished, failed, and perhaps waits for another attempt.
    """
    _, failed, *more = over
    interrupted = more[0] if more else None
    running = {state for state in states if state not in over}
    # A session, or this attempt at it, may end in any live state.
    endings: dict[Key, Enum] = dict.fromkeys(
        (Abort, PeerLost, Cancelled, ComputationFailed), failed
    )
    endings[SessionUnknown] = interrupted or failed
    table = {(state, key): Transition(to) for state in running for key, to in endings.items()}
    for state, rows in live.items():
        table |= {(state, key): Transition(to) for key, to in rows.items()}
    # When a session is over, what was under way changes nothing.
    events = {key for _, key in table if isinstance(key, type)} - {Start} | {PlanReturned}
    table |= {(state, key): Transition(state, ignored=True) for state in over for key in events}
    if interrupted is not None:
        table |= {(interrupted, key): Transition(failed) for key in (Abort, Cancelled)}
    return table
