"""The serving source of a party: held in memory, or looked up by id if it is a database."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Any

from fedmq.errors import DataError
from fedmq.party.configuration.data import DataSection
from fedmq.party.configuration.online import OnlineSection
from fedmq.party.data.sources.sql_pool import SqlPool
from fedmq.party.online.rows.looked_up import LookedUpRows
from fedmq.party.online.rows.lookup import Lookup, PlanLookup
from fedmq.party.online.rows.rows import LoadRows, Rows, RowsInMemory, ServedRows
from fedmq.party.telemetry.metrics import LookupCounters

__all__ = ["Reading", "ServingSource"]


@dataclass(frozen=True, slots=True)
class Reading:
    """How rows are read at ``party``: by a computation, which runs in another process."""

    party: str
    data: DataSection
    by_id: bool

    def of(self, features: tuple[str, ...], model: str) -> LoadRows | PlanLookup:
        """A computation: read the ``features`` of ``model``, or plan how to look them up."""
        kind = PlanLookup if self.by_id else LoadRows
        return kind(self.party, self.data, features, model)


class ServingSource:
    """Gives every model its rows; those that look them up share one pool of connections."""

    def __init__(self, party: str, data: DataSection, section: OnlineSection) -> None:
        self.counters = LookupCounters()
        self.reading = Reading(party, data, data.type == "sql" and section.lookup.enabled)
        self._section = section
        self._pool: SqlPool | None = None

    async def open(self) -> None:
        """Connect to a database; it may still be away.

        Raises:
            ConfigError: its driver is not installed, or its URL is none.
        """
        if not self.reading.by_id:
            return
        data, section = self.reading.data, self._section.lookup
        assert data.url is not None
        # In a thread: the driver has to be imported.
        self._pool = await asyncio.to_thread(
            SqlPool,
            f"{self.reading.party}: {data.place}",
            data.url,
            section.connections,
            section.timeout,
        )
        with contextlib.suppress(DataError):
            await self._pool.run(lambda _: None)  # so that the first question finds a connection

    @property
    def trouble(self) -> str:
        """Why nothing can be looked up now; empty while all is well."""
        return "" if self._pool is None else self._pool.trouble

    def served(self, loaded: Rows | Lookup) -> ServedRows:
        """The rows of a model, from the result of the computation of :class:`Reading`."""
        if isinstance(loaded, Rows):
            return RowsInMemory(loaded)
        section = self._section.lookup
        if self._pool is None:
            data = self.reading.data
            assert data.url is not None
            name = f"{self.reading.party}: {data.place}"
            self._pool = SqlPool(name, data.url, section.connections, section.timeout)
        return LookedUpRows(
            loaded, self._pool, self.counters, section.entries, self._section.max_age
        )

    def stamp(self) -> Any:
        """Changes when rows in memory are out of date; None while the source cannot be seen."""
        path = self.reading.data.path
        if path is None:
            # Whether the result of a query has changed cannot be seen: no two stamps are equal.
            return "" if self.reading.by_id else object()
        try:
            seen = path.stat()
        except OSError:
            return None
        return seen.st_mtime_ns, seen.st_size, seen.st_ino

    def close(self) -> None:
        """Close what is open."""
        if self._pool is not None:
            self._pool.close()
