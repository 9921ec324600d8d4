"""What of a party's limits is used up?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from fedmq.party.store.database import Database
from fedmq.party.store.journal import AnsweredSumsStore
from fedmq.protocol.records import AnsweredSums

__all__ = ["spent_sums"]


async def spent_sums(database: Database, most: float) -> dict[str, Any] | None:
    """What was answered about the rows that were asked about most, and how much may be.

    None where nothing was.
    """
    found = await AnsweredSumsStore(database).trainings()
    trainings = [replace(training, reserved=0.0) for training in found]
    if not trainings:
        return None
    answered = AnsweredSums.of("", 0, most, trainings)
    row_sets = {training.row_set.sketch.tobytes(): training.row_set for training in trainings}
    sums, rows = max((answered.by_others(found), found.rows) for found in row_sets.values())
    return {"sums_per_row": round(sums, 1), "rows": rows, "most": most}
