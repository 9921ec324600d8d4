"""Tasks that nobody awaits: how they are kept, and how they end.

Some libraries raise cancellations on their own, others swallow them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Iterator
from typing import Any

__all__ = ["BackgroundTasks", "being_cancelled", "end"]

_AGAIN_SECONDS = 0.1


def being_cancelled() -> bool:
    """Whether somebody cancelled the current task.

    `asyncio.CancelledError` alone does not say so: an AMQP client raises it from calls that were
    pending when their connection closed, and so does any future that was cancelled elsewhere.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def end(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel ``tasks`` until they have ended, in whichever way.

    Once is not always enough: `asyncio.wait_for`, on which AMQP clients build, swallows a
    cancellation that comes at the same time as its result (Python below 3.12).
    """
    running = {task for task in tasks if not task.done()}
    while running:
        for task in running:
            task.cancel()
        _, running = await asyncio.wait(running, timeout=_AGAIN_SECONDS)


class BackgroundTasks:
    """Tasks that run beside whoever spawns them; each is kept until it ends.

    asyncio itself holds a task by a weak reference only, so one that nobody keeps may vanish.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def __iter__(self) -> Iterator[asyncio.Task[None]]:
        return iter(tuple(self._tasks))

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run ``work`` from now on."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def cancel(self) -> None:
        """Ask all to end, and wait for none."""
        for task in self:
            task.cancel()
