"""All parties in one process: the machines, messages and links of the daemons, and one call."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from fedmq.boosting.objectives.custom import MetricFunction, ObjectiveFunction
from fedmq.boosting.params import TrainParams
from fedmq.computation import Given
from fedmq.errors import ConfigError, DataError
from fedmq.party.compute.dask_pool import DaskPool
from fedmq.party.compute.pool import ComputePool, ThreadPool
from fedmq.party.compute.process_pool import ProcessPool
from fedmq.party.data.data_frame import feature_table
from fedmq.party.telemetry.timeline import Timeline
from fedmq.party.telemetry.traffic import Traffic
from fedmq.privacy.engine import Engine
from fedmq.privacy.registry import engine_named
from fedmq.protocol.events import Report
from fedmq.protocol.machine import Machine
from fedmq.protocol.training.active import ActiveTraining
from fedmq.protocol.training.passive import PassiveTraining
from fedmq.protocol.training.tables import PassiveTable
from fedmq.simulation.active_table import ACTIVE, active_table
from fedmq.simulation.in_process import MEMORY, in_own_loop, run_machines
from fedmq.simulation.model import SimulatedModel
from fedmq.transport.rabbitmq.topology import check_name

__all__ = ["simulate"]


def simulate(
    *,
    active: Any,
    label: ArrayLike,
    passive: Mapping[str, Any],
    weight: ArrayLike | None = None,
    base_margin: ArrayLike | None = None,
    obj: ObjectiveFunction | None = None,
    custom_metric: MetricFunction | None = None,
    maximize: bool | None = None,
    params: TrainParams | Mapping[str, Any] | None = None,
    engine: str = "paillier",
    engine_options: Mapping[str, Any] | None = None,
    key: Any = None,
    broker: str = MEMORY,
    evaluation: ArrayLike | None = None,
    workers: int | None = None,
    compute: str | None = None,
    on_report: Callable[[Report], None] = lambda _: None,
    trace: Timeline | None = None,
    record: str | Path | None = None,
    smallest_cell: int = 0,
) -> SimulatedModel:
    """Train one model with every party in this process, through the daemons' machines.

    Args:
        active: the label holder's features, (rows, features): a NumPy array, or a pandas, Polars
            or Arrow data frame. Missing values are NaN or null.
        label: (rows,); 0 and 1 for ``binary:logistic``. For ``survival:aft`` (rows, 2): lower and
            upper bounds of times, inf above where all is known is that nothing happened yet.
        passive: each other party's features by its name, rows in the same order.
        weight: (rows,) how often each row counts; the other parties do not learn it.
        base_margin: (rows,) the margin that each row starts from, instead of the base score's: the
            logarithm of an exposure, say.
        obj: g and h of (margins, rows), in place of the objective that ``params`` name, which still
            makes predictions of margins; ``rows.get_label()`` and ``get_weight()`` are those of
            ``xgboost.DMatrix``.
        custom_metric: name and value of (predictions, rows), beside ``eval_metric``; of margins
            where there is an ``obj``. Early stopping watches it, and ``maximize`` says whether more
            of it is better; its name does where that is left out, as in XGBoost.
        params: XGBoost's parameters, as :class:`TrainParams` or a dict; its defaults where left
            out.
        engine: ``plain``, ``paillier``, ...; ``engine_options`` are that engine's own.
        key: a ``PaillierPrivateKey`` of python-paillier (phe) for engine ``paillier``, which
            otherwise makes a fresh key. ``key_bits`` is then that key's.
        broker: ``memory://``, or the ``amqp://`` URL of a RabbitMQ where this user may declare
            queues; they are deleted afterwards.
        evaluation: rows that are scored after each tree, but not learned from: a bool mask
            (rows,) or row numbers; or a dict of several such sets by name, of which early stopping
            watches the last.
        workers: worker processes for encryption and encrypted sums; all cores by default.
        compute: ``dask://host:port`` of a Dask scheduler, whose workers compute instead.
        on_report: called after each tree, on another thread.
        trace: collects what every party computed and sent, and when.
        record: a folder; what each party saw is kept in ``<party>.recording`` for ``fedmq.audit``.
        smallest_cell: passive parties merge cells of fewer rows, as their ``[policy]`` would have
            it; 0: none, so that the model of an exact engine is XGBoost's.

    Raises:
        ConfigError, DataError: a parameter or a table is wrong.
        LinkError: the broker cannot be used.
    """
    if not isinstance(params, TrainParams):
        params = TrainParams.parse(params or {}, "params")
    if smallest_cell < 0:
        raise ConfigError(f"smallest_cell = {smallest_cell}: no fewer than 0 rows")
    spec = _engine(engine, engine_options or {}, key)
    values, names = feature_table(active, ACTIVE)
    own = active_table(
        values,
        names,
        params,
        label,
        weight=weight,
        base_margin=base_margin,
        evaluation=evaluation,
        obj=obj,
        custom_metric=custom_metric,
        maximize=maximize,
    )
    rows = len(own.label)
    _check_parties(passive)
    tables = {party: feature_table(data, party) for party, data in passive.items()}
    for party, (table, _) in {ACTIVE: (values, names), **tables}.items():
        if len(table) != rows:
            raise DataError(f"{party} has {len(table)} rows, there are {rows} labels")
    if rows == 0:
        raise DataError(f"{ACTIVE}: there are no rows")
    traffic = Traffic()
    folder = None if record is None else Path(record)

    async def train() -> list[Any]:
        pool = _pool(compute, workers, spec)
        await pool.start()
        width = pool.parallelism
        secret = secrets.randbits(128)
        machines: dict[str, Machine] = {
            ACTIVE: ActiveTraining(
                "simulated", ACTIVE, tuple(tables), own, params, spec, parallelism=width
            )
        }
        for party, (table, features) in tables.items():
            load = Given(PassiveTable(table, features))
            machines[party] = PassiveTraining(
                party,
                ACTIVE,
                load,
                lambda _: spec,
                secret,
                parallelism=width,
                smallest_cell=smallest_cell,
            )
        return await run_machines(
            machines, pool, broker, "training", traffic, on_report, trace, record=folder
        )

    share, *others = in_own_loop(train())
    broadcast = max(0, len(share.trees) - params.trees_alone)
    return SimulatedModel(share, others, traffic, spec.epsilon_spent(broadcast))


def _engine(name: str, options: Mapping[str, Any], key: Any) -> Engine:
    engine = engine_named(name, options, "simulate")
    if key is None:
        return engine
    try:
        return engine.with_key(key)
    except ConfigError as error:
        raise ConfigError(f"simulate: {error}") from None


def _pool(compute: str | None, workers: int | None, engine: Engine) -> ComputePool:
    if compute is not None:
        return DaskPool(compute)
    # Light arithmetic takes less time than starting a process.
    return ThreadPool() if engine.light else ProcessPool(workers)


def _check_parties(tables: Any) -> None:
    if not isinstance(tables, Mapping):
        raise ConfigError("passive: a dict of tables by the parties' names is needed")
    for party in tables:
        if not isinstance(party, str):
            raise ConfigError(f"passive: {party!r} is no name of a party; names are text")
        check_name("party", party)
        if party == ACTIVE:
            raise ConfigError(f"passive: {ACTIVE!r} is the name of the label holder here")
