"""What is a pool of workers, and what does a worker do with a computation?

A computation takes one thread, because the pool knows the cores: otherwise BLAS starts a thread
per core for a product of milliseconds. These threads then spin on the cores that the event loop
and the broker need.
"""

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
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

from fedmq.computation import Computation
from fedmq.party.telemetry.timeline import Span
from fedmq.transport.link import PriorityGate

__all__ = ["SINGLE_THREAD", "ComputePool", "OnDone", "ThreadPool", "run_pickled", "run_timed"]

OnDone = Callable[[Span], None]
"""Called once a computation has its result, with the time and place of its run."""


class ComputePool(ABC):
    """Runs computations beside the event loop, ``parallelism`` of them at once."""

    parallelism: int
    _priority_gate: PriorityGate | None = None

    async def start(self) -> None:
        """Start; ``parallelism`` is known afterwards."""
        return

    @abstractmethod
    async def run(self, computation: Computation, on_done: OnDone = lambda _: None) -> Any:
        """The result of ``computation``.

        Raises:
            FedmqError: the computation raised it, or could not be done.
        """

    def give_way(self, to: PriorityGate) -> None:
        """From now on use only idle time of this machine's cores: people wait for scores.

        No computation begins here while ``to`` is taken.
        """
        self._priority_gate = to

    def _stays(self, computation: Computation) -> bool:
        """Whether this process does ``computation`` itself: not where people wait for scores."""
        return getattr(computation, "brief", False) and self._priority_gate is None

    @abstractmethod
    async def close(self) -> None:
        """Stop, and abandon the running computations."""


class ThreadPool(ComputePool):
    """Two threads of this process: enough for plain NumPy of two parties, with nothing to start."""

    parallelism = 1

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(2, thread_name_prefix="fedmq-compute")

    async def run(self, computation: Computation, on_done: OnDone = lambda _: None) -> Any:
        loop = asyncio.get_running_loop()
        result, span = await loop.run_in_executor(self._executor, run_timed, computation)
        on_done(span)
        return result

    async def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)


def run_timed(computation: Computation) -> tuple[Any, Span]:
    """The result of ``computation``, and the time at which this thread computed it."""
    start, busy = time.time(), time.thread_time()
    with SINGLE_THREAD:
        result = computation.run()
    busy = time.thread_time() - busy
    return result, Span(threading.get_ident(), start, time.time(), busy)


def run_pickled(work: bytes) -> tuple[Any, Span]:
    """The result of a pickled computation, and the time at which this process computed it."""
    result, span = run_timed(pickle.loads(work))  # noqa: S301 (made by this party a moment ago)
    return result, replace(span, worker=os.getpid())


@cache
def _libraries() -> ThreadpoolController:
    """The libraries that this process has loaded; finding them takes milliseconds."""
    return ThreadpoolController()


class _SingleThread:
    """A context in which BLAS uses one thread; several threads may be inside at once.

    When the last thread leaves, the rest of the process gets its own number of threads back.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                _take_control()
                self._limit = _libraries().limit(limits=1, user_api="blas")
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                _take_control()
                self._limit.restore_original_limits()


def _take_control() -> None:
    """Let this thread set limits: of OpenBLAS only the one can that set them last."""
    for library in _libraries().lib_controllers:
        clear = getattr(library, "clear_controlling_thread", None)  # threadpoolctl 3.8 and later
        if clear is not None:
            clear(force=True)


SINGLE_THREAD = _SingleThread()
