from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import psutil
import pytest

from fedmq.errors import DataError, FedmqError
from fedmq.party.compute.pool import ComputePool, ThreadPool
from fedmq.party.compute.processes import ProcessPool
from fedmq.transport.link import PriorityGate
from tests.party.compute.computations import Copy, DieAlways, DieOnce, Fail, ProcessId, SumUp


@pytest.fixture
async def processes() -> AsyncIterator[ProcessPool]:
    pool = ProcessPool(2)
    yield pool
    await pool.close()


@pytest.fixture(params=["threads", "processes"])
async def pool(request: pytest.FixtureRequest) -> AsyncIterator[ComputePool]:
    pool = ThreadPool() if request.param == "threads" else ProcessPool(1)
    yield pool
    await pool.close()


async def test_results_come_back(pool: ComputePool) -> None:
    array = np.arange(100_000)
    total, _ = await pool.run(SumUp(array))
    assert total == array.sum()
    np.testing.assert_array_equal(await pool.run(Copy(array)), array)


async def test_errors_come_back_as_they_were_raised(pool: ComputePool) -> None:
    with pytest.raises(DataError, match=r"^bank: data.csv, line 3: nonsense$"):
        await pool.run(Fail())


async def test_processes_are_others_than_this_one(processes: ProcessPool) -> None:
    found = set(await asyncio.gather(*(processes.run(ProcessId()) for _ in range(20))))
    assert os.getpid() not in found
    assert 1 <= len(found) <= 2


async def test_what_takes_less_than_the_way_to_another_process_stays_in_this_one(
    processes: ProcessPool,
) -> None:
    assert await processes.run(ProcessId(brief=True)) == os.getpid()


async def test_a_daemon_that_serves_scores_leaves_all_arithmetic_to_its_workers(
    processes: ProcessPool,
) -> None:
    processes.give_way(PriorityGate())
    assert await processes.run(ProcessId(brief=True)) != os.getpid()


async def test_workers_of_a_daemon_that_serves_scores_run_when_nobody_else_would(
    processes: ProcessPool,
) -> None:
    usual = await processes.run(ProcessId())
    assert os.sched_getscheduler(usual) == os.SCHED_OTHER

    priority_gate = PriorityGate()
    processes.give_way(priority_gate)

    found = set(await asyncio.gather(*(processes.run(ProcessId()) for _ in range(20))))
    assert {os.sched_getscheduler(process) for process in found} == {os.SCHED_IDLE}
    with priority_gate.taken():
        computing = asyncio.create_task(processes.run(ProcessId()))
        await asyncio.wait([computing], timeout=0.01)
        assert not computing.done()
    await computing


async def test_large_arrays_are_shared_not_copied(processes: ProcessPool) -> None:
    _, writeable = await processes.run(SumUp(np.ones(1 << 20)))
    assert not writeable


async def test_work_of_a_worker_that_died_is_done_again(
    processes: ProcessPool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    others = [processes.run(SumUp(np.arange(number))) for number in range(1, 9)]
    with caplog.at_level(logging.WARNING):
        value, *sums = await asyncio.gather(processes.run(DieOnce(tmp_path / "died", 42)), *others)
    assert value == 42
    assert [total for total, _ in sums] == [sum(range(number)) for number in range(1, 9)]
    assert "a compute worker died; the pool repeats its work" in caplog.text
    assert (await processes.run(SumUp(np.ones(3))))[0] == 3


async def test_work_that_always_kills_its_worker_is_given_up(processes: ProcessPool) -> None:
    with pytest.raises(FedmqError, match=r"^DieAlways: compute workers die again and again"):
        await processes.run(DieAlways())


def test_workers_end_when_their_owner_is_killed() -> None:
    script = (
        "import asyncio, time\n"
        "from fedmq.party.compute.processes import ProcessPool\n"
        "from tests.party.compute.computations import ProcessId\n"
        "async def main():\n"
        "    print(await ProcessPool(1).run(ProcessId()), flush=True)\n"
        "    time.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    with owner:
        assert owner.stdout is not None
        worker = psutil.Process(int(owner.stdout.readline()))
        assert worker.is_running()
        owner.kill()
    worker.wait(timeout=60)
