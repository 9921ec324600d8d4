"""What must be there for a session to go on after a crash."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedmq.boosting.model.tree import LookupTable, TreeArrays
from fedmq.errors import Aborted, DataError, Refused, SourceAway
from fedmq.messages.body import SessionUnknown
from fedmq.party.sessions import recovery
from fedmq.party.sessions.recovery import SavedProgress, check_same_table, saved_progress
from fedmq.protocol.machine import UNLOADED
from fedmq.protocol.session_records import ActiveTree
from fedmq.protocol.training.terms import ActiveTable
from fedmq.transport.backoff import Backoff
from tests.party.sessions.recovery import SESSION, RestartedParty, Trainings, until


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recovery, "_UNTIL_IN_REACH", Backoff(first=0.01, limit=0.01))


async def test_the_active_party_goes_on_once_its_data_are_in_reach(tmp_path: Path) -> None:
    away = SourceAway("the database does not answer")
    trainings = Trainings(away, away)
    async with RestartedParty(tmp_path, "bank", trainings) as bank:
        await bank.store.begin(SESSION)
        bank.resumption.start()
        await until(lambda: trainings.resumed == ["s1"])
        assert trainings.reloaded == 3


async def test_another_party_reminds_the_active_one(tmp_path: Path) -> None:
    async with RestartedParty(tmp_path, "telco") as telco:
        await telco.store.begin(replace(SESSION, attempt=3))
        telco.resumption.start()
        assert isinstance(await telco.reply(), SessionUnknown)
        assert [session.attempt for session in await telco.resumption.idle()] == [3]


async def test_a_session_that_is_cancelled_before_its_data_are_back_does_not_go_on(
    tmp_path: Path,
) -> None:
    trainings = Trainings(*[SourceAway("the database does not answer")] * 10_000)
    async with RestartedParty(tmp_path, "bank", trainings) as bank:
        await bank.store.begin(SESSION)
        bank.resumption.start()
        await until(lambda: trainings.reloaded > 1)
        assert await bank.resumption.end_idle(SESSION.id, "bank cancelled the session")
        reloaded = trainings.reloaded
        await asyncio.sleep(0.1)  # time enough for several tries
        assert trainings.reloaded <= reloaded + 1
        assert trainings.resumed == []
        assert await bank.state() == ("failed", "bank cancelled the session")


@pytest.mark.parametrize(
    ("error", "shared"),
    [
        (Refused("the table of bank has other values"), "the table of bank has other values"),
        (DataError("bank.csv, row 7: 'x' is no number"), UNLOADED),
    ],
)
async def test_a_session_whose_data_are_lost_ends_and_others_read_no_more_than_they_may(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: Exception, shared: str
) -> None:
    trainings = Trainings(error)
    with caplog.at_level(logging.WARNING):
        async with RestartedParty(tmp_path, "bank", trainings) as bank:
            await bank.store.begin(SESSION)
            bank.resumption.start()
            await until(lambda: "cannot go on" in caplog.text)
            assert await bank.state() == ("failed", shared)
    assert str(error) in caplog.text
    assert trainings.resumed == []


async def test_a_session_is_reloaded_once_however_many_ask(tmp_path: Path) -> None:
    trainings = Trainings(SourceAway("the database does not answer"))
    async with RestartedParty(tmp_path, "bank", trainings) as bank:
        await bank.store.begin(SESSION)
        for _ in range(3):
            bank.resumption.resume(SESSION)
        await until(lambda: trainings.resumed == ["s1"])
        bank.resumption.resume(SESSION)
        assert (trainings.reloaded, trainings.resumed) == (2, ["s1"])


async def test_the_next_attempt_begins_as_the_store_stands(tmp_path: Path) -> None:
    async with RestartedParty(tmp_path, "bank") as bank:
        await bank.store.begin(SESSION)
        await bank.store.pause(SESSION.id, True)
        assert await saved_progress(bank.store, bank.sessions, SESSION.id) == SavedProgress(
            [], paused=True
        )
        await bank.store.end(SESSION.id, "failed", "enough")
        with pytest.raises(Aborted, match="enough"):
            await saved_progress(bank.store, bank.sessions, SESSION.id)


class TestSameTable:
    """Trees go on growing on the table on which they began, or not at all."""

    def table(self, rows: int = 4, digest: str = "d") -> ActiveTable:
        column = np.arange(rows, dtype=np.float32)
        return ActiveTable(
            column[:, None], ("a",), column % 2, np.zeros(rows, bool), "the ids", digest=digest
        )

    def tree(self) -> ActiveTree:
        growing = TreeArrays()
        growing.leaf(0, 0.1, cover=4.0)
        records = LookupTable(
            feature_names=("a",),
            feature=np.zeros(0, np.int32),
            threshold=np.zeros(0, np.float32),
            default_left=np.zeros(0, bool),
        )
        return ActiveTree(0, growing.finished(), records, {}, np.zeros(4, np.float32), "d")

    def test_the_same_table_is_taken(self) -> None:
        check_same_table("bank", "s1", self.table(), [self.tree()])

    def test_other_rows_are_refused(self) -> None:
        with pytest.raises(Refused, match="the table of bank has other rows or columns"):
            check_same_table("bank", "s1", self.table(rows=5), [self.tree()])

    def test_other_values_are_refused(self) -> None:
        with pytest.raises(Refused, match="the table of bank has other values"):
            check_same_table("bank", "s1", self.table(digest="e"), [self.tree()])
