"""What does one party of a chain hand on to the next, while winners are found by circuits?

Pieces wait here for the plan that asks for them, or the plan for them: those who hand on do not
know how far the others are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fedmq.errors import ProtocolError
from fedmq.privacy.plan import Values
from fedmq.protocol.machine import RunningPlan

__all__ = ["HandedOn"]

_MOST_UNREAD = 2**10  # contests; one at a time is begun unless nodes draw their columns

Key = tuple[str, int]
"""Who hands on, and the first node of a contest."""


class HandedOn:
    """What came, and who waits, in one tree; ``resume`` takes a plan and what it waits for."""

    def __init__(self, resume: Callable[[RunningPlan, Any], None]) -> None:
        self._resume = resume
        self._unread: dict[Key, Sequence[Values]] = {}
        self._waiting: dict[Key, RunningPlan] = {}

    def wait(self, sender: str, node: int, run: RunningPlan) -> None:
        """The plan ``run`` goes on with what ``sender`` hands on, when it has come."""
        key = (sender, node)
        if key in self._unread:
            self._resume(run, self._unread.pop(key))
        else:
            self._waiting[key] = run

    def take(self, sender: str, node: int, pieces: Sequence[Values]) -> None:
        """``sender`` hands on ``pieces``. Raises ProtocolError where it has done so before."""
        key = (sender, node)
        if key in self._waiting:
            self._resume(self._waiting.pop(key), pieces)
        elif key in self._unread or len(self._unread) >= _MOST_UNREAD:
            raise ProtocolError(f"shares of node {node}, which nobody waits for")
        else:
            self._unread[key] = pieces
