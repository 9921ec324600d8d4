"""What a pool of workers is."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from fedmq.computation import Computation
from fedmq.party.compute.worker import run_timed
from fedmq.party.telemetry.timeline import Span
from fedmq.transport.priority import PriorityGate

__all__ = ["ComputePool", "OnDone", "ThreadPool"]

OnDone = Callable[[Span], None]
"""Called once a computation has its result, with when and where it was computed."""


class ComputePool(ABC):
    """Runs computations beside the event loop; ``parallelism`` of them at once."""

    parallelism: int

    async def start(self) -> None:
        """Get ready; ``parallelism`` is known afterwards."""
        return

    @abstractmethod
    async def run(self, computation: Computation, on_done: OnDone = lambda _: None) -> Any:
        """The result of ``computation``.

        Raises:
            FedmqError: the computation raised it, or could not be done.
        """

    def give_way(self, to: PriorityGate) -> None:  # noqa: B027 (there may be nothing to do)
        """From now on use only the time of cores that nobody else wants: people wait for scores.

        No computation begins while ``to`` is taken.
        """

    @abstractmethod
    async def close(self) -> None:
        """Stop, and give up the computations that are still running."""


class ThreadPool(ComputePool):
    """One thread of this process: enough for plain NumPy, and nothing to start."""

    parallelism = 1

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="fedmq-compute")

    async def run(self, computation: Computation, on_done: OnDone = lambda _: None) -> Any:
        loop = asyncio.get_running_loop()
        result, span = await loop.run_in_executor(self._executor, run_timed, computation)
        on_done(span)
        return result

    async def close(self) -> None:
        self._executor.shutdown(wait=False, cancel_futures=True)
