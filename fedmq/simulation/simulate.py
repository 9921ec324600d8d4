"""All parties in one process: the machines, messages and links of the daemons, and one call."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from numpy.typing import ArrayLike

from fedmq.boosting.callbacks import Callbacks
from fedmq.boosting.objectives.custom import MetricFunction, ObjectiveFunction
from fedmq.boosting.params import TrainParams
from fedmq.computation import Given
from fedmq.errors import ConfigError, DataError
from fedmq.party.compute.dask import DaskPool
from fedmq.party.compute.pool import ComputePool, ThreadPool
from fedmq.party.compute.processes import ProcessPool
from fedmq.party.data.data_frame import PartyFeatures, party_features
from fedmq.party.data.given_bins import with_bins
from fedmq.party.telemetry.metrics import Traffic
from fedmq.party.telemetry.timeline import Timeline
from fedmq.privacy.engine import Engine, SumsShown
from fedmq.privacy.registry import cheapest_to_hide_sums, engine_named
from fedmq.protocol.events import Report
from fedmq.protocol.machine import Machine
from fedmq.protocol.training.active import ActiveTraining
from fedmq.protocol.training.active_growth import check_decoys
from fedmq.protocol.training.passive import FindShare, PassiveTraining
from fedmq.protocol.training.terms import ActiveTable, PassiveTable
from fedmq.simulation.evaluation_rows import training_tables
from fedmq.simulation.in_process import MEMORY, in_own_loop, run_machines
from fedmq.simulation.model import SimulatedModel
from fedmq.simulation.names_of_xgboost import answering_names_of_xgboost
from fedmq.simulation.repeated_ids import by_person, check_duplicates
from fedmq.simulation.signs import parsed, with_signs
from fedmq.simulation.tables import ACTIVE, Join, active_table, by_index, targets_of, with_queries
from fedmq.transport.rabbitmq.topology import check_name

__all__ = ["Surroundings", "chained", "check_parties", "run_training", "simulate", "train"]


@answering_names_of_xgboost
def simulate(
    *,
    active: Any,
    label: ArrayLike,
    passive: Mapping[str, Any],
    qid: ArrayLike | None = None,
    weight: ArrayLike | None = None,
    base_margin: ArrayLike | None = None,
    obj: ObjectiveFunction | None = None,
    custom_metric: MetricFunction | None = None,
    maximize: bool | None = None,
    params: TrainParams | Mapping[str, Any] | None = None,
    engine: str | None = None,
    engine_options: Mapping[str, Any] | None = None,
    sums: SumsShown | None = None,
    key: Any = None,
    broker: str = MEMORY,
    evaluation: Any = None,
    join: Join = "same",
    duplicates: Literal["each", "hidden"] = "each",
    workers: int | None = None,
    compute: str | None = None,
    on_report: Callable[[Report], None] = lambda _: None,
    trace: Timeline | None = None,
    record: str | Path | None = None,
    smallest_cell: int = 0,
    callbacks: Sequence[Any] = (),
    continue_from: SimulatedModel | None = None,
    decoys: bool = False,
    column_bins: Mapping[str, Mapping[str, Any]] | None = None,
) -> SimulatedModel:
    """Train one model with every party in this process, through the daemons' machines.

    Rows of pandas tables are matched by their indexes, in the order of the active party's; those of
    other tables by position.

    Args:
        active: the active party's features, (rows, features): a NumPy array, or a pandas, Polars
            or Arrow data frame. Missing values are NaN or null.
        label: (rows,), or (rows, targets) for several; 0 and 1 for ``binary:logistic``. For
            ``survival:aft`` (rows, 2): lower and upper bounds of times, inf above where all is
            known is that nothing happened yet.
        passive: each other party's features by its name, about the same rows.
        qid: (rows,) the number of each row's query, within which ``rank:ndcg``, ``rank:pairwise``
            and ``rank:map`` rank rows; the other parties do not learn it.
        weight: (rows,) how often each row counts; the other parties do not learn it.
        base_margin: (rows,) the margin that each row starts from, instead of the base score's: the
            logarithm of an exposure, say; (rows, margins) of several classes, targets or quantiles.
        obj: g and h of (margins, rows), in place of the objective that ``params`` name, which still
            makes predictions of margins; ``rows.get_label()`` and ``get_weight()`` are those of
            ``xgboost.DMatrix``.
        custom_metric: name and value of (predictions, rows), beside ``eval_metric``; of margins
            where there is an ``obj``. Early stopping watches it, and ``maximize`` says whether more
            of it is better; its name does where that is left out, as in XGBoost.
        params: XGBoost's parameters, as ``TrainParams`` or a dict; its defaults where left
            out. ``monotone_constraints`` name columns, or have a sign for each: the active party's,
            then those of ``passive`` in order.
        engine: ``plain``, ``paillier``, ...; ``engine_options`` are that engine's own. If left out,
            the one that takes the least time to hide ``sums``; ``paillier`` where they are
            ``shown``, or there is a ``key``.
        sums: ``hidden``: no party sees a sum, which is what real data needs: exact sums that are
            shown tell the active party nearly all cells of others' columns
            (docs/measured/leakage.md). If left out, ``hidden`` without an ``engine``, and ``shown``
            with one; as among ``engine_options``.
        key: a ``PaillierPrivateKey`` of python-paillier (phe) for engine ``paillier``, which
            otherwise makes a fresh key. ``key_bits`` is then that key's.
        broker: ``memory://``, or the ``amqp://`` URL of a RabbitMQ where this user may declare
            queues; they are deleted afterwards.
        evaluation: rows that are scored after each tree, but not learned from: a bool mask
            (rows,) or row numbers; or a dict of several such sets by name, of which early stopping
            watches the last. A set may have tables of its own, in a dict as the arguments above:
            ``{"later": {"active": ..., "label": ..., "passive": {"telco": ...}}}``, perhaps with
            ``weight`` and ``base_margin``.
        join: ``inner`` takes the rows that the indexes of all pandas tables hold, by default all
            must hold the same.
        duplicates: the index of ``active`` may name a person several times, and each of these rows
            counts. With ``hidden`` the other parties do not learn how many there are; it takes
            engine ``lattice``, which is then the one that is left out.
        workers: worker processes for encryption and encrypted sums; all cores by default.
        compute: ``dask://host:port`` of a Dask scheduler, whose workers compute instead.
        on_report: called after each tree, on another thread.
        trace: collects what every party computed and sent, and when.
        record: a folder; what each party saw is kept in ``<party>.recording`` for ``fedmq.audit``.
        smallest_cell: passive parties merge cells of fewer rows, as their ``[policy]`` would have
            it; 0: none, so that the model of an exact engine is XGBoost's.
        callbacks: called before and after each round, as ``xgboost.train`` calls them, on another
            thread: ``fedmq.TrainingCallback`` or ``xgboost.callback.TrainingCallback``.
        continue_from: a model whose trees come first, as with XGBoost's ``xgb_model``; its columns,
            objective and base score are those of the new trees, and parties may join.
        decoys: every split decision comes with decoys to the parties that do not split, as in a
            job; the model is the same.
        column_bins: how parties cut single columns, as ``bins`` of their ``[data]``:
            ``{"telco": {"calls": [5, 20], "tenure": 10}}``; ``"active"`` is the active party.

    Raises:
        ConfigError, DataError: a parameter or a table is wrong.
        LinkError: the broker cannot be used.
    """
    params, signs = parsed(params)
    params = params.with_targets(targets_of(params, label))
    check_parties(passive)
    check_duplicates(duplicates)
    matched = (by_person if duplicates == "hidden" else by_index)(
        {ACTIVE: active, **passive},
        {"label": label, "qid": qid, "weight": weight, "base_margin": base_margin},
        join,
    )
    ranked = with_queries(matched.beside["label"], matched.beside["qid"])
    matched = replace(matched, beside={**matched.beside, "label": ranked})
    tables = {party: party_features(data, party) for party, data in matched.tables.items()}
    tables = with_bins(tables, column_bins)
    params = with_signs(params, signs, tables)
    given = training_tables(tables, matched, evaluation, join)
    tables = dict(given.features)
    options = {**(engine_options or {}), **({} if sums is None else {"sums": sums})}
    if engine is None:
        options = {"sums": "hidden", **options}
        shown = options["sums"] == "shown"
        engine = "paillier" if shown or key is not None else _that_hides_sums(tables, params)
        engine = engine if matched.person is None else "lattice"
    spec = _engine(engine, options, key)
    own = active_table(
        tables.pop(ACTIVE),
        params,
        given.beside["label"],
        weight=given.beside["weight"],
        base_margin=given.beside["base_margin"],
        evaluation=given.evaluation,
        obj=obj,
        custom_metric=custom_metric,
        maximize=maximize,
        person=matched.person,
    )
    surroundings = Surroundings(
        broker, workers, compute, on_report, trace, record, smallest_cell, decoys
    )
    return train(own, tables, params, spec, surroundings, callbacks, continue_from)


def _that_hides_sums(tables: Mapping[str, PartyFeatures], params: TrainParams) -> str:
    """The cheapest engine for these tables, of which all columns may fill all bins."""
    rows, _ = tables[ACTIVE].values.shape
    columns = max((tables[party].values.shape[1] for party in tables if party != ACTIVE), default=0)
    trees = params.total_trees - params.trees_alone
    return cheapest_to_hide_sums(rows, columns, columns * params.max_bin, trees, params)


def _engine(name: str, options: Mapping[str, Any], key: Any) -> Engine:
    engine = engine_named(name, options, "simulate")
    if key is None:
        return engine
    try:
        return engine.with_key(key)
    except ConfigError as error:
        raise ConfigError(f"simulate: {error}") from None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where a training runs, and its observers; as in :func:`fedmq.simulate`."""

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
    """Train on the active party's ``own`` table and those of the ``others``, by name.

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
    """Each party's result of one training session, the active party first; errors as of `train`."""
    smallest_cell = surroundings.smallest_cell
    if smallest_cell < 0:
        raise ConfigError(f"smallest_cell = {smallest_cell}: no fewer than 0 rows")
    if surroundings.decoys:
        check_decoys(engine)
    rows = len(own.label)
    if len(own.values) != rows:
        raise DataError(f"{ACTIVE} has {len(own.values)} rows, there are {rows} labels")
    for party, features in others.items():
        if (held := len(features.values)) != own.people:
            what = "labels" if own.person is None else "people"
            raise DataError(f"{party} has {held} rows, there are {own.people} {what}")
    if rows == 0:
        raise DataError(f"{ACTIVE}: there are no rows")
    called = Callbacks(()) if called is None else called
    called.before_training()
    folder = None if surroundings.record is None else Path(surroundings.record)

    async def run() -> list[Any]:
        pool = _pool(surroundings, engine)
        await pool.start()
        width = pool.parallelism
        machines: dict[str, Machine] = {
            ACTIVE: ActiveTraining(
                "simulated",
                ACTIVE,
                tuple(others),
                own,
                params,
                engine,
                parallelism=width,
                callbacks=called,
                earlier=None if continue_from is None else continue_from.share,
                decoys=surroundings.decoys,
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
                        bins=features.bins,
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
    """The other passive ``parties`` with which a passive party finds winners under ``engine``."""
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
            raise ConfigError(f"passive: {ACTIVE!r} is the name of the active party here")


def _pool(surroundings: Surroundings, engine: Engine) -> ComputePool:
    if surroundings.compute is not None:
        return DaskPool(surroundings.compute)
    # Light arithmetic takes less time than starting a process; circuits are always heavy.
    light = engine.traits.light and not engine.hides_sums
    return ThreadPool() if light else ProcessPool(surroundings.workers)
