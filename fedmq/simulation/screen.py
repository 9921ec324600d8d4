"""All parties' columns looked at in one process: `fedmq.screen`, over the daemons' machines."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmq.boosting.correlated_columns import CorrelatedColumns
from fedmq.boosting.screened_columns import ScreenedColumn, chosen_rows, screened_columns
from fedmq.boosting.screened_label import LabelType, ScreenedLabel
from fedmq.computation import Given
from fedmq.errors import ConfigError, DataError
from fedmq.evaluation.screening import Screen
from fedmq.messages.screen import MOST_BINS, MOST_ROWS
from fedmq.party.compute.pool import ThreadPool
from fedmq.party.configuration.job import ScreenJob, SelectSection
from fedmq.party.configuration.toml_file import check_document
from fedmq.party.data.data_frame import PartyFeatures, party_features
from fedmq.party.data.given_bins import with_bins
from fedmq.party.data.screening import (
    LabelledColumns,
    Pair,
    add_pairs,
    check_hidden,
    correlated_numbers,
    label_check,
    own_columns,
    pair_opening,
    screen_found,
    screen_opening,
    shown_columns,
    told_column,
)
from fedmq.party.telemetry.metrics import Traffic
from fedmq.privacy.lattice.inner_products import ColumnKey
from fedmq.privacy.random_stream import fresh_seed
from fedmq.protocol.machine import Machine
from fedmq.protocol.screen.active import ActiveScreen, Shown, ShownCorrelations
from fedmq.protocol.screen.active_pair import ActivePair
from fedmq.protocol.screen.passive import (
    CorrelatedNumbers,
    OwnColumns,
    PassiveScreen,
    ScreenTerms,
)
from fedmq.protocol.screen.passive_pair import PassivePair
from fedmq.simulation.in_process import MEMORY, in_own_loop, run_machines
from fedmq.simulation.names_of_xgboost import answering_names_of_xgboost
from fedmq.simulation.simulate import check_parties
from fedmq.simulation.tables import ACTIVE, Join, by_index, column_of_rows

__all__ = ["screen", "screened_in_the_clear"]


@answering_names_of_xgboost
def screen(
    *,
    active: Any,
    label: ArrayLike,
    passive: Mapping[str, Any],
    bins: int = 10,
    smallest_group: int = 50,
    names: bool = True,
    measured: bool = True,
    correlation: bool = False,
    label_type: LabelType = "binary",
    sums: Literal["shown", "hidden"] = "shown",
    iv_from: float = 0.02,
    most_rows: int = 50_000,
    seed: int = 0,
    select: Mapping[str, float] | None = None,
    join: Join = "same",
    broker: str = MEMORY,
    column_bins: Mapping[str, Mapping[str, Any]] | None = None,
) -> Screen:
    """Look at all parties' columns before a training, through the daemons' machines.

    Args:
        active: the active party's features, (rows, features): a NumPy array, or a pandas, Polars
            or Arrow data frame.
        label: (rows,), as ``label_type`` says.
        passive: each other party's features by its name, about the same rows.
        bins: into so many a column of numbers is cut at most, at its quantiles.
        smallest_group: bins of fewer rows of a passive party are joined, as its ``[policy]`` has
            it.
        names: whether the passive parties show the names of their columns.
        measured: whether they add up labels by bin; otherwise they only describe their columns.
        correlation: whether they correlate their columns of numbers with the active party's, and
            with one another's, which they cannot read, in hundredths.
        label_type: ``binary``, 0 and 1, told by IV, KS and AUC; ``classes``, numbered from 0 on,
            told by chi-square; or ``number``, told by F.
        sums: ``hidden`` tells of the passive parties' columns no count, but in which step of 0.02 a
            column's information value is, from ``iv`` on and below ``iv_below``; the label is
            binary, with eight rows of either kind at least.
        iv_from: where sums are hidden, lower information values are not told.
        most_rows: so many rows are looked at, drawn by ``seed`` where there are more.
        seed: which rows are drawn.
        select: which columns are ``selected``: ``{"iv": 0.02, "p": 0.01, "top": 100,
            "missing": 0.95, "correlation": 0.9}``, or some of these; ``iv`` is of a binary label.
        join: ``inner`` takes the rows that the indexes of all pandas tables hold, by default all
            must hold the same.
        broker: ``memory://``, or the ``amqp://`` URL of a RabbitMQ.
        column_bins: how parties cut single columns, as in ``fedmq.simulate``.

    Raises:
        ConfigError, DataError: a parameter or a table is wrong.
    """
    check_parties(passive)
    if select is not None:
        check_document(select, "select", Path(), SelectSection)
    _check("bins", bins, 2, MOST_BINS)
    _check("smallest_group", smallest_group, 1, 2**32)
    _check("most_rows", most_rows, 1, MOST_ROWS)
    _check("seed", seed, 0, 2**32 - 1)
    keys: dict[str, Any] = {"label_type": label_type, "select": select, "correlation": correlation}
    keys |= {"sums": sums, "iv_from": iv_from}
    job = ScreenJob.of(
        {"name": "screen", "bins": bins, "most_rows": most_rows, "seed": seed} | keys, "screen"
    )
    matched = by_index({ACTIVE: active, **passive}, {"label": label}, join)
    tables = {party: party_features(data, party) for party, data in matched.tables.items()}
    tables = with_bins(tables, column_bins)
    checked = label_check(label_type)(column_of_rows(matched.beside["label"], "label"), ACTIVE)
    rows = len(checked)
    for party, features in tables.items():
        if len(features.values) != rows:
            raise DataError(f"{party}: {len(features.values)} rows, there are {rows} labels")
    taken = chosen_rows(rows, most_rows, seed)
    looked_at = ScreenedLabel.of(checked[taken], label_type, ACTIVE)
    check_hidden(job, looked_at, ACTIVE)
    with ThreadPoolExecutor(2) as threads:  # what daemons do side by side
        shows = {
            party: threads.submit(_shown, tables[party], taken, bins, smallest_group, correlation)
            for party in passive
            if len(taken) >= smallest_group
        }
        columns, alike, correlated = _own(tables[ACTIVE], taken, bins, correlation)
    own = LabelledColumns("", rows, looked_at, columns, alike, correlated)
    told: dict[str, Any] = {ACTIVE: own_columns(columns, alike, looked_at)}
    traffic = Traffic()
    correlations: dict[str, ShownCorrelations] = {}
    held: dict[str, OwnColumns] = {}
    machines: dict[str, Machine]
    for party in passive:
        if party not in shows:
            told[party] = {"refused": f"{party} shows columns of {smallest_group} people or more"}
            continue
        key = ColumnKey(fresh_seed(), fresh_seed())
        opening = screen_opening(job, own, "", key)
        theirs = shows[party].result()
        terms = ScreenTerms(names, measured, correlation)
        machines = {
            ACTIVE: ActiveScreen(
                party, opening, looked_at, key, correlated.standard, _secret(ACTIVE)
            ),
            party: PassiveScreen(
                ACTIVE,
                Given(theirs),
                lambda terms=terms: terms,  # type: ignore[misc]
                secret=_secret(party),
            ),
        }
        shown: Shown
        shown, _ = in_own_loop(run_machines(machines, ThreadPool(), broker, "training", traffic))
        told[party] = shown_columns(party, shown, own, job.least_steps)
        if shown.correlations is not None:
            correlations[party] = shown.correlations
            held[party] = theirs
    pairs = []
    for pair in itertools.combinations(correlations, 2):
        asks, answers = pair
        paired = pair_opening(job, own, "", pair, correlations[asks])
        machines = {ACTIVE: ActivePair(paired, len(correlations[answers].columns))} | {
            party: PassivePair(
                ACTIVE, other, Given(held[party]), lambda: None, _secret(party), fresh_seed()
            )
            for party, other in (pair, pair[::-1])
        }
        between, *_ = in_own_loop(run_machines(machines, ThreadPool(), broker, "training", traffic))
        pairs.append(Pair(pair, between))
    add_pairs(told, own, correlations, pairs)
    return Screen(screen_found(job, looked_at, rows, told, traffic.total.bytes))


def screened_in_the_clear(
    tables: Mapping[str, PartyFeatures],
    label: ScreenedLabel,
    rows: int,
    job: ScreenJob,
    smallest_group: int,
) -> dict[str, Any]:
    """What a screen of ``tables``, the active party's first, would find, without any message.

    They and the ``label`` hold what is looked at of so many ``rows``. Other parties tell how their
    own columns are correlated, and nothing across parties.
    """
    told: dict[str, Any] = {}
    draw = np.random.default_rng(job.seed)
    for party, held in tables.items():
        smallest = 1 if party == ACTIVE else smallest_group
        columns = list(
            screened_columns(
                held.values, held.names, held.category_columns, job.bins, smallest, held.bins
            )
        )
        names, values = _of_numbers(held.values, held.names, columns)
        if party == ACTIVE:
            told[party] = own_columns(columns, CorrelatedColumns.of(values, names), label)
            continue
        numbers = correlated_numbers(values, columns, smallest)
        shown = [column.for_others(smallest, draw) for column in columns]
        told[party] = {
            "columns": [
                told_column(number, column, label) for number, column in enumerate(shown, 1)
            ],
            "correlation": {
                "columns": list(numbers.columns),
                "coefficients": (numbers.own / 100).tolist(),
            },
        }
    return screen_found(job, label, rows, told, 0)


def _own(
    features: PartyFeatures, rows: NDArray[np.intp], bins: int, correlation: bool
) -> tuple[list[ScreenedColumn], CorrelatedColumns, CorrelatedNumbers]:
    """The active party's columns, how they are alike, and what is correlated with others'."""
    values, names, categories = _of_rows(features, rows)
    columns = list(screened_columns(values, names, categories, bins, 1, features.bins))
    numbers, of_numbers = _of_numbers(values, names, columns)
    alike = CorrelatedColumns.of(of_numbers, numbers)
    return columns, alike, correlated_numbers(of_numbers, columns, own=True, wanted=correlation)


def _shown(
    features: PartyFeatures,
    rows: NDArray[np.intp],
    bins: int,
    smallest: int,
    correlation: bool,
) -> OwnColumns:
    """What a passive party with these features shows."""
    values, names, categories = _of_rows(features, rows)
    columns = list(screened_columns(values, names, categories, bins, smallest, features.bins))
    numbers = None
    if correlation:
        _, of_numbers = _of_numbers(values, names, columns)
        numbers = correlated_numbers(of_numbers, columns, smallest)
    draw = np.random.default_rng()
    shown = [column.for_others(smallest, draw) for column in columns]
    return OwnColumns(shown, numbers=numbers if numbers and numbers.columns else None)


def _of_numbers(
    values: NDArray[np.float32], names: Sequence[str], columns: Sequence[ScreenedColumn]
) -> tuple[list[str], NDArray[np.float32]]:
    """Of ``values`` (rows, names) the columns of numbers among ``columns``, with their names."""
    numbers = [column.name for column in columns if column.kind == "number"]
    if len(numbers) < len(names):
        values = values[:, [names.index(name) for name in numbers]]
    return numbers, values


def _secret(party: str) -> bytes:
    """What a daemon keeps in its state folder. Here it hides nothing, and is the same each time."""
    return hashlib.blake2b(party.encode(), digest_size=32).digest()


def _of_rows(
    features: PartyFeatures, rows: NDArray[np.intp]
) -> tuple[NDArray[np.float32], tuple[str, ...], Mapping[str, tuple[str, ...]]]:
    values = features.values
    if len(rows) < len(values):  # they ascend
        values = values[rows]
    return values, features.names, features.category_columns


def _check(name: str, value: int, least: int, most: int) -> None:
    if not isinstance(value, int) or not least <= value <= most:
        raise ConfigError(f"{name} = {value!r}: a whole number from {least} to {most:,} is needed")
