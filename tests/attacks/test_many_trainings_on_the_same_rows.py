"""An active party that only looks trains again and again: each sum tells of the rows."""

from __future__ import annotations

import asyncio
import math
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedmq.boosting.params import TrainParams
from fedmq.errors import DaemonError, Refused
from fedmq.messages.body import Body
from fedmq.messages.envelope import Envelope
from fedmq.messages.training import TrainingOpen
from fedmq.party.configuration.job import TrainingJob
from fedmq.party.configuration.policy import PolicySection
from fedmq.party.store.database import MIGRATIONS, Database
from fedmq.party.store.journal import AnsweredSumsStore, SessionStore, StoredSession
from fedmq.protocol.session_records import (
    AnsweredTraining,
    EarlierSums,
    RowSet,
    SumLedger,
    SumsAnswered,
    most_sums,
)
from tests.party.consent.test_policy_consent import terms
from tests.party.daemons_in_memory import DaemonsInMemory
from tests.protocol.federation import PLAIN, small

PEOPLE = [f"p{number:04}" for number in range(100)]
CANDIDATES = 14  # two columns of eight bins


@pytest.fixture
async def federation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[DaemonsInMemory]:
    async with DaemonsInMemory(tmp_path, monkeypatch, "most_equations_per_row = 25\n") as daemons:
        yield daemons


async def answered(federation: DaemonsInMemory) -> float:
    status = await federation.ask("telco", "status")
    return float(status["answered"]["sums_per_row"])


async def test_the_next_training_is_refused_at_its_opening_also_after_a_restart(
    federation: DaemonsInMemory,
) -> None:
    await federation.train("first", 20)
    spent = await answered(federation)
    assert 20 * CANDIDATES / 40 < spent <= 20 * 3 * CANDIDATES / 40

    await federation.stop("telco", "retail")
    await federation.start("telco", "retail")
    with pytest.raises(DaemonError, match=r"(telco|retail) answers 25 sums per row") as refused:
        await federation.train("second", 20)
    assert f"{spent:,.1f} were answered before about these 40 rows" in str(refused.value)
    assert await answered(federation) == spent
    await federation.train("third", 2)
    assert await answered(federation) > spent


async def test_of_two_trainings_at_once_one_is_refused_by_what_it_is_expected_to_answer(
    federation: DaemonsInMemory,
) -> None:
    ends = await asyncio.gather(
        federation.train("first", 20), federation.train("second", 20), return_exceptions=True
    )
    # Both, where one party has granted the one first, and the other the other.
    refused = [str(end) for end in ends if isinstance(end, DaemonError)]
    assert refused and all("21.0" in reason for reason in refused)
    assert await answered(federation) <= 25


async def test_consent_records_what_was_expected(federation: DaemonsInMemory) -> None:
    await federation.train("m", 2)
    log = federation.daemons["telco"].parts.context.consent.audit.log
    [expected] = [entry for entry in log.entries() if entry["event"] == "foretold"]
    assert expected["sums_per_row"] == round(2 * 3 * CANDIDATES / 40, 1)
    assert (expected["before"], expected["most"]) == (0.0, 25)
    events = [entry["event"] for entry in log.entries()]
    assert events[:4] == ["policy holds", "asked", "agreed", "foretold"]


async def test_a_training_that_goes_on_after_a_crash_is_not_counted_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = []
    for name in ("calm", "broken"):
        (tmp_path / name).mkdir()
        federation = DaemonsInMemory(tmp_path / name, monkeypatch)
        await federation.start()
        asking = federation.train("m", 12)
        if name == "broken":
            running = asyncio.create_task(asking)
            await federation.session()
            await federation.stop("telco")
            await federation.start("telco")
            await running
        else:
            await asking
        counts.append(await answered(federation))
        await federation.stop()
    assert counts[0] == counts[1] > 0


def answered_before(**sums: int) -> tuple[AnsweredTraining, ...]:
    people = RowSet.of(PEOPLE)
    return tuple(
        AnsweredTraining(session, people, {(0, 1): count}) for session, count in sums.items()
    )


def ledger(limit: float, rows: Any = PEOPLE, **sums: int) -> SumLedger:
    known = EarlierSums.of("this", 1, limit, answered_before(**sums))
    return SumLedger("telco", known, RowSet.of(rows))


