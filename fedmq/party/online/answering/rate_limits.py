"""What a data owner lets others ask: how often, about whom, and how much about one person."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import RateLimited, Refused
from fedmq.party.configuration.online import OnlineSection

__all__ = ["RateLimits"]

_BURST = 10.0  # seconds of the rate that may come at once
_HOUR = 3600.0
_BATCHES = 1024  # whose rows are remembered as counted
_REMEMBERED = 200_000  # ids of the current hour; beyond, the oldest are forgotten


class _Asked:
    __slots__ = ("records", "since", "times")

    def __init__(self, since: float) -> None:
        self.since = since
        self.times = 0
        self.records: set[int] = set()


class RateLimits:
    """Counts what each caller asks. ``clock`` gives seconds.

    A row counts once per batch, in whatever rounds and however often its questions come.
    """

    def __init__(self, limits: OnlineSection, clock: Callable[[], float]) -> None:
        self.turned_away = 0
        self._limits = limits
        self._clock = clock
        self._filled: dict[str, tuple[float, float]] = {}
        self._batches: OrderedDict[tuple[str, str, int], set[str]] = OrderedDict()
        self._asked: OrderedDict[tuple[str, str], _Asked] = OrderedDict()

    def check(
        self,
        caller: str,
        session: str,
        batch: int,
        ids: Sequence[str],
        rows: NDArray[np.uint32] | None = None,
        records: NDArray[np.uint32] | None = None,
        agree: Callable[[int], None] = lambda _: None,
    ) -> None:
        """Count a question about ``ids``, in mode hop with the pairs (``rows``, ``records``).

        ``agree`` is asked last, with the number of rows that were not counted before.

        Raises:
            RateLimited: it exceeds a limit; nothing was counted.
        """
        counted = self._batches.setdefault((caller, session, batch), set())
        if len(self._batches) > _BATCHES:
            self._batches.popitem(last=False)
        fresh = set(ids) - counted
        try:
            self._count(caller, ids, fresh, rows, records, agree)
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
        agree: Callable[[int], None],
    ) -> None:
        limits, now = self._limits, self._clock()
        left, asked, wanted = 0.0, list[_Asked](), list[set[int]]()
        if limits.rows_per_second is not None:
            most = limits.rows_per_second * _BURST
            before, at = self._filled.get(caller, (most, now))
            left = min(most, before + (now - at) * limits.rows_per_second) - len(fresh)
            if left < 0:
                raise RateLimited("rate", f"more than {limits.rows_per_second} rows per second")
        if limits.scores_per_id is not None or limits.records_per_id is not None:
            asked = [self._about(caller, each, now) for each in ids]
            wanted = self._wanted(len(ids), rows, records)
            for name, each, more in zip(ids, asked, wanted, strict=True):
                most_scores = limits.scores_per_id
                if most_scores is not None and name in fresh and each.times >= most_scores:
                    raise RateLimited("rate", f"more than {most_scores} scores per id and hour")
                most_records = limits.records_per_id
                if most_records is not None and len(each.records | more) > most_records:
                    raise RateLimited(
                        "records", f"more than {most_records} records per id and hour"
                    )
        try:
            agree(len(fresh))
        except Refused as refused:
            raise RateLimited("rate", str(refused)) from None
        for name, each, more in zip(ids, asked, wanted, strict=False):
            each.times += name in fresh
            each.records |= more
        if limits.rows_per_second is not None:
            self._filled[caller] = (left, now)

    def _wanted(
        self, ids: int, rows: NDArray[np.uint32] | None, records: NDArray[np.uint32] | None
    ) -> list[set[int]]:
        wanted: list[set[int]] = [set() for _ in range(ids)]
        if rows is not None and records is not None:
            for row, record in zip(rows.tolist(), records.tolist(), strict=True):
                wanted[row].add(record)
        return wanted

    def _about(self, caller: str, each: str, now: float) -> _Asked:
        key = (caller, each)
        found = self._asked.get(key)
        if found is None or now - found.since > _HOUR:
            found = self._asked[key] = _Asked(now)
            if len(self._asked) > _REMEMBERED:
                self._asked.popitem(last=False)
        return found
