"""An event loop in virtual time: its clock stands still at work, and jumps while nobody works."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["in_virtual_time"]

T = TypeVar("T")


class JumpingSelector(selectors.DefaultSelector):
    """Instead of waiting for a timer, moves ``now`` on to it."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        ready = super().select(0)
        if not ready:
            self.now += timeout
        return ready


class VirtualClockLoop(asyncio.SelectorEventLoop):
    """For code that waits for timers only: sockets and threads would find the time gone."""

    def __init__(self) -> None:
        self._jumping = JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def in_virtual_time(work: Coroutine[Any, Any, T]) -> T:
    """What ``work`` returns."""
    with asyncio.Runner(loop_factory=VirtualClockLoop) as runner:
        return runner.run(work)
