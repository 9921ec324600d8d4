"""While something is computed linear algebra has one thread, and otherwise as many as it had."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from fedmq.party.compute import pool
from fedmq.party.compute.pool import SINGLE_THREAD, ThreadPool
from fedmq.party.compute.processes import ProcessPool


@dataclass(frozen=True)
class Multiply:
    """Seconds of a core that products take of this thread, and of the process."""

    label: ClassVar[str] = "Multiply"

    def run(self) -> tuple[float, float]:
        left, right = np.ones((600, 4096)), np.ones((4096, 60))
        process, thread = time.process_time(), time.thread_time()
        for _ in range(40):
            left @ right
        return time.thread_time() - thread, time.process_time() - process


@dataclass(frozen=True)
class CountThreads:
    """The threads that each library of linear algebra would take."""

    label: ClassVar[str] = "CountThreads"

    def run(self) -> set[int]:
        return threads_of_libraries()


def threads_of_libraries() -> set[int]:
    return {
        library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"
    }


async def test_a_product_takes_no_other_thread_of_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")  # tests have one
    pool = ProcessPool()
    await pool.run(Multiply())  # threads of an earlier product may spin for a while
    thread, process = await pool.run(Multiply())
    await pool.close()
    assert process < 1.5 * thread


async def test_a_product_takes_no_other_thread_of_this_process() -> None:
    pool = ThreadPool()
    in_its_thread = partial(asyncio.get_running_loop().run_in_executor, pool._executor)
    more = await in_its_thread(threadpool_limits, 2, "blas")  # tests have one
    assert await pool.run(CountThreads()) == {1}
    assert threads_of_libraries() == {2}
    await in_its_thread(more.restore_original_limits)
    await pool.close()


class _Libraries:
    """Notes what is limited, and given back."""

    lib_controllers = ()

    def __init__(self) -> None:
        self.limits: list[int | None] = []

    def limit(self, *, limits: int, user_api: str) -> _Libraries:
        assert user_api == "blas"
        self.limits.append(limits)
        return self

    def restore_original_limits(self) -> None:
        self.limits.append(None)


def test_the_last_of_several_computations_gives_the_threads_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    libraries = _Libraries()
    monkeypatch.setattr(pool, "_libraries", lambda: libraries)
    with SINGLE_THREAD:
        with SINGLE_THREAD:
            assert libraries.limits == [1]
        assert libraries.limits == [1]
    assert libraries.limits == [1, None]
    with pytest.raises(ZeroDivisionError), SINGLE_THREAD:
        _ = 1 / 0
    assert libraries.limits == [1, None, 1, None]
