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
from fedmq.party.telemetry.serving_counters import LookupCounters

__all__ = ["LookedUpRows"]

_IDS_PER_STATEMENT = 500  # the smallest limit of a database in use, SQLite's of old, is 999


class LookedUpRows(ServedRows):
    """What ``lookup`` finds through ``pool``; an id that does not exist is remembered too.

    An id that is being fetched is waited for by all who ask: questions that are repeated because
    a database is slow do not make it slower.
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
        self._coming: dict[str, asyncio.Task[Known | None]] = {}

    async def about(self, ids: Sequence[str], seconds: float) -> Rows:
        asked = dict.fromkeys(ids)
        found = dict(self._cache.find(asked))
        lacking = [each for each in asked if each not in found]
        self._counters.hits += len(found)
        self._counters.misses += len(lacking)
        for part in _parts([each for each in lacking if each not in self._coming]):
            self._coming |= dict.fromkeys(part, asyncio.create_task(self._fetch(part)))
        fetching = {self._coming[each] for each in lacking}
        if fetching:
            _, late = await asyncio.wait(fetching, timeout=seconds)
            for each in fetching - late:
                known = None if each.cancelled() else each.result()
                late |= {each} if known is None else set()
                found |= known or {}
            if late:
                raise RowsUnavailable(f"{self._lookup.party}: its rows cannot be looked up now")
        rows = {each: row for each in asked if (row := found[each]) is not None}
        shape = len(rows), len(self.features)
        values = np.array(list(rows.values()), np.float32).reshape(shape)
        return Rows.of(self.features, values, tuple(rows))

    async def _fetch(self, ids: Sequence[str]) -> Known | None:
        """The rows of ``ids``; None if the database does not tell, which is in the log."""
        with self._counters.lookup():
            try:
                known = await self._pool.run(partial(self._lookup.read, ids=ids))
            except DataError:
                self._counters.failures += 1
                return None
            finally:
                for each in ids:
                    del self._coming[each]
        self._cache.put(known)
        return known


def _parts(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(ids), _IDS_PER_STATEMENT):
        yield ids[start : start + _IDS_PER_STATEMENT]
