"""What this party's owner was asked to agree to, and the answers."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Literal

from fedmq.party.store.database import Database

__all__ = ["ConsentRequest", "ConsentRequestStore", "RequestState"]

RequestState = Literal["waiting", "approved", "refused", "withdrawn"]

_KEPT = 200
"""Requests that do not wait any more; the audit log keeps all."""


@dataclass(frozen=True, slots=True)
class ConsentRequest:
    """One alignment or training that waits, or waited, for the owner's answer.

    ``name``: of the model or alignment. ``digest``: what tells its terms from others. ``terms``:
    plain data for people. ``asked``, ``until`` and ``decided`` in seconds since the epoch; once
    ``until`` is over the answer is no. ``used``: a session has begun by the approval.
    """

    id: str
    session: str
    kind: Literal["alignment", "training"]
    peer: str
    name: str
    digest: str
    terms: Mapping[str, Any]
    asked: float
    until: float
    state: RequestState = "waiting"
    reason: str = ""
    decided_by: str = ""
    decided: float = 0.0
    used: bool = False


_COLUMNS = tuple(column.name for column in fields(ConsentRequest))


class ConsentRequestStore:
    """Requests in a :class:`Database`; ``clock`` gives seconds since the epoch."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    async def find(self, request: str) -> ConsentRequest | None:
        """The request with this id, if it is known."""
        return await self._one("WHERE id = ?", request)

    async def of_session(self, session: str) -> ConsentRequest | None:
        """The last one of ``session``."""
        return await self._one("WHERE session = ? ORDER BY rowid DESC LIMIT 1", session)

    async def unused(self, peer: str, digest: str) -> ConsentRequest | None:
        """The last of ``peer`` on the terms of ``digest`` by which no session has begun yet.

        It waits, or was approved.
        """
        return await self._one(
            "WHERE peer = ? AND digest = ? AND state IN ('waiting', 'approved') AND NOT used "
            "ORDER BY rowid DESC LIMIT 1",
            peer,
            digest,
        )

    async def waiting(self) -> list[ConsentRequest]:
        """Those without an answer, the oldest first."""
        return await self._select("WHERE state = 'waiting' ORDER BY rowid")

    async def all(self) -> list[ConsentRequest]:
        """Those that are kept, the oldest first."""
        return await self._select("ORDER BY rowid")

    async def add(self, request: ConsentRequest) -> None:
        """Keep a new one; those that were decided long ago are forgotten."""
        values = [*{**asdict(request), "terms": json.dumps(request.terms)}.values()]

        def write(connection: sqlite3.Connection) -> None:
            places = ", ".join("?" * len(values))
            connection.execute(f"INSERT INTO consent_requests VALUES ({places})", values)
            connection.execute(
                "DELETE FROM consent_requests WHERE state != 'waiting' AND id NOT IN (SELECT id "
                "FROM consent_requests WHERE state != 'waiting' ORDER BY rowid DESC LIMIT ?)",
                (_KEPT,),
            )

        await self._database.write(write)

    async def decide(
        self, request: str, state: RequestState, reason: str = "", by: str = ""
    ) -> None:
        """Write down the answer to one that waits."""
        await self._write(
            "UPDATE consent_requests SET state = ?, reason = ?, decided_by = ?, decided = ? "
            "WHERE id = ? AND state = 'waiting'",
            (state, reason, by, self._clock(), request),
        )

    async def belongs_to(self, request: str, session: str) -> None:
        """It is ``session`` now that asks: the one before is gone."""
        await self._write(
            "UPDATE consent_requests SET session = ? WHERE id = ?", (session, request)
        )

    async def use(self, request: str) -> None:
        """A session begins by the approval: no other may."""
        await self._write("UPDATE consent_requests SET used = 1 WHERE id = ?", (request,))

    async def _one(self, where: str, *values: Any) -> ConsentRequest | None:
        found = await self._select(where, *values)
        return found[0] if found else None

    async def _select(self, where: str, *values: Any) -> list[ConsentRequest]:
        query = f"SELECT {', '.join(_COLUMNS)} FROM consent_requests {where}"
        rows = await self._database.read(lambda found: found.execute(query, values).fetchall())
        return list(map(_request, rows))

    async def _write(self, statement: str, values: tuple[Any, ...]) -> None:
        await self._database.write(
            lambda connection: connection.execute(statement, values) and None
        )


def _request(row: tuple[Any, ...]) -> ConsentRequest:
    """The request in a row of `_COLUMNS`."""
    found = dict(zip(_COLUMNS, row, strict=True))
    terms, used = json.loads(found["terms"]), bool(found["used"])
    return ConsentRequest(**{**found, "terms": terms, "used": used})
