"""Waiting for a disk: a full one is no reason to lose a session."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from random import Random
from typing import TypeVar

from fedmq.errors import ConfigError
from fedmq.transport.backoff import Backoff

__all__ = ["until_taken"]

log = logging.getLogger(__name__)

T = TypeVar("T")

_PATIENCE = Backoff(limit=5.0)


async def until_taken(
    work: Callable[[], Awaitable[T]],
    refusal: type[Exception] = ConfigError,
    *,
    named: str = "",
    backoff: Backoff = _PATIENCE,
    on_trouble: Callable[[str], None] = lambda _: None,
) -> T:
    """What ``work`` returns when the disk lets it; after each ``refusal`` it is tried again.

    The log tells of the first refusal and of the end, with ``named`` in front. ``on_trouble`` is
    given each refusal, and nothing in the end.
    """
    trouble = ""
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
                on_trouble("")
            return result
    raise AssertionError("the delays have no end")
