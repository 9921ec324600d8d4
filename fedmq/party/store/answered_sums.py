"""Sums that were answered about which rows, over all trainings of this party."""

from __future__ import annotations

import math
import sqlite3
from collections import defaultdict

import numpy as np

from fedmq.errors import Refused
from fedmq.party.store.database import Database
from fedmq.protocol.records import AnsweredSums, AnsweredTraining, RowSet

__all__ = ["AnsweredSumsStore"]

_ROUNDING = 1e-6  # of sums per row, which are added up in another order than they were foretold


class AnsweredSumsStore:
    """Counts by session, tree and attempt, in a :class:`Database`; none is ever forgotten."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def trainings(self) -> tuple[AnsweredTraining, ...]:
        """What was answered and is reserved, by session, the oldest first."""
        return await self._database.read(_trainings)

    async def reserve(self, session: str, row_set: RowSet, reserved: float, most: float) -> None:
        """Nobody else gets what ``session`` may come to, in sums per row, while it is open.

        Raises:
            Refused: with what others have answered and reserved it is more than ``most``, or the
                session was about other rows before.
        """

        def write(connection: sqlite3.Connection) -> None:
            _begin(connection, session, row_set)
            _check(connection, session, row_set, reserved, most)
            connection.execute(
                "UPDATE answered_rows SET reserved = ? WHERE session = ?", (reserved, session)
            )

        await self._database.write(write)

    async def keep(
        self,
        session: str,
        attempt: int,
        tree: int,
        sums: int,
        row_set: RowSet,
        most: float = math.inf,
    ) -> None:
        """``sums`` of a tree are about to be answered, those answered before included.

        Errors as for ``reserve``; what was reserved may always be answered.
        """

        def write(connection: sqlite3.Connection) -> None:
            _begin(connection, session, row_set)
            connection.execute(
                "INSERT OR REPLACE INTO answered_trees VALUES (?, ?, ?, ?)",
                (session, tree, attempt, sums),
            )
            of_session = {
                (tree, attempt): count
                for tree, attempt, count in connection.execute(
                    "SELECT tree, attempt, sums FROM answered_trees WHERE session = ?", (session,)
                )
            }
            query = "SELECT reserved FROM answered_rows WHERE session = ?"
            (reserved,) = connection.execute(query, (session,)).fetchone()
            per_row = AnsweredTraining(session, row_set, of_session).per_row
            if per_row > reserved + _ROUNDING:
                _check(connection, session, row_set, per_row, most)

        await self._database.write(write)


def _trainings(connection: sqlite3.Connection) -> tuple[AnsweredTraining, ...]:
    sums: dict[str, dict[tuple[int, int], int]] = defaultdict(dict)
    trees = "SELECT session, tree, attempt, sums FROM answered_trees"
    for session, tree, attempt, count in connection.execute(trees):
        sums[session][tree, attempt] = count
    # A session that has ended answers no more, so nothing stays reserved for it.
    sets = (
        "SELECT session, row_count, sketch, reserved * EXISTS (SELECT 1 FROM sessions "
        "WHERE id = session AND state = 'running') FROM answered_rows ORDER BY rowid"
    )
    row_sets: dict[tuple[int, bytes], RowSet] = {}  # of many trainings few, and each is large

    def row_set(rows: int, sketch: bytes) -> RowSet:
        if (rows, sketch) not in row_sets:
            row_sets[rows, sketch] = RowSet(rows, np.frombuffer(sketch, "<u8").astype(np.uint64))
        return row_sets[rows, sketch]

    return tuple(
        AnsweredTraining(session, row_set(rows, sketch), sums[session], reserved)
        for session, rows, sketch, reserved in connection.execute(sets)
    )


def _begin(connection: sqlite3.Connection, session: str, row_set: RowSet) -> None:
    """Note the rows of ``session``; Refused where they are others than those noted before."""
    rows = row_set.rows, row_set.sketch.astype("<u8").tobytes()
    connection.execute(
        "INSERT OR IGNORE INTO answered_rows (session, row_count, sketch) VALUES (?, ?, ?)",
        (session, *rows),
    )
    query = "SELECT row_count, sketch FROM answered_rows WHERE session = ?"
    if connection.execute(query, (session,)).fetchone() != rows:
        raise Refused(
            f"session {session} is about other rows than when it began; train anew with: "
            "fedmq train"
        )


def _check(
    connection: sqlite3.Connection, session: str, row_set: RowSet, per_row: float, most: float
) -> None:
    if math.isinf(most):
        return
    known = AnsweredSums.of(session, 0, most, _trainings(connection))
    others = known.by_others(row_set)
    if others + per_row > most + _ROUNDING:
        raise Refused(
            f"{most:,g} sums per row are answered at most (most_equations_per_row): other "
            f"trainings, those that are open included, take {others:,.1f} of these "
            f"{row_set.rows:,} rows, and this one would take {per_row:,.1f}"
        )