def test_it_is_refused_while_it_runs_before_the_sums_are_answered() -> None:
    running = ledger(10, earlier=500)
    [before] = running.answer(0, [1], 200)
    assert (before.tree, before.sums) == (0, 200)
    assert not running.answer(0, [1], 200)  # another round about the same node
    [below] = running.answer(0, [2], 200)
    assert below.sums == 400
    with pytest.raises(Refused, match=r"telco answers 10 sums per row .* tree 0 would make 11\.0"):
        running.answer(0, [3], 200)


def test_what_was_not_shown_in_the_end_is_not_counted() -> None:
    running = ledger(10)
    running.answer(0, [1, 2], 200)
    assert running.end_tree(0, [200, 50]) == (SumsAnswered(0, 250, running._row_set),)
    assert running.answer(1, [1], 200)[0].sums == 200


def test_trees_of_the_active_party_alone_and_those_on_disk_are_not_expected() -> None:
    asked: TrainingOpen = terms(trees=10, active_only_trees=1, rows=100, max_depth=2)
    [agreed] = ledger(100).agree(asked, trees=4, candidates=50)
    assert agreed.expected == 6 * most_sums(2, 100, 50) / 100 == 6 * 3 * 50 / 100


def test_nodes_that_share_a_question_are_counted_each() -> None:
    asked: TrainingOpen = terms(trees=1, rows=100, max_depth=2)
    [agreed] = ledger(100).agree(asked, trees=0, candidates=50, nodes_per_query=3)
    # A level's last question may be about fewer nodes than fit, and nobody sees that.
    assert agreed.expected == (3 + 2 * 2) * 50 / 100


def test_people_who_are_only_evaluated_make_no_room_for_more_sums() -> None:
    asked: TrainingOpen = terms(trees=1, rows=100, max_depth=2)
    known = EarlierSums("this", 1, 100)
    few = SumLedger("telco", known, RowSet.of(PEOPLE), learning=20)
    [agreed] = few.agree(asked, trees=0, candidates=50)
    assert agreed.expected == 3 * 50 / 20
    [asked_for] = few.answer(0, [1, 2], 50)
    assert asked_for.sums / 100 == 2 * 50 / 20
    [shown] = few.end_tree(0, [50, 3])
    assert shown.sums / 100 == 53 / 20
    with pytest.raises(Refused, match=r"tree 1 would make 102\.7"):
        few.answer(1, range(1, 41), 50)


async def test_a_daemon_divides_by_those_who_learn(federation: DaemonsInMemory) -> None:
    params = TrainParams(num_boost_round=1, max_depth=2, max_bin=8)
    job = TrainingJob(model="m", engine="plain", params=params, evaluation=0.5)
    await federation.ask("bank", "train", job=job.model_dump(mode="json"))
    log = federation.daemons["telco"].parts.context.consent.audit.log
    [expected] = [entry for entry in log.entries() if entry["event"] == "foretold"]
    assert expected["sums_per_row"] > 1.5 * 3 * CANDIDATES / 40


def test_trees_that_were_expected_as_the_active_partys_own_are_not_answered() -> None:
    def rewrite(envelope: Envelope) -> Body:
        body = envelope.body
        if not isinstance(body, TrainingOpen):
            return body
        return body.model_copy(update={"active_only_trees": body.trees - 1})

    simulation = small(counts=(0, 3)).having(engine=PLAIN).train(rewrite=rewrite)
    assert "tree 0 is not due" in str(simulation.errors["telco"])


def test_another_list_of_the_same_people_counts_with_the_first() -> None:
    [agreed] = ledger(100, [*PEOPLE[1:], "new"], earlier=700).agree(terms(), 10, 1)
    assert agreed.answered == 7.0
    [strangers] = ledger(100, [f"q{number}" for number in range(100)], earlier=700).agree(
        terms(), 10, 1
    )
    assert strangers.answered == 0.0


def test_people_are_recognised_in_a_much_longer_list() -> None:
    many = [f"p{number:07}" for number in range(300_000)]
    assert RowSet.of(many).meets(RowSet.of(many[:3000]))
    assert not RowSet.of(many).meets(RowSet.of([f"q{number}" for number in range(3000)]))


