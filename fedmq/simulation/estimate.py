"""An estimate of a training's cost, from small trainings of the same kind.

The same machines, engine and parameters train on a few rows and then on more: about ten seconds.
An engine's work grows with the rows and with the splits of a tree; two measurements give both
slopes. The splits of trees on all rows are measured without encryption.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.params import TrainParams
from fedmq.computation import Given
from fedmq.errors import ConfigError, DataError
from fedmq.party.compute.processes import ProcessPool
from fedmq.party.operations.broker import BrokerLatency
from fedmq.privacy.engine import Engine
from fedmq.privacy.registry import engine_named
from fedmq.protocol.training.active_growth import check_decoys
from fedmq.simulation.calibration import Calibration, Measurement
from fedmq.simulation.in_process import in_own_loop
from fedmq.simulation.tables import ACTIVE

__all__ = [
    "CORE_HOUR",
    "GIGABYTE",
    "Estimate",
    "PartyEstimate",
    "Prices",
    "estimate",
    "made_up_table",
]

_FEWEST_ROWS = 1000
_MOST_ROWS = 200_000  # trees on more rows have no more splits
_BUDGET = 8.0  # seconds of trainings
_FAR = 20  # times as many rows as were trained on: worth one more training
_MORE = 4.0  # seconds that it may take longer than the one before
_STAGES = (
    5  # of a message, each as long as the broker's answer: sent, kept, fetched, settled, confirmed
)
_NOISE = 0.2  # of a computation's time, either way
_LONGER = 3  # times as much: hidden sums of many rows, whose quotients are longer
_FREE = BrokerLatency(0.0, 0.0)
_MOST_CHECKED = 1 << 22  # rows; no engine has a limit beyond
_SHARE_OF_ONES = 0.3  # of made-up labels
_TIMES_KEPT = 2  # a party's received messages during a tree: packed and unpacked
_DAEMON = 65 << 20  # bytes that a daemon has for itself, without data
_ROW_READ, _CELL_READ = 250, 8  # bytes of a table while it is read: an id's and a number's


@dataclass(frozen=True, slots=True)
class PartyEstimate:
    """The cost of a training for one party: core seconds, bytes each way, bytes of memory."""

    core_seconds: float
    bytes_sent: float
    bytes_received: float
    memory: float


CORE_HOUR, GIGABYTE = 0.05, 0.09
"""Round figures of January 2025, in USD, near the lists of large clouds."""


@dataclass(frozen=True, slots=True)
class Prices:
    """What a core hour costs, and a gigabyte that leaves a party's, or the broker's, network."""

    core_hour: float = CORE_HOUR
    gigabyte: float = GIGABYTE

    def of_party(self, party: PartyEstimate) -> float:
        """For its cores, and for what it sends."""
        return party.core_seconds / 3600 * self.core_hour + self._leaving(party.bytes_sent)

    def of_broker(self, found: Estimate) -> float:
        """For what leaves it: all that parties receive."""
        return self._leaving(sum(party.bytes_received for party in found.parties.values()))

    def _leaving(self, size: float) -> float:
        return size / 1e9 * self.gigabyte


@dataclass(frozen=True, slots=True)
class Estimate:
    """The cost of a whole training.

    ``together``: seconds if all parties share this machine; ``apart``: if each has one like it.
    ``per_tree``: of ``together``, for a tree after the first that all parties take part in.
    ``open_files``: as many as a daemon or a worker has open at once.
    """

    trees: int
    per_tree: float
    together: float
    apart: float
    parties: Mapping[str, PartyEstimate]
    open_files: int = 0


def estimate(
    *,
    active: NDArray[np.float32],
    label: NDArray[np.float32],
    passive: Mapping[str, Sequence[int]],
    params: TrainParams,
    engine: str,
    engine_options: Mapping[str, Any],
    workers: int | None = None,
    folder: Path | None = None,
    broker: BrokerLatency = _FREE,
    decoys: bool = False,
    rows: int | None = None,
) -> Estimate:
    """Estimate a training on ``active`` (rows, features) and ``label`` (rows,), from small ones.

    ``passive``: how many bins each column of each other party fills. ``folder``: on the disk that
    the parties' states will be on; ``broker``: the latency of the broker between them. ``decoys``:
    as in a job. ``rows``: of how many rows the table is a sample; its own number when left out.

    Raises:
        ConfigError, DataError: as `fedmq.simulate` does, or no engine of this name takes ``rows``.
    """
    spec = engine_named(engine, engine_options, "estimate")
    all_rows = rows or len(label)
    if all_rows > len(label):
        _check_rows(spec, all_rows)
        if len(label) < 2:
            raise ConfigError(f"{len(label)} rows say nothing of {all_rows:,}")
    if decoys:
        check_decoys(spec)

    async def calibrate() -> tuple[list[Measurement], float, int]:
        # Workers keep what their computations load, and the two roles compute different things.
        of_active, of_others = ProcessPool(workers), ProcessPool(workers)
        try:
            # Workers take a while to start.
            await asyncio.gather(of_active.run(Given(None)), of_others.run(Given(None)))
            calibration = Calibration(
                active,
                label,
                passive,
                params,
                spec,
                {ACTIVE: of_active, **dict.fromkeys(passive, of_others)},
                folder,
                decoys=decoys,
                stands_for=all_rows,
            )
            # A sample is repeated up to as many rows as are trained on.
            most = max(len(label), min(all_rows, _MOST_ROWS))
            seen = await _measure(calibration, most, all_rows, spec.hides_sums)
            splits = seen[-1].splits
            if seen[-1].rows < all_rows:
                splits = await calibration.splits(min(_MOST_ROWS, len(label)))
            return seen, splits, of_active.parallelism
        finally:
            await asyncio.gather(of_active.close(), of_others.close())

    seen, splits, width = in_own_loop(calibrate())
    longer = _LONGER if spec.hides_sums else 1.0
    whole = _extrapolated(seen[0], seen[-1], all_rows, splits, width, longer)
    # Cores that wait for messages and for other work wait as long if parties are apart.
    waiting = _waiting(whole, width)
    sent = max((whole.received[party] + whole.sent[party] for party in passive), default=0.0)
    # The broker's answer has brought the bytes back already; what it keeps, it keeps meanwhile.
    on_the_way = _STAGES * whole.messages * broker.message + sent * broker.byte
    opening = whole.first
    if broker.is_far:  # messages follow one another, and each byte takes the link once
        on_the_way = whole.rounds * broker.message + sent * broker.byte
        opening += broker.byte * max(
            (whole.received_once[party] + whole.sent_once[party] for party in passive), default=0.0
        )

    def taken(busy: float) -> float:
        computing = busy / width + waiting
        if spec.hides_sums and broker.is_far:
            # A party makes and reads tables of circuits while other tables travel.
            return max(computing, on_the_way)
        return computing + on_the_way

    per_tree = taken(sum(whole.work.values()))
    others = max((whole.busy(party) for party in passive), default=0.0)
    apart = taken(whole.busy(ACTIVE) + others)
    columns_of = {ACTIVE: active.shape[1]} | {by: len(bins) for by, bins in passive.items()}
    shared = params.total_trees - params.trees_alone
    return Estimate(
        trees=params.total_trees,
        per_tree=per_tree,
        together=per_tree * shared + opening,
        apart=apart * shared + opening,
        parties={
            party: PartyEstimate(
                whole.busy(party) * shared,
                whole.sent[party] * shared + whole.sent_once[party] * bool(shared),
                whole.received[party] * shared + whole.received_once[party] * bool(shared),
                _memory(party, columns, whole, seen, spec),
            )
            for party, columns in columns_of.items()
        },
        open_files=max(measured.files for measured in seen),
    )


def made_up_table(
    rows: int, columns: int, seed: int = 0
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """A party's table for an estimate of ``rows`` rows, and labels 0 and 1, whatever the ``seed``.

    float32 (rows, columns) and (rows,), of so many rows at most as are trained on.
    """
    count = min(rows, _MOST_ROWS)
    label = np.random.default_rng(0).random(count) < _SHARE_OF_ONES
    values = np.random.default_rng([seed, 1]).normal(size=(count, columns)).astype(np.float32)
    values += label[:, None] / np.float32(2)
    return values, label.astype(np.float32)


def _check_rows(spec: Engine, rows: int) -> None:
    """Raise DataError if the engine takes fewer rows."""
    try:
        spec.active(1).start_session(np.ones(min(rows, _MOST_CHECKED), np.bool_))
    except DataError:
        raise DataError(
            f"{rows:,} rows are more than engine {spec.name!r} sums: estimate another engine, "
            "or fewer rows"
        ) from None


async def _measure(
    calibration: Calibration, rows: int, all_rows: int, hidden: bool
) -> list[Measurement]:
    """Measurements on more and more rows, up to ``rows`` or the end of the budget.

    Of two sizes at least, where these are fewer than ``all_rows``.
    """
    begun = time.monotonic()
    fewest = rows // 2 if rows < all_rows else rows
    seen = [await calibration.train(min(_FEWEST_ROWS, fewest))]
    while seen[-1].rows < rows:
        left = _BUDGET - (time.monotonic() - begun)
        if len(seen) > 1 and all_rows > _FAR * seen[-1].rows:
            left = max(left, _MORE + seen[-1].first + 3 * seen[-1].seconds)
        more = min(rows, _affordable(seen, left, hidden))
        if len(seen) > 1 and more < min(rows, 2 * seen[-1].rows):
            break
        seen.append(await calibration.train(more, _expected(seen, more, hidden)))
    return seen


def _affordable(seen: Sequence[Measurement], left: float, hidden: bool = False) -> int:
    """The most rows of a training of three trees within ``left`` seconds.

    Where sums are ``hidden``, hardly any of the time grows with the rows.
    """
    last = seen[-1]
    per_tree = max(0.0, left - last.first) / 3
    rows = last.rows + int((per_tree - last.seconds) / _seconds_per_row(seen))
    if len(seen) == 1:
        rows = max(rows, (200 if hidden else 8 if left > _BUDGET / 2 else 4) * last.rows)
    return rows


def _expected(seen: Sequence[Measurement], rows: int, hidden: bool) -> float:
    """The seconds of a tree on ``rows`` rows."""
    if hidden:
        return seen[-1].seconds
    return seen[-1].seconds + _seconds_per_row(seen) * (rows - seen[-1].rows)


def _seconds_per_row(seen: Sequence[Measurement]) -> float:
    """By which a tree takes longer; of one training, all of its time may grow with the rows."""
    first, last = seen[0], seen[-1]
    if first is last:
        return max(1e-7, last.seconds / last.rows)
    return max(1e-7, (last.seconds - first.seconds) / (last.rows - first.rows))


def _memory(
    party: str, columns: int, whole: Measurement, seen: Sequence[Measurement], spec: Engine
) -> float:
    """The most bytes that a party of so many ``columns`` has at once.

    This process grows by the data of all parties, which are least where the rows are fewest; what
    workers and kernels for many rows load is there where they are most. What a party reads before
    the first tree is gone when messages come.
    """
    alike = _DAEMON + seen[0].grown + seen[-1].code + seen[-1].in_workers[party]
    read = whole.rows * (_ROW_READ + columns * _CELL_READ)
    kept = 0 if spec.hides_sums else _TIMES_KEPT  # tables are read and forgotten
    return alike + max(read, kept * whole.received[party])


def _waiting(seen: Measurement, width: int) -> float:
    """The seconds of a tree that ``width`` cores wait."""
    return max(0.0, seen.seconds - sum(seen.work.values()) / width)


def _extrapolated(
    small: Measurement,
    large: Measurement,
    rows: int,
    splits: float,
    width: int,
    longer: float = 1.0,
) -> Measurement:
    """The cost of ``rows`` rows and trees of ``splits`` splits, from two measurements.

    They were made on ``width`` cores. What the larger one takes up to ``longer`` times as much of
    as the smaller one does not grow with rows any more.
    """
    if large.rows == rows:
        return large
    known = np.array([[measured.rows, measured.splits] for measured in (small, large)])
    asked = np.array([rows, splits])

    def drawn(before: float, after: float, noise: float = 0.0) -> float:
        if before < after < longer * before:
            return after / large.splits * splits
        return float(_slopes(known, np.array([before, after]), noise) @ asked)

    def all_drawn(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
        return {party: drawn(before[party], after[party]) for party in after}

    work = {
        key: drawn(small.work.get(key, 0.0), spent, _NOISE) for key, spent in large.work.items()
    }
    sent = all_drawn(small.sent, large.sent)
    waiting = _waiting_for(small, large, sum(sent.values()), splits, width)
    return replace(
        large,
        rows=rows,
        seconds=waiting + sum(work.values()) / width,
        work=work,
        sent=sent,
        received=all_drawn(small.received, large.received),
        messages=drawn(small.messages, large.messages),
        rounds=drawn(small.rounds, large.rounds),
        splits=splits,
    )


def _waiting_for(
    small: Measurement, large: Measurement, size: float, splits: float, width: int
) -> float:
    """Seconds of a tree of ``size`` bytes that ``width`` cores wait: event loops carry these."""
    # A party alone sends none.
    known = np.array([[max(1.0, sum(seen.sent.values())), seen.splits] for seen in (small, large)])
    waits = np.array([_waiting(small, width), _waiting(large, width)])
    return float(_slopes(known, waits) @ np.array([size, splits]))


def _slopes(
    known: NDArray[np.float64], took: NDArray[np.float64], noise: float = 0.0
) -> NDArray[np.float64]:
    """The two non-negative slopes (2,) by which ``known`` (2, 2) explains ``took`` (2,).

    What splits alone explain, within a share ``noise``, does not grow with rows: of a hundred
    million rows a few milliseconds by chance would make hours.
    """
    if not took[0]:  # a kernel for many rows
        return np.array([took[1] / known[1, 0], 0.0])
    relative = known / np.maximum(took, 1e-12)[:, None]
    target = (took > 0).astype(np.float64)
    alone = np.diag((relative * target[:, None]).sum(axis=0) / (relative**2).sum(axis=0))
    if np.abs(relative @ alone[1] - target).max() <= noise:
        return np.asarray(alone[1])
    both, *_ = np.linalg.lstsq(relative, target, rcond=None)
    if (both >= 0).all():
        return np.asarray(both)
    return np.asarray(min(alone, key=lambda one: float(np.sum((relative @ one - target) ** 2))))
