"""How much a data owner lets others ask: rows per second, scores and records per person."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import RateLimited, Refused
from fedmq.party.configuration.online import OnlineSection

__all__ = ["AskedShare", "RateLimits"]

_BURST_SECONDS = 10.0  # of the rate that may come at once
_HOUR_SECONDS = 3600.0
_MOST_BATCHES = 1024  # of which the counted rows are remembered
_MOST_IDS = 100_000  # that are remembered for an hour; beyond, the oldest are forgotten


@dataclass(frozen=True, slots=True)
class AskedShare:
    """Of which model records are asked; ``most_records`` of it an hour where no limit is set."""

    model: str = ""
    most_records: int | None = None


class _HourOfId:
    """What one caller asked about one id within an hour that begins at ``since``."""

    __slots__ = ("records", "scores", "since")

    def __init__(self, since: float) -> None:
        self.since = since
        self.scores = 0
        self.records: dict[str, int] = {}
        """By model: a bit for each record."""


class RateLimits:
    """Counts what each caller asks; ``clock`` gives seconds.

    A row counts once per batch, whatever the number of its questions and of their repetitions.
    """

    def __init__(self, limits: OnlineSection, clock: Callable[[], float]) -> None:
        self.turned_away = 0
        """How many questions went beyond a limit."""
        self._limits = limits
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}
        """By caller: rows that may come at once, and when that was so (a token bucket)."""
        self._batches: OrderedDict[tuple[str, str, int], set[str]] = OrderedDict()
        """By caller, session and batch: ids that are counted already."""
        self._hours: OrderedDict[tuple[str, str], _HourOfId] = OrderedDict()
        """By caller and id."""

    def check(
        self,
        caller: str,
        session: str,
        batch: int,
        ids: Sequence[str],
        rows: NDArray[np.uint32] | None = None,
        records: NDArray[np.uint32] | None = None,
        share: AskedShare | None = None,
        agree: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Count a question about ``ids``; in mode hop ``records`` are asked of ``rows``.

        ``rows`` are places in ``ids``, uint32 (pairs,), as are the ``records`` beside them.
        ``agree`` is called last, with the number of rows that were not counted before; it may
        raise `Refused`.

        Raises:
            RateLimited: it exceeds a limit; nothing was counted.
        """
        counted = self._batches.setdefault((caller, session, batch), set())
        if len(self._batches) > _MOST_BATCHES:
            self._batches.popitem(last=False)
        fresh = set(ids) - counted
        try:
            self._count(caller, ids, fresh, rows, records, share or AskedShare(), agree)
        except RateLimited:
            self.turned_away += 1
            raise
        counted |= fresh

    def _count(
        self,
        caller: str,
        ids: Sequence[str],
        fresh: set[str],
        rows: NDArray[np.uint32] | None,
        records: NDArray[np.uint32] | None,
        share: AskedShare,
        agree: Callable[[int], None],
    ) -> None:
        limits, now = self._limits, self._clock()
        left, hours, wanted = 0.0, list[_HourOfId](), list[int]()
        if limits.rows_per_second is not None:
            most = limits.rows_per_second * _BURST_SECONDS
            before, since = self._buckets.get(caller, (most, now))
            left = min(most, before + (now - since) * limits.rows_per_second) - len(fresh)
            if left < 0:
                raise RateLimited("rate", f"more than {limits.rows_per_second} rows per second")
        most_records = limits.records_per_id or share.most_records
        if limits.scores_per_id is not None or most_records is not None:
            hours = [self._hour(caller, name, now) for name in ids]
            wanted = self._wanted(len(ids), rows, records)
            for name, hour, more in zip(ids, hours, wanted, strict=True):
                most_scores = limits.scores_per_id
                if most_scores is not None and name in fresh and hour.scores >= most_scores:
                    raise RateLimited("rate", f"more than {most_scores} scores per id and hour")
                known = hour.records.get(share.model, 0)
                if most_records is not None and (known | more).bit_count() > most_records:
                    raise RateLimited(
                        "records", f"more than {most_records} records per id and hour"
                    )
        try:
            agree(len(fresh))
        except Refused as refused:
            raise RateLimited("rate", str(refused)) from None
        for name, hour, more in zip(ids, hours, wanted, strict=False):
            hour.scores += name in fresh
            if more:
                hour.records[share.model] = hour.records.get(share.model, 0) | more
        if limits.rows_per_second is not None:
            self._buckets[caller] = (left, now)

    def _wanted(
        self, ids: int, rows: NDArray[np.uint32] | None, records: NDArray[np.uint32] | None
    ) -> list[int]:
        """By place in the ids: a bit for each record that is asked for."""
        if rows is None or records is None or not len(records):
            return [0] * ids
        asked = np.zeros((ids, int(records.max()) // 8 + 1), np.uint8)
        np.bitwise_or.at(asked, (rows, records >> 3), np.left_shift(1, records & 7, dtype=np.uint8))
        return [int.from_bytes(row.tobytes(), "little") for row in asked]

    def _hour(self, caller: str, name: str, now: float) -> _HourOfId:
        key = (caller, name)
        hour = self._hours.get(key)
        if hour is None or now - hour.since > _HOUR_SECONDS:
            hour = self._hours[key] = _HourOfId(now)
            if len(self._hours) > _MOST_IDS:
                self._hours.popitem(last=False)
        return hour
