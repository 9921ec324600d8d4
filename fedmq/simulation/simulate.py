"""All parties in one process: the machines, messages and links of the daemons, and one call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import ArrayLike

from fedmq.boosting.objectives.custom import MetricFunction, ObjectiveFunction
from fedmq.boosting.params import TrainParams
from fedmq.errors import ConfigError
from fedmq.party.data.data_frame import party_features
from fedmq.party.telemetry.timeline import Timeline
from fedmq.privacy.engine import Engine
from fedmq.privacy.registry import engine_named
from fedmq.protocol.events import Report
from fedmq.simulation.active_table import ACTIVE, active_table
from fedmq.simulation.in_process import MEMORY
from fedmq.simulation.model import SimulatedModel
from fedmq.simulation.row_index import by_index
from fedmq.simulation.training import Surroundings, check_parties, train

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
    callbacks: Sequence[Any] = (),
    continue_from: SimulatedModel | None = None,
    decoys: bool = False,
) -> SimulatedModel:
    """Train one model with every party in this process, through the daemons' machines.

    Rows of pandas tables are matched by their indexes, in the order of the label holder's; those of
    other tables by position.

    Args:
        active: the label holder's features, (rows, features): a NumPy array, or a pandas, Polars
            or Arrow data frame. Missing values are NaN or null.
        label: (rows,); 0 and 1 for ``binary:logistic``. For ``survival:aft`` (rows, 2): lower and
            upper bounds of times, inf above where all is known is that nothing happened yet.
        passive: each other party's features by its name, about the same rows.
        weight: (rows,) how often each row counts; the other parties do not learn it.
        base_margin: (rows,) the margin that each row starts from, instead of the base score's: the
            logarithm of an exposure, say.
        obj: g and h of (margins, rows), in place of the objective that ``params`` name, which still
            makes predictions of margins; ``rows.get_label()`` and ``get_weight()`` are those of
            ``xgboost.DMatrix``.
        custom_metric: name and value of (predictions, rows), beside ``eval_metric``; of margins
            where there is an ``obj``. Early stopping watches it, and ``maximize`` says whether more
            of it is better; its name does where that is left out, as in XGBoost.
        params: XGBoost's parameters, as ``TrainParams`` or a dict; its defaults where left
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
        callbacks: called before and after each round, as ``xgboost.train`` calls them, on another
            thread: ``fedmq.TrainingCallback`` or ``xgboost.callback.TrainingCallback``.
        continue_from: a model whose trees come first, as with XGBoost's ``xgb_model``; its columns,
            objective and base score are those of the new trees, and parties may join.
        decoys: every split decision comes with decoys to the parties that do not split, as in a
            job; the model is the same.

    Raises:
        ConfigError, DataError: a parameter or a table is wrong.
        LinkError: the broker cannot be used.
    """
    if not isinstance(params, TrainParams):
        params = TrainParams.parse(params or {}, "params")
    spec = _engine(engine, engine_options or {}, key)
    check_parties(passive)
    matched = by_index(
        {ACTIVE: active, **passive},
        {"label": label, "weight": weight, "base_margin": base_margin},
    )
    tables = {party: party_features(data, party) for party, data in matched.tables.items()}
    own = active_table(
        tables.pop(ACTIVE),
        params,
        matched.beside["label"],
        weight=matched.beside["weight"],
        base_margin=matched.beside["base_margin"],
        evaluation=evaluation,
        obj=obj,
        custom_metric=custom_metric,
        maximize=maximize,
    )
    surroundings = Surroundings(
        broker, workers, compute, on_report, trace, record, smallest_cell, decoys
    )
    return train(own, tables, params, spec, surroundings, callbacks, continue_from)


def _engine(name: str, options: Mapping[str, Any], key: Any) -> Engine:
    engine = engine_named(name, options, "simulate")
    if key is None:
        return engine
    try:
        return engine.with_key(key)
    except ConfigError as error:
        raise ConfigError(f"simulate: {error}") from None
