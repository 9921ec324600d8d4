"""One training of tables that are read, with every party in this process."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedmq.boosting.callbacks import Callbacks
from fedmq.boosting.params import TrainParams
from fedmq.computation import Given
from fedmq.errors import ConfigError, DataError
from fedmq.party.compute.dask import DaskPool
from fedmq.party.compute.pool import ComputePool, ThreadPool
from fedmq.party.compute.processes import ProcessPool
from fedmq.party.data.data_frame import PartyFeatures
from fedmq.party.telemetry.metrics import Traffic
from fedmq.party.telemetry.timeline import Timeline
from fedmq.privacy.engine import Engine
from fedmq.protocol.events import Report
from fedmq.protocol.machine import Machine
from fedmq.protocol.training.active import ActiveTraining
from fedmq.protocol.training.decoys import DecoyActiveTraining, check_decoys
from fedmq.protocol.training.passive import FindShare, PassiveTraining
from fedmq.protocol.training.tables import ActiveTable, PassiveTable
from fedmq.simulation.active_table import ACTIVE
from fedmq.simulation.in_process import MEMORY, in_own_loop, run_machines
from fedmq.simulation.model import SimulatedModel
from fedmq.transport.rabbitmq.topology import check_name

__all__ = ["Surroundings", "chained", "check_parties", "run_training", "train"]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where a training runs, and what is seen of it; as in :func:`fedmq.simulate`."""

    broker: str = MEMORY
    workers: int | None = None
    compute: str | None = None
    on_report: Callable[[Report], None] = lambda _: None
    trace: Timeline | None = None
    record: str | Path | None = None
    smallest_cell: int = 0
    decoys: bool = False


def train(
    own: ActiveTable,
    others: Mapping[str, PartyFeatures],
    params: TrainParams,
    engine: Engine,
    surroundings: Surroundings,
    callbacks: Sequence[Any] = (),
    continue_from: SimulatedModel | None = None,
) -> SimulatedModel:
    """Train on the label holder's ``own`` table and those of the ``others``, by name.

    The new trees follow those of ``continue_from``, where there is one.

    Raises:
        ConfigError, DataError: a parameter or a table is wrong.
        LinkError: the broker cannot be used.
    """
    called, traffic = Callbacks(callbacks), Traffic()
    share, *shares = run_training(
        own, others, params, engine, surroundings, called, continue_from, traffic
    )
    broadcast = max(0, len(share.trees) - share.earlier_trees - params.trees_alone)
    return SimulatedModel(share, shares, traffic, engine.epsilon_spent(broadcast))


def run_training(
    own: ActiveTable,
    others: Mapping[str, PartyFeatures],
    params: TrainParams,
    engine: Engine,
    surroundings: Surroundings,
    called: Callbacks | None = None,
    continue_from: SimulatedModel | None = None,
    traffic: Traffic | None = None,
) -> list[Any]:
    """What each party has of one training session, the label holder first; errors as of `train`."""
    smallest_cell = surroundings.smallest_cell
    if smallest_cell < 0:
        raise ConfigError(f"smallest_cell = {smallest_cell}: no fewer than 0 rows")
    if surroundings.decoys:
        check_decoys(engine)
    rows = len(own.label)
    held = {ACTIVE: own.values, **{party: features.values for party, features in others.items()}}
    for party, values in held.items():
        if len(values) != rows:
            raise DataError(f"{party} has {len(values)} rows, there are {rows} labels")
    if rows == 0:
        raise DataError(f"{ACTIVE}: there are no rows")
    called = Callbacks(()) if called is None else called
    called.before_training()
    folder = None if surroundings.record is None else Path(surroundings.record)

    async def run() -> list[Any]:
        pool = _pool(surroundings, engine)
        await pool.start()
        width = pool.parallelism
        kind = DecoyActiveTraining if surroundings.decoys else ActiveTraining
        machines: dict[str, Machine] = {
            ACTIVE: kind(
                "simulated",
                ACTIVE,
                tuple(others),
                own,
                params,
                engine,
                parallelism=width,
                callbacks=called,
                earlier=None if continue_from is None else continue_from.share,
            )
        }
        for party, features in others.items():
            machines[party] = PassiveTraining(
                party,
                ACTIVE,
                Given(
                    PassiveTable(
                        features.values,
                        features.names,
                        category_columns=features.category_columns,
                    )
                ),
                lambda _: engine,
                secrets.randbits(128),
                parallelism=width,
                smallest_cell=smallest_cell,
                find_share=None if continue_from is None else _finder(continue_from, party),
                others=chained(engine, others, party),
            )
        return await run_machines(
            machines,
            pool,
            surroundings.broker,
            "training",
            Traffic() if traffic is None else traffic,
            surroundings.on_report,
            surroundings.trace,
            record=folder,
        )

    results = in_own_loop(run())
    called.after_training()
    return results


def chained(engine: Engine, parties: Iterable[str], party: str) -> tuple[str, ...]:
    """With which other passive ``parties`` one finds winners under ``engine``."""
    return tuple(other for other in parties if other != party) if engine.hides_sums else ()


def _finder(model: SimulatedModel, party: str) -> FindShare:
    """How ``party`` finds its share of ``model``; every model of a simulation has one name."""
    return lambda _: Given(model.passive_shares[party])


def check_parties(tables: Any) -> None:
    """Raise `ConfigError` unless ``tables`` are a dict by names that other parties may have."""
    if not isinstance(tables, Mapping):
        raise ConfigError("passive: a dict of tables by the parties' names is needed")
    for party in tables:
        if not isinstance(party, str):
            raise ConfigError(f"passive: {party!r} is no name of a party; names are text")
        check_name("party", party)
        if party == ACTIVE:
            raise ConfigError(f"passive: {ACTIVE!r} is the name of the label holder here")


def _pool(surroundings: Surroundings, engine: Engine) -> ComputePool:
    if surroundings.compute is not None:
        return DaskPool(surroundings.compute)
    # Light arithmetic takes less time than starting a process.
    return ThreadPool() if engine.light else ProcessPool(surroundings.workers)
