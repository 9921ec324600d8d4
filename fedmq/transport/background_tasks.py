"""Cancelling tasks whose libraries raise cancellations on their own, or swallow them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

__all__ = ["being_cancelled", "end"]

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
