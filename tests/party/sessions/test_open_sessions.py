"""What is left of a session that has ended."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedmq.boosting.binning import BinMatrix
from fedmq.party.sessions import sessions
from tests.party.daemons_in_memory import PARTIES, DaemonsInMemory


@pytest.fixture
def uncollected() -> Iterator[None]:
    """The garbage collector does not run by itself."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("uncollected")
def test_the_tables_of_a_training_leave_the_memory_while_it_still_acknowledges_repetitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "_SWEEP_SECONDS", 1.0)

    def tables() -> int:
        return sum(isinstance(kept, BinMatrix) for kept in gc.get_objects())

    before = tables()

    async def none_is_left() -> bool:
        return tables() == before

    async def train() -> None:
        federation = DaemonsInMemory(tmp_path, monkeypatch)
        await federation.start()
        try:
            await federation.train("model", 2)
            assert tables() >= before + len(PARTIES)
            await federation.until(none_is_left)
            for daemon in federation.daemons.values():
                assert daemon.parts.context.sessions.running
        finally:
            await federation.stop()

    asyncio.run(train())
