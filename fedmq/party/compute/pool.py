"""What a pool of workers is."""

from __future__ import annotations

import asyncio
import os
import pickle
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from fedmq.computation import Computation
from fedmq.party.telemetry.timeline import Span
from fedmq.transport.priority import PriorityGate

__all__ = ["ComputePool", "OnDone", "ThreadPool", "run_pickled"]


OnDone = Callable[[Span], None]


class ComputePool(ABC):
    """Runs computations beside the event loop; ``parallelism`` of them at once."""

    parallelism: int

    async def start(self) -> None:
        """Get ready; ``parallelism`` is known afterwards."""
        return

    @abstractmethod
    async def run(self, computation: Computation, on_done: OnDone = lambda _: None) -> Any:
        """The result of ``computation``; ``on_done`` is told when and where it was computed.

        Raises:
            FedmqError: the computation raised it, or could not be done.
        """

    def give_way(self, to: PriorityGate) -> None:  # noqa: B027 (there may be nothing to do)
        """From now on take only what time of cores nobody else wants: somebody waits for scores.

        None begins while ``to`` is taken.
        """

    @abstractmethod
    async def close(self) -> None:
        """Stop; computations still under way are given up."""


class ThreadPool(ComputePool):
    """One thread of this process: enough for plain NumPy, and nothing to start."""

    parallelism = 1

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="fedmq-compute")

    async def run(self, computation: Computation, on_done: OnDone = lambda _: None) -> Any:
        loop = asyncio.get_running_loop()
        result, span = await loop.run_in_executor(self._executor, _timed, computation)
        on_done(span)
        return result

    async def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)


def run_pickled(work: bytes) -> tuple[Any, Span]:
    """The result of a pickled computation, and when it was computed by which process."""
    result, span = _timed(pickle.loads(work))  # noqa: S301 (made by this party a moment ago)
    return result, replace(span, worker=os.getpid())


def _timed(computation: Computation) -> tuple[Any, Span]:
    start, busy = time.time(), time.thread_time()
    result = computation.run()
    busy = time.thread_time() - busy
    return result, Span(threading.get_ident(), start, time.time(), busy)
