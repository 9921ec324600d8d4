"""Waiting for a disk that is full: that is no reason to lose a session."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from random import Random
from typing import TypeVar

from fedmq.errors import ConfigError
from fedmq.transport.backoff import Backoff

__all__ = ["DiskTroubles", "until_taken"]

log = logging.getLogger(__name__)

T = TypeVar("T")

_BACKOFF = Backoff(limit=5.0)


class DiskTroubles:
    """What waits for the disk at the moment, each with the last refusal."""

    def __init__(self) -> None:
        self._waiting: dict[object, str] = {}

    def __str__(self) -> str:
        """The refusal of what has waited longest; empty while nothing waits."""
        return next(iter(self._waiting.values()), "")

    def another(self) -> Callable[[str], None]:
        """The ``on_trouble`` of another call of `until_taken`."""
        key = object()

        def on_trouble(trouble: str) -> None:
            if trouble:
                self._waiting[key] = trouble
            else:
                self._waiting.pop(key, None)

        return on_trouble


async def until_taken(
    work: Callable[[], Awaitable[T]],
    refusal: type[Exception] = ConfigError,
    *,
    named: str = "",
    backoff: Backoff = _BACKOFF,
    on_trouble: Callable[[str], None] = lambda _: None,
) -> T:
    """The result of ``work``, which is tried again after every ``refusal`` of the disk.

    The first refusal and the success after it are logged, with ``named`` in front. ``on_trouble``
    is called with the text of every refusal, and with an empty one in the end: also where it is
    cancelled, as for an attempt that gives way to the next one.
    """
    trouble = ""
    try:
        for delay in backoff.delays(Random()):
            try:
                result = await work()
            except refusal as error:
                if not trouble:
                    log.warning("%s%s; trying again", named, error)
                trouble = f"{named}{error}"
                on_trouble(trouble)
                await asyncio.sleep(delay)
            else:
                if trouble:
                    log.warning("the disk takes again what it refused: %s", trouble)
                return result
    finally:
        if trouble:
            on_trouble("")
    raise AssertionError("the delays have no end")