def test_a_few_trees_may_be_grown_again_and_more_are_counted() -> None:
    people = RowSet.of(PEOPLE)

    def per_row(attempts: int) -> float:
        sums = {(0, attempt): 100 for attempt in range(attempts)}
        return AnsweredTraining("this", people, sums).per_row

    assert [per_row(attempts) for attempts in (1, 2, 4, 5, 9)] == [1, 1, 1, 2, 6]


async def test_a_state_folder_of_an_earlier_version_counts_from_now_on(tmp_path: Path) -> None:
    path = tmp_path / "fedmq.sqlite"
    with sqlite3.connect(path) as connection:
        for number, script in enumerate(MIGRATIONS[:3], start=1):
            connection.executescript(f"{script} PRAGMA user_version = {number};")
    connection.close()
    database = Database(path)
    await database.open()
    store = AnsweredSumsStore(database)
    assert await store.trainings() == ()
    people = RowSet.of(PEOPLE)
    for tree, sums in ((0, 10), (0, 30), (1, 20)):
        await store.keep("s", 1, tree, sums, people)
    [training] = await store.trainings()
    await database.close()
    assert training.sums == {(0, 1): 30, (1, 1): 20}
    assert training.row_set.rows == 100
    np.testing.assert_array_equal(training.row_set.sketch, people.sketch)


@pytest.fixture
async def sessions(tmp_path: Path) -> AsyncIterator[SessionStore]:
    """Two that are open, one and two."""
    store = SessionStore(Database(tmp_path / "fedmq.sqlite"))
    await store.database.open()
    for name in ("one", "two"):
        await store.begin(StoredSession(name, "m", 1))
    yield store
    await store.database.close()


async def test_what_an_open_training_was_expected_to_answer_is_reserved_until_it_ends(
    sessions: SessionStore,
) -> None:
    store, people = AnsweredSumsStore(sessions.database), RowSet.of(PEOPLE)
    await store.reserve("one", people, 9.0, 10.0)
    with pytest.raises(Refused, match=r"take 9\.0 of these 100 rows, and this one would take 9\.0"):
        await store.reserve("two", people, 9.0, 10.0)
    await store.reserve("two", RowSet.of(["somebody else"]), 9.0, 10.0)
    known = EarlierSums.of("three", 1, 10.0, await store.trainings())
    assert known.by_others(people) == 9.0  # a third opening reads so, and is refused in time

    await store.keep("one", 1, 0, 200, people, 10.0)
    await sessions.end("one", "finished")
    await sessions.begin(StoredSession("three", "m", 1))
    await store.reserve("three", people, 8.0, 10.0)


async def test_two_that_both_answer_more_than_expected_stay_below_the_bound_together(
    sessions: SessionStore,
) -> None:
    store, people = AnsweredSumsStore(sessions.database), RowSet.of(PEOPLE)
    for session in ("one", "two"):
        await store.reserve(session, people, 4.0, 10.0)
    await store.keep("one", 1, 0, 600, people, 10.0)
    await store.keep("two", 1, 0, 400, people, 10.0)  # what was reserved may always be answered
    with pytest.raises(Refused, match=r"open included, take 6\.0 .* this one would take 4\.1"):
        await store.keep("two", 1, 1, 10, people, 10.0)
    [_, two] = await store.trainings()
    assert two.per_row == 4.0


async def test_a_second_attempt_is_about_the_rows_of_the_first(sessions: SessionStore) -> None:
    store, people = AnsweredSumsStore(sessions.database), RowSet.of(PEOPLE)
    await store.reserve("one", people, 1.0, 10.0)
    await store.reserve("one", RowSet.of(reversed(PEOPLE)), 2.0, 10.0)
    others = RowSet.of([f"q{number}" for number in range(100)])
    with pytest.raises(Refused, match="session one is about other rows than when it began"):
        await store.reserve("one", others, 1.0, 10.0)
    with pytest.raises(Refused, match="session one is about other rows than when it began"):
        await store.keep("one", 2, 0, 10, others, 10.0)


def test_no_bound_that_protects_nobody_is_the_default() -> None:
    assert math.isinf(PolicySection().sums_bound)
    assert PolicySection(most_equations_per_row=10_000).sums_bound == 10_000


async def test_what_was_answered_is_counted_without_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with DaemonsInMemory(tmp_path, monkeypatch, "") as daemons:
        await daemons.train("first", 20)
        status = await daemons.ask("telco", "status")
    assert status["answered"]["sums_per_row"] > 20
    assert status["answered"]["most"] is None
