"""What a table of legal transitions is, and what every session's table has in common."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from fedmq.messages.body import Abort, SessionUnknown
from fedmq.protocol.events import Cancelled, ComputationFailed, PeerLost, Start

__all__ = ["Table", "Transition", "rows", "session_table"]


@dataclass(frozen=True, slots=True)
class Transition:
    """Who handles an event in a state, and where that may lead."""

    handler: str
    to: tuple[Enum, ...]


Table = Mapping[tuple[Enum, type], Transition]


def rows(
    state: Enum, handlers: Mapping[type, tuple[str, tuple[Enum, ...]]]
) -> dict[tuple[Enum, type], Transition]:
    """The rows of one state: (handler, states it may lead to) by event."""
    return {(state, event): Transition(*step) for event, step in handlers.items()}


def _breakdowns(
    live: tuple[Enum, ...], failed: Enum, interrupted: Enum | None
) -> dict[tuple[Enum, type], Transition]:
    """What may end a session, or this attempt at it, in any live state."""
    endings: dict[type, tuple[str, tuple[Enum, ...]]] = {
        Abort: ("_on_abort", (failed,)),
        PeerLost: ("_on_peer_lost", (failed,)),
        Cancelled: ("_on_cancelled", (failed,)),
        ComputationFailed: ("_on_computation_failed", (failed,)),
        SessionUnknown: ("_on_unknown", (interrupted or failed,)),
    }
    return {key: step for state in live for key, step in rows(state, endings).items()}


def _afterwards(over: tuple[Enum, ...], events: set[type]) -> dict[tuple[Enum, type], Transition]:
    """When a session is over, what was already under way is let pass."""
    return {(state, event): Transition("_ignore", (state,)) for state in over for event in events}


def session_table(
    live: Mapping[tuple[Enum, type], Transition], over: tuple[Enum, ...], states: type[Enum]
) -> Table:
    """``over``: where it has finished, failed, and perhaps waits for another attempt."""
    _, failed, *more = over
    interrupted = more[0] if more else None
    running = tuple(state for state in states if state not in over)
    table = _breakdowns(running, failed, interrupted) | dict(live)
    table |= _afterwards(over, {event for _, event in table} - {Start})
    if interrupted is None:
        return table
    return table | rows(
        interrupted,
        {Abort: ("_on_abort", (failed,)), Cancelled: ("_on_cancelled", (failed,))},
    )
