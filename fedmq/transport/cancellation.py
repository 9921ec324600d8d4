"""Telling a real cancellation from one that a library raises on its own."""

from __future__ import annotations

import asyncio

__all__ = ["being_cancelled"]


def being_cancelled() -> bool:
    """Whether somebody cancelled the current task.

    `asyncio.CancelledError` alone does not say so: an AMQP client raises it from calls that were
    pending when their connection closed, and so does any future that was cancelled elsewhere.
    """
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
