"""Sums that were answered about which rows, over all trainings of this party."""

from __future__ import annotations

import sqlite3
from collections import defaultdict

import numpy as np

from fedmq.party.store.database import Database
from fedmq.protocol.answered_sums import AnsweredTraining, RowSet

__all__ = ["AnsweredSumsStore"]


class AnsweredSumsStore:
    """Counts by session, tree and attempt, in a :class:`Database`; none is ever forgotten."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def trainings(self) -> tuple[AnsweredTraining, ...]:
        """What was answered, by session, the oldest first."""

        def select(connection: sqlite3.Connection) -> tuple[AnsweredTraining, ...]:
            sums: dict[str, dict[tuple[int, int], int]] = defaultdict(dict)
            trees = "SELECT session, tree, attempt, sums FROM answered_trees"
            for session, tree, attempt, count in connection.execute(trees):
                sums[session][tree, attempt] = count
            sets = "SELECT session, row_count, sketch FROM answered_rows ORDER BY rowid"
            return tuple(
                AnsweredTraining(
                    session,
                    RowSet(rows, np.frombuffer(sketch, "<u8").astype(np.uint64)),
                    sums[session],
                )
                for session, rows, sketch in connection.execute(sets)
            )

        return await self._database.read(select)

    async def keep(self, session: str, attempt: int, tree: int, sums: int, row_set: RowSet) -> None:
        """``sums`` of a tree are about to be answered, those answered before included."""

        def write(connection: sqlite3.Connection) -> None:
            connection.execute(
                "INSERT OR IGNORE INTO answered_rows (session, row_count, sketch) VALUES (?, ?, ?)",
                (session, row_set.rows, row_set.sketch.astype("<u8").tobytes()),
            )
            connection.execute(
                "INSERT OR REPLACE INTO answered_trees VALUES (?, ?, ?, ?)",
                (session, tree, attempt, sums),
            )

        await self._database.write(write)
