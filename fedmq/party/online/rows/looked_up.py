"""Rows that are looked up by id when somebody asks for them, and kept for a while."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from fedmq.errors import DataError, RowsUnavailable
from fedmq.party.data.sources.sql_pool import SqlPool
from fedmq.party.online.rows.lookup import Lookup
from fedmq.party.online.rows.row_cache import Known, RowCache
from fedmq.party.online.rows.rows import Rows, ServedRows
from fedmq.party.telemetry.metrics import LookupCounters

__all__ = ["LookedUpRows"]

_IDS_PER_STATEMENT = 500  # the smallest limit of a database in use, SQLite's of old, is 999


class LookedUpRows(ServedRows):
    """The rows that ``lookup`` finds through ``pool``, kept in a cache, unknown ids among them.

    All who ask for an id that is being fetched wait for the one statement: questions that are
    repeated because a database is slow do not make it slower.
    """

    def __init__(
        self,
        lookup: Lookup,
        pool: SqlPool,
        counters: LookupCounters,
        entries: int,
        max_age: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.features = lookup.features
        self._lookup = lookup
        self._pool = pool
        self._counters = counters
        self._cache = RowCache(entries, max_age, clock)
        self._fetching: dict[str, asyncio.Task[Known | None]] = {}

    async def about(self, ids: Sequence[str], seconds: float) -> Rows:
        asked = dict.fromkeys(ids)
        known = dict(self._cache.find(asked))
        missing = [name for name in asked if name not in known]
        self._counters.hits += len(known)
        self._counters.misses += len(missing)
        for part in _parts([name for name in missing if name not in self._fetching]):
            self._fetching |= dict.fromkeys(part, asyncio.create_task(self._fetch(part)))
        fetches = {self._fetching[name] for name in missing}
        if fetches:
            done, failed = await asyncio.wait(fetches, timeout=seconds)
            for fetch in done:
                fetched = None if fetch.cancelled() else fetch.result()
                if fetched is None:
                    failed.add(fetch)
                else:
                    known |= fetched
            if failed:
                raise RowsUnavailable(f"{self._lookup.party}: its rows cannot be looked up now")
        rows = {name: row for name in asked if (row := known[name]) is not None}
        shape = len(rows), len(self.features)
        values = np.array(list(rows.values()), np.float32).reshape(shape)
        return Rows.of(self.features, values, tuple(rows))

    async def _fetch(self, ids: Sequence[str]) -> Known | None:
        """The rows of ``ids``; None if the database does not answer, which is in the log."""
        with self._counters.lookup():
            try:
                known = await self._pool.run(partial(self._lookup.read, ids=ids))
            except DataError:
                self._counters.failures += 1
                return None
            finally:
                for name in ids:
                    del self._fetching[name]
        self._cache.put(known)
        return known


def _parts(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(ids), _IDS_PER_STATEMENT):
        yield ids[start : start + _IDS_PER_STATEMENT]
