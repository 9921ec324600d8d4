"""A real Dask cluster of several processes on this machine."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from fedmq.boosting.params import TrainParams
from fedmq.errors import DataError, LinkError
from fedmq.party.compute.dask import DaskPool, dask_address
from fedmq.protocol.events import Report
from fedmq.simulation.model import SimulatedModel
from fedmq.simulation.simulate import simulate
from tests.party.compute.computations import Copy

distributed = pytest.importorskip("distributed")

pytestmark = [
    # Dask's own, when a cluster is started and a worker dies.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*:UserWarning:distributed"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with distributed.LocalCluster(
        n_workers=3, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
    ) as cluster:
        yield cluster


def url(cluster: Any) -> str:
    return "dask://" + cluster.scheduler_address.removeprefix("tcp://")


def train(
    compute: str | None, on_report: Any = lambda _: None, engine: str = "ou"
) -> SimulatedModel:
    random = np.random.default_rng(0)
    values = random.normal(size=(2000, 8)).round(1)
    return simulate(
        active=values[:, :4],
        label=values.sum(axis=1) > 0,
        passive={"telco": values[:, 4:]},
        params=TrainParams(num_boost_round=4, max_depth=3, max_bin=16),
        engine=engine,
        engine_options={"key_bits": 1536, "allow_weak_keys": True} if engine == "ou" else {},
        workers=1,
        compute=compute,
        on_report=on_report,
    )


@pytest.mark.long
def test_a_lattice_on_a_cluster_gives_the_model_of_threads(cluster: Any) -> None:
    assert as_text(train(url(cluster), engine="lattice")) == as_text(train(None, engine="plain"))


def as_text(model: SimulatedModel) -> tuple[str, str]:
    return model.share.model_dump_json(), model.passive_shares["telco"].model_dump_json()


@pytest.mark.long
def test_a_worker_killed_in_mid_tree_changes_nothing_of_the_model(cluster: Any) -> None:
    killed: list[int] = []

    def kill_one() -> None:
        killed.append(worker_pids(cluster)[0])
        os.kill(killed[0], signal.SIGKILL)

    def on_report(report: Report) -> None:
        if report.done == 1:
            threading.Timer(0.05, kill_one).start()

    expected = as_text(train(None))
    assert as_text(train(url(cluster), on_report)) == expected
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
