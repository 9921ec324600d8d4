"""While something is computed linear algebra has one thread, and otherwise as many as it had."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

from fedmq.party.compute import pool
from fedmq.party.compute.pool import SINGLE_THREAD, ComputePool, ThreadPool
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


@pytest.mark.parametrize("kind", [ThreadPool, ProcessPool], ids=["threads", "processes"])
async def test_a_product_takes_no_other_thread(kind: type[ComputePool]) -> None:
    pool = kind()
    await pool.run(Multiply())  # threads of an earlier product may spin for a while
    thread, process = await pool.run(Multiply())
    await pool.close()
    assert process < 1.5 * thread


class _Libraries:
    """Notes what is limited, and given back."""

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
