"""Where computations run: never on the event loop."""

from __future__ import annotations

import asyncio
import heapq
import logging
import os
import pickle
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import loky
from loky.backend.context import LokyContext
from loky.process_executor import BrokenProcessPool

from fedmq.errors import FedmqError
from fedmq.party.shared_arrays import SharedArrays
from fedmq.party.trace import Span
from fedmq.privacy.engine import Computation
from fedmq.transport.right_of_way import RightOfWay

__all__ = ["ComputePool", "OnDone", "ProcessPool", "ThreadPool", "cores", "run_pickled"]

log = logging.getLogger(__name__)

_WATCH_SECONDS = 1.0
_NICENESS = 19  # of workers; a score served beside a training then hardly waits for it


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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

    def give_way(self, to: RightOfWay) -> None:  # noqa: B027 (there may be nothing to do)
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


class _Turns:
    """Who is next: the most urgent first, and of these whoever came first."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._came = 0

    async def take(self, urgency: int) -> None:
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._came += 1
        heapq.heappush(self._waiting, (-urgency, self._came, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give()
            raise

    def give(self) -> None:
        while self._waiting:
            _, _, turn = heapq.heappop(self._waiting)
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


class ProcessPool(ComputePool):
    """Worker processes, which need no guarded ``__main__``. A worker that dies is replaced."""

    def __init__(self, workers: int | None = None) -> None:
        self.parallelism = workers or cores()
        self._arrays = SharedArrays()
        self._right_of_way: RightOfWay | None = None
        # One computation at work and one at hand for each worker; others can be overtaken.
        self._turns = _Turns(2 * self.parallelism)
        self._executor = self._started()

    def _started(self) -> loky.ProcessPoolExecutor:
        # Idle workers stay: their tables of powers are worth more than their memory.
        # The context is asked for by its class: by its name, joblib's copy of loky would answer.
        return loky.ProcessPoolExecutor(
            self.parallelism,
            timeout=None,
            context=LokyContext(),
            initializer=_serve,
            initargs=(os.getpid(),),
        )

    async def run(self, computation: Computation, on_done: OnDone = lambda _: None) -> Any:
        await self._turns.take(getattr(computation, "urgency", 0))
        try:
            result, span = await self._run(computation)
        finally:
            self._turns.give()
        on_done(span)
        return result

    def give_way(self, to: RightOfWay) -> None:
        self._right_of_way = to

    async def _run(self, computation: Computation) -> Any:
        gives_way = self._right_of_way is not None
        if self._right_of_way is not None:
            # Small computations end in quick succession, and each ends with work for this process.
            await self._right_of_way.give()
        work = await asyncio.to_thread(self._arrays.pickled, computation)
        executor = self._executor
        try:
            return await asyncio.wrap_future(executor.submit(_run_as, work, gives_way))
        except BrokenProcessPool:
            log.warning("a compute worker died; its work is done again")
        if executor is self._executor:
            self._executor = self._started()
        try:
            return await asyncio.wrap_future(self._executor.submit(_run_as, work, gives_way))
        except BrokenProcessPool:
            raise FedmqError(
                f"{type(computation).__name__}: compute workers die again and again; "
                "is there enough memory?"
            ) from None

    async def close(self) -> None:
        await asyncio.to_thread(self._executor.shutdown, wait=True, kill_workers=True)


def _serve(owner: int) -> None:
    """What a worker does first: it gives way to the event loops, for whose answers people wait."""
    # Ctrl-C in a terminal reaches all; a worker that ends on it may hold the queue of all others.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(_NICENESS)
    _die_with(owner)


def _die_with(owner: int) -> None:
    """Let this worker end when its owner was killed: nobody else would stop it."""

    def watch() -> None:
        while os.getppid() == owner:
            time.sleep(_WATCH_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, name="fedmq-watch", daemon=True).start()


def _run_as(work: bytes, gives_way: bool) -> tuple[Any, Span]:
    # A core that runs a worker of low priority is still some milliseconds late for an event loop
    # that wakes up; one that runs an idle task changes over at once.
    if gives_way and hasattr(os, "SCHED_IDLE") and os.sched_getscheduler(0) != os.SCHED_IDLE:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    return run_pickled(work)


def run_pickled(work: bytes) -> tuple[Any, Span]:
    """The result of a pickled computation, and when it was computed by which process."""
    result, span = _timed(pickle.loads(work))  # noqa: S301 (made by this party a moment ago)
    return result, replace(span, worker=os.getpid())


def _timed(computation: Computation) -> tuple[Any, Span]:
    start, busy = time.time(), time.thread_time()
    result = computation.run()
    busy = time.thread_time() - busy
    return result, Span(threading.get_ident(), start, time.time(), busy)
