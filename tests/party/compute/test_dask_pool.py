"""A real Dask cluster of several processes on this machine."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix, Cuts, histograms
from fedmq.boosting.params import TrainParams
from fedmq.boosting.row_parts import FEWEST_ROWS
from fedmq.errors import DataError, FedmqError, LinkError
from fedmq.party.compute.dask import DaskPool, dask_address
from fedmq.protocol.events import Report
from fedmq.simulation.model import SimulatedModel
from fedmq.simulation.simulate import simulate
from fedmq.transport.link import PriorityGate
from tests.party.compute.computations import Copy, DieOnce, ProcessId, SumUp

distributed = pytest.importorskip("distributed")

pytestmark = [
    # Dask's own, when a cluster is started and a worker dies.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*:UserWarning:distributed"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


MANY = 40_000  # rows, of which each worker sums its own


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    # A killed worker comes back, however long a busy machine takes.
    patient = pytest.importorskip("dask").config.set(
        {"distributed.deploy.lost-worker-timeout": "10 minutes"}
    )
    with (
        patient,
        distributed.LocalCluster(
            n_workers=3,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            silence_logs=50,
        ) as cluster,
    ):
        yield cluster


@pytest.fixture
async def pool(cluster: Any) -> AsyncIterator[DaskPool]:
    pool = DaskPool(url(cluster))
    await pool.start()
    yield pool
    await pool.close()


def url(cluster: Any) -> str:
    return "dask://" + cluster.scheduler_address.removeprefix("tcp://")


async def test_a_daemon_that_serves_scores_leaves_all_arithmetic_to_its_cluster(
    pool: DaskPool,
) -> None:
    assert await pool.run(ProcessId(brief=True)) == os.getpid()
    pool.give_way(PriorityGate())
    assert await pool.run(ProcessId(brief=True)) != os.getpid()


def train(
    compute: str | None,
    on_report: Any = lambda _: None,
    engine: str = "ou",
    rows: int = 2000,
    hidden: bool = False,
    trees: int = 4,
) -> SimulatedModel:
    options = {"key_bits": 1536, "allow_weak_keys": True} if engine == "ou" else {}
    random = np.random.default_rng(0)
    values = random.normal(size=(rows, 8)).round(1)
    return simulate(
        active=values[:, :4],
        label=values.sum(axis=1) > 0,
        passive={"telco": values[:, 4:]},
        params=TrainParams(num_boost_round=trees, max_depth=3, max_bin=16),
        engine=engine,
        engine_options={"sums": "hidden"} if hidden else options,
        workers=1,
        compute=compute,
        on_report=on_report,
    )


@pytest.mark.long
def test_a_lattice_on_a_cluster_gives_the_model_of_threads(cluster: Any) -> None:
    assert as_text(train(url(cluster), engine="lattice")) == as_text(train(None, engine="plain"))


@pytest.mark.long
def test_hidden_sums_on_a_cluster_give_the_model_of_processes(cluster: Any) -> None:
    found = as_text(train(url(cluster), engine="lattice", rows=200, hidden=True, trees=1))
    assert found == as_text(train(None, engine="lattice", rows=200, hidden=True, trees=1))


@pytest.mark.long
def test_workers_that_each_have_some_rows_give_the_model_of_threads(cluster: Any) -> None:
    assert MANY >= FEWEST_ROWS
    found = as_text(train(url(cluster), engine="plain", rows=MANY))
    assert found == as_text(train(None, engine="plain", rows=MANY))


def as_text(model: SimulatedModel) -> tuple[str, str]:
    return model.share.model_dump_json(), model.passive_shares["telco"].model_dump_json()


@pytest.mark.long
@pytest.mark.parametrize(("engine", "rows"), [("ou", 2000), ("plain", MANY)])
def test_a_worker_killed_in_mid_tree_changes_nothing_of_the_model(
    cluster: Any, engine: str, rows: int
) -> None:
    killed: list[int] = []

    def kill_one() -> None:
        killed.append(worker_pids(cluster)[0])
        os.kill(killed[0], signal.SIGKILL)

    def on_report(report: Report) -> None:
        if report.done == 1:
            threading.Timer(0.05, kill_one).start()

    expected = as_text(train(None, engine=engine, rows=rows))
    assert as_text(train(url(cluster), on_report, engine, rows)) == expected
    assert killed
    assert killed[0] not in worker_pids(cluster)


def worker_pids(cluster: Any) -> list[int]:
    return [nanny.process.pid for nanny in cluster.workers.values()]


async def test_what_a_computation_raises_comes_back_as_it_was(cluster: Any) -> None:
    pool = DaskPool(url(cluster))
    await pool.start()
    try:
        assert pool.parallelism >= 2
        array = np.arange(10)
        np.testing.assert_array_equal(await pool.run(Copy(array)), array)
        with pytest.raises(DataError, match="no such row"):
            await pool.run(Failing())
    finally:
        await pool.close()


async def test_a_large_array_is_sent_once_and_let_go_with_its_owner(pool: DaskPool) -> None:
    sent = watched_sendings(pool)
    array = np.asfortranarray(np.arange(200_000, dtype=np.int64).reshape(-1, 2))
    total, keepers = array.sum(), await asyncio.gather(*(held(pool, at) for at in pool._workers))
    for _ in range(3):
        found, _ = await pool.run(SumUp(array))
        assert found == total
    assert len(sent) == 1
    [worker] = pool._arrays.workers_of(array)
    assert await held(pool, worker) == 1
    del array
    sent.clear()
    gc.collect()
    await eventually(lambda: held(pool, worker), 0)
    assert keepers == [0] * len(pool._workers)


async def test_what_a_worker_made_is_not_sent_back_to_it(pool: DaskPool) -> None:
    sent = watched_sendings(pool)
    made = await pool.run(Copy(np.arange(200_000)))
    assert len(sent) == 1
    assert made.flags.aligned
    found, _ = await pool.run(SumUp(made))
    assert found == made.sum()
    assert len(sent) == 1


async def test_every_worker_sums_its_own_rows(pool: DaskPool) -> None:
    sent, bins, gradients, nodes = watched_sendings(pool), *table_of(300_000)
    expected = histograms(bins, gradients, nodes)
    for _ in range(2):
        found = await pool.run(histograms.bind(bins, gradients, nodes))
        np.testing.assert_array_equal(found, expected)
    rows = [array for array, _ in sent if array.shape[1:] == bins.codes.shape[1:]]
    assert [len(array) for array in rows] == [300_000 // pool._parts] * pool._parts
    assert all(array.flags.f_contiguous for array in rows)
    assert {worker for _, worker in sent} == set(pool._workers)


@pytest.mark.long
async def test_a_worker_that_dies_costs_its_rows_alone(cluster: Any, pool: DaskPool) -> None:
    bins, gradients, nodes = table_of(300_000)
    expected = histograms(bins, gradients, nodes)
    await pool.run(histograms.bind(bins, gradients, nodes))
    sent, dead = watched_sendings(pool), pool._homes[1]
    kill(cluster, dead)
    running = [pool.run(histograms.bind(bins, gradients, nodes)) for _ in range(4)]
    for found in await asyncio.gather(*running):
        np.testing.assert_array_equal(found, expected)
    assert dead not in pool._homes.values()
    rows = [array for array, _ in sent if array.shape[1:] == bins.codes.shape[1:]]
    assert [len(array) for array in rows] == [300_000 // pool._parts]


@pytest.mark.long
async def test_a_worker_that_dies_at_work_or_idle_changes_no_result(
    cluster: Any, pool: DaskPool, tmp_path: Path
) -> None:
    array = np.arange(200_000)
    await pool.run(SumUp(array))
    [worker] = pool._arrays.workers_of(array)
    kill(cluster, worker)
    found, _ = await pool.run(SumUp(array))
    assert found == array.sum()
    assert await pool.run(DieOnce(tmp_path / "died", 7)) == 7


@pytest.mark.long
async def test_a_cluster_that_loses_its_workers_for_good_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fedmq.party.compute.dask._WITHOUT_WORKERS", 1.0)
    with distributed.LocalCluster(
        n_workers=1, processes=False, dashboard_address=None, silence_logs=50
    ) as cluster:
        pool = DaskPool(url(cluster))
        await pool.start()
        try:
            assert await pool.run(ProcessId()) == os.getpid()
            cluster.scale(0)
            await eventually(lambda: scheduled(pool), {})
            with pytest.raises(FedmqError, match="has no workers"):
                await pool.run(ProcessId())
        finally:
            await pool.close()


def watched_sendings(pool: DaskPool) -> list[tuple[NDArray[Any], str]]:
    """What is sent to workers from now on, and to whom."""
    sent: list[tuple[NDArray[Any], str]] = []
    ask = pool._answer

    async def watched(worker: str, method: str, **arguments: Any) -> Any:
        if method == "run":
            sent.extend((array, worker) for array in arguments["order"].sent.values())
        return await ask(worker, method, **arguments)

    pool._answer = watched  # type: ignore[method-assign]
    return sent


def table_of(
    rows: int,
) -> tuple[BinMatrix, NDArray[np.int64], list[NDArray[np.int32]]]:
    """Bins, gradients, and the rows of two nodes."""
    random = np.random.default_rng(0)
    values = random.normal(size=(rows, 3)).astype(np.float32)
    bins = BinMatrix.of(values, Cuts.of(values[:1000], 16))
    left = random.random(rows) < 0.5
    nodes = [np.flatnonzero(held).astype(np.int32) for held in (left, ~left)]
    return bins, random.integers(-(2**40), 2**40, size=(rows, 2)), nodes


async def held(pool: DaskPool, worker: str) -> int:
    """How many arrays ``worker`` keeps for ``pool``."""
    answer = await pool._answer(worker, "count")
    found: int = answer["result"]
    return found


async def scheduled(pool: DaskPool) -> dict[str, int]:
    pool._seen = 0.0
    await pool._look()
    return pool._workers


async def eventually(ask: Callable[[], Awaitable[Any]], expected: Any) -> None:
    """Wait until ``ask`` answers ``expected``."""
    async with asyncio.timeout(60):
        found = await ask()
        while found != expected:
            await asyncio.sleep(0.05)
            found = await ask()


def kill(cluster: Any, worker: str) -> None:
    """Kill the process of ``worker``."""
    [pid] = [
        nanny.process.pid for nanny in cluster.workers.values() if nanny.worker_address == worker
    ]
    os.kill(pid, signal.SIGKILL)


class Failing:
    label = "Failing"

    def run(self) -> None:
        raise DataError("no such row")


async def test_a_scheduler_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fedmq.party.compute.dask._CONNECT", 0.5)
    with pytest.raises(LinkError, match="no Dask scheduler with workers answers at dask://"):
        await DaskPool("dask://127.0.0.1:9").start()


def test_addresses_are_those_of_dask_under_another_scheme() -> None:
    assert dask_address("dask://head:8786") == "tcp://head:8786"
    assert dask_address("dask://tls://head:8786") == "tls://head:8786"
    with pytest.raises(ValueError, match="no address of a Dask scheduler"):
        dask_address("head:8786")
