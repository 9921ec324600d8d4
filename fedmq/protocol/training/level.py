"""What the active party still waits for from the nodes that are being asked."""

from __future__ import annotations

from dataclasses import dataclass, field

from fedmq.privacy.engine import Best
from fedmq.privacy.plan import Values
from fedmq.protocol.plan_runner import RunningPlan

__all__ = ["Conversation", "Level"]


@dataclass(slots=True)
class Conversation:
    """The exchanges with one peer about one node; ``open`` until a reply is complete."""

    running: RunningPlan
    round: int
    open: bool = True
    pieces: list[Values] = field(default_factory=list)


@dataclass(slots=True)
class Level:
    """The nodes of a level: so many offers are ``missing``; ``outcomes`` says whose splits are."""

    best: dict[int, dict[int, Best]]
    missing: int
    conversations: dict[tuple[str, int], Conversation] = field(default_factory=dict)
    gains: dict[int, float] = field(default_factory=dict)
    outcomes: dict[int, str] = field(default_factory=dict)
