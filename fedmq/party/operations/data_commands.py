"""What the owner asks about the party's own data: its table and its alignments."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from fedmq.errors import ConfigError
from fedmq.party.data.table_description import DescribeTable
from fedmq.party.services.service import Command, PartyContext, Service
from fedmq.party.sessions.sessions import OnProgress
from fedmq.party.store.alignments import AlignmentStore

__all__ = ["DataCommands"]

_MAX_BIN = 256
_FEWEST_BINS, _MOST_BINS = 2, 65535


class DataCommands(Service):
    """Describes the table, which it reads when asked and then remembers, and the alignments."""

    def __init__(self, context: PartyContext) -> None:
        super().__init__(context)
        self._reading = asyncio.Lock()
        self._described: dict[str, Any] | None = None
        self._alignments: dict[tuple[str, int], dict[str, Any]] = {}
        """By name and time of the file: a file may hold millions of ids."""

    @property
    def commands(self) -> Mapping[str, Command]:
        return {"data": self._data, "alignments": self._list_alignments}

    async def _data(self, request: Mapping[str, Any], _: OnProgress) -> dict[str, Any]:
        """The table as it was read last, with ``again`` as it is now."""
        max_bin = int(request.get("max_bin") or _MAX_BIN)
        if not _FEWEST_BINS <= max_bin <= _MOST_BINS:
            raise ConfigError(f"max_bin: {_FEWEST_BINS} to {_MOST_BINS} bins are taken")
        async with self._reading:
            known = self._described
            if known is None or request.get("again") or known["max_bin"] != max_bin:
                context = self.context
                describe = DescribeTable(context.party, context.config.data, max_bin)
                read = datetime.now().astimezone().isoformat(timespec="seconds")
                found: dict[str, Any] = await context.pool.run(describe)
                self._described = known = {**found, "read": read}
        return known

    async def _list_alignments(self, _: Mapping[str, Any], __: OnProgress) -> list[dict[str, Any]]:
        """The alignments that are here, the oldest first."""
        return await asyncio.to_thread(self._read_alignments)

    def _read_alignments(self) -> list[dict[str, Any]]:
        store = AlignmentStore(self.context.config.state)
        found = {}
        for name in store.names():
            key = name, store.path(name).stat().st_mtime_ns
            found[key] = self._alignments.get(key) or store.described(name)
        self._alignments = found
        return list(found.values())
