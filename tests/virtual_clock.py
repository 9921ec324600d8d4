"""An event loop in virtual time: its clock stands still at work, and jumps while nobody works."""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Coroutine
from functools import partial
from typing import Any, TypeVar

__all__ = ["in_virtual_time"]

T = TypeVar("T")


class JumpingSelector(selectors.DefaultSelector):
    """Instead of waiting for a timer, moves ``now`` on to it, or to the next ``tick`` after it."""

    def __init__(self, tick: float) -> None:
        super().__init__()
        self.now = 0.0
        self._tick = tick

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None or timeout <= 0:
            return super().select(timeout)
        ready = super().select(0)
        if not ready:
            self.now += math.ceil(timeout / self._tick) * self._tick if self._tick else timeout
        return ready


class VirtualClockLoop(asyncio.SelectorEventLoop):
    """For code that waits for timers only: sockets and threads would find the time gone."""

    def __init__(self, tick: float = 0.0) -> None:
        self._jumping = JumpingSelector(tick)
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def in_virtual_time(work: Coroutine[Any, Any, T], tick: float = 0.0) -> T:
    """What ``work`` returns. Waits are a multiple of ``tick`` seconds, as a kernel rounds them."""
    with asyncio.Runner(loop_factory=partial(VirtualClockLoop, tick)) as runner:
        return runner.run(work)
