"""Background tasks: kept until they end, cancelled until they have ended.

Some libraries raise cancellations on their own; others swallow them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Iterator
from typing import Any

__all__ = ["BackgroundTasks", "being_cancelled", "end"]

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 0.1


def being_cancelled() -> bool:
    """Whether the current task was told to end.

    `asyncio.CancelledError` alone does not say so: an AMQP client raises it from calls that were
    pending when their connection closed, and so does any future cancelled elsewhere.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def end(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel ``tasks`` repeatedly until all have ended.

    Once is not always enough: `asyncio.wait_for`, on which AMQP clients build, swallows a
    cancellation that arrives together with its result (Python below 3.12).
    """
    running = {task for task in tasks if not task.done()}
    while running:
        for task in running:
            task.cancel()
        _, running = await asyncio.wait(running, timeout=_AGAIN_SECONDS)


class BackgroundTasks:
    """Tasks that run beside the code that spawns them; each is kept until it ends.

    asyncio itself holds tasks by weak references only, so a task without an owner may vanish. An
    error of a task is logged at once, because nothing awaits its result.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def __iter__(self) -> Iterator[asyncio.Task[None]]:
        return iter(tuple(self._tasks))

    def spawn(
        self, work: Coroutine[Any, Any, None], *, name: str | None = None
    ) -> asyncio.Task[None]:
        """Run ``work`` from now on; ``name`` is the task's, for debuggers."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        return task

    def cancel(self) -> None:
        """Cancel all tasks without waiting for them."""
        for task in self:
            task.cancel()

    async def close(self) -> None:
        """Cancel all tasks, also those spawned meanwhile, and wait until they have ended."""
        while running := [task for task in self if not task.done()]:
            await end(running)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("a background task failed", exc_info=error)
