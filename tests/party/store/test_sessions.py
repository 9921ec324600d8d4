"""What is on disk is whole, comes back bit for bit, and stays small."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedmq.boosting.model.share import Withheld
from fedmq.boosting.model.tree import LookupTable, TreeArrays
from fedmq.errors import Aborted, ConfigError
from fedmq.party.store import database as database_module
from fedmq.party.store.database import Database
from fedmq.party.store.journal import SessionStore, StoredSession, checkpoint_of, row_of
from fedmq.protocol.session_records import ActiveTree, PassiveTree
from fedmq.transport.backoff import Backoff
from tests.full_disk import room_for

ROWS = 1000
SESSION = StoredSession("one", "model", 1, job='{"engine": "plain"}')


def records(count: int) -> LookupTable:
    return LookupTable(
        feature_names=("a", "b"),
        feature=np.arange(count, dtype=np.int32) % 2,
        threshold=np.float32(1) / np.arange(3, 3 + count, dtype=np.float32),
        default_left=np.arange(count) % 3 == 0,
    )


def active_tree(number: int) -> ActiveTree:
    tree = TreeArrays()
    left, right = tree.split(0, 1, 0, gain=1 / 3, cover=7.1)
    tree.leaf(left, 0.1, cover=3.0)
    tree.leaf(right, float("inf"), cover=4.1)
    margin = np.random.default_rng(number).normal(size=ROWS).astype(np.float32)
    metrics = {"train-logloss": 0.1 + number, "eval-auc": float("nan")} if number else {}
    return ActiveTree(number, tree.finished(), records(2), metrics, margin)


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[Database]:
    database = Database(tmp_path / "fedmq.sqlite", Backoff(first=0.02, limit=0.05))
    await database.open()
    yield database
    await database.close()


@pytest.fixture
def store(database: Database) -> SessionStore:
    return SessionStore(database)


def test_a_checkpoint_comes_back_bit_for_bit() -> None:
    withheld = Withheld(smallest_node=2, smallest_cell=10)
    careful = PassiveTree(6, records(1), withheld=withheld)
    for checkpoint in (active_tree(0), active_tree(3), PassiveTree(5, records(4)), careful):
        back = checkpoint_of(row_of(checkpoint))
        assert row_of(back) == row_of(checkpoint)
        assert back.records.threshold.tobytes() == checkpoint.records.threshold.tobytes()
        if isinstance(checkpoint, ActiveTree):
            assert isinstance(back, ActiveTree)
            assert back.margin is not None
            assert checkpoint.margin is not None
            assert back.margin.tobytes() == checkpoint.margin.tobytes()
            assert back.tree.model_dump_json() == checkpoint.tree.model_dump_json()
            np.testing.assert_equal(back.before, checkpoint.before)
        else:
            assert isinstance(back, PassiveTree)
            assert back.withheld == checkpoint.withheld


async def test_a_session_is_found_again_with_its_last_attempt(store: SessionStore) -> None:
    await store.begin(SESSION)
    await store.begin(replace(SESSION, attempt=4))

    assert await store.find("one") == replace(SESSION, attempt=4)
    assert await store.running() == [replace(SESSION, attempt=4)]
    assert await store.find("other") is None


async def test_a_pause_outlives_the_next_attempt(store: SessionStore) -> None:
    await store.begin(SESSION)
    await store.pause("one", True)
    await store.begin(replace(SESSION, attempt=2))

    found = await store.find("one")
    assert found is not None
    assert found.paused


async def test_what_has_ended_does_not_run(store: SessionStore) -> None:
    await store.begin(SESSION)
    await store.end("one", "failed", "no more")

    assert await store.running() == []
    assert await store.find("one") == replace(SESSION, state="failed", reason="no more")


async def test_an_owner_reads_more_of_a_failure_than_the_others(store: SessionStore) -> None:
    await store.begin(SESSION)
    await store.end("one", "failed", "its own data could not be loaded", "bank: no column 'x'")

    [(found, _)] = await store.ended(10)
    assert found.reason == "its own data could not be loaded"
    assert found.why == "bank: no column 'x'"
    with pytest.raises(Aborted, match="its own data could not be loaded"):
        await store.begin(SESSION)


async def test_a_tree_saved_again_replaces_all_that_came_after_it(store: SessionStore) -> None:
    await store.begin(SESSION)
    for number in range(4):
        await store.save("one", PassiveTree(number, records(number)))
    await store.save("one", PassiveTree(1, records(9)))

    saved = await store.checkpoints("one")
    assert [(tree.number, len(tree.records)) for tree in saved] == [
        (0, 0),
        (1, 9),
    ]


async def test_what_trees_add_alone_is_kept_of_all(store: SessionStore) -> None:
    await store.begin(StoredSession("one", "m", 1))
    trees = [replace(active_tree(number), adds_alone=True) for number in range(5)]
    for tree in trees:
        await store.save("one", tree)
    for tree, back in zip(trees, await store.checkpoints("one"), strict=True):
        assert isinstance(back, ActiveTree)
        assert back.margin is not None
        assert tree.margin is not None
        assert back.adds_alone
        assert back.margin.tobytes() == tree.margin.tobytes()
    await store.save("one", trees[2])  # an attempt that went back
    assert len(await store.checkpoints("one")) == 3


async def test_only_the_margins_of_the_last_two_trees_are_kept(store: SessionStore) -> None:
    await store.begin(SESSION)
    for number in range(5):
        await store.save("one", active_tree(number))

    kept = [
        isinstance(checkpoint, ActiveTree) and checkpoint.margin is not None
        for checkpoint in await store.checkpoints("one")
    ]
    assert kept == [False, False, False, True, True]


async def test_models_that_grow_in_turns_keep_their_last_margins_and_one_more(
    store: SessionStore,
) -> None:
    await store.begin(SESSION)
    for number in range(6):
        await store.save("one", replace(active_tree(number), folds=3))
    saved = await store.checkpoints("one")
    assert [tree.folds for tree in saved if isinstance(tree, ActiveTree)] == [3] * 6
    kept = [isinstance(tree, ActiveTree) and tree.margin is not None for tree in saved]
    assert kept == [False, False, True, True, True, True]


async def test_the_file_stays_flat_over_five_hundred_trees(
    store: SessionStore, tmp_path: Path
) -> None:
    await store.begin(SESSION)
    sizes = []
    for number in range(500):
        await store.save("one", active_tree(number))
        if number % 100 == 99:
            sizes.append(size_of(tmp_path))

    trees = 500 * len(row_of(active_tree(1), first=False)[1])
    assert sizes[-1] < 1_200_000 + 1.2 * trees  # the write-ahead log, and the trees themselves
    assert sizes[-1] - sizes[1] < 1.2 * trees


async def test_a_long_write_does_not_leave_its_length_in_the_log(
    database: Database, tmp_path: Path
) -> None:
    store = SessionStore(database)
    await store.begin(SESSION)
    margin = np.zeros(1_000_000, np.float32)
    for number in range(4):
        await store.save("one", replace(active_tree(number), margin=margin))
    assert (tmp_path / "fedmq.sqlite-wal").stat().st_size > margin.nbytes
    for number in range(600):
        await store.pause("one", number % 2 == 0)

    assert (tmp_path / "fedmq.sqlite-wal").stat().st_size < 1_200_000


async def test_the_names_of_the_columns_are_written_once(store: SessionStore) -> None:
    await store.begin(SESSION)
    for number in range(3):
        await store.save("one", replace(active_tree(number), table="digest"))

    def written(connection: sqlite3.Connection) -> list[int]:
        rows = connection.execute("SELECT data FROM steps ORDER BY tree").fetchall()
        return [data.count("feature_names") + data.count("digest") for (data,) in rows]

    assert await store.database.read(written) == [2, 0, 0]
    saved = await store.checkpoints("one")
    assert {checkpoint.records.feature_names for checkpoint in saved} == {("a", "b")}
    assert {checkpoint.table for checkpoint in saved} == {"digest"}


async def test_of_a_failed_session_only_the_reason_is_kept(store: SessionStore) -> None:
    await store.begin(SESSION)
    await store.save("one", active_tree(0))
    await store.end("one", "failed", "no more")

    assert await store.checkpoints("one") == []
    assert await store.find("one") == replace(SESSION, state="failed", reason="no more")


async def test_what_ended_long_ago_is_forgotten(database: Database) -> None:
    now = 1e9
    store = SessionStore(database, clock=lambda: now)
    for name in ("old", "running", "new"):
        await store.begin(replace(SESSION, id=name))
        await store.save(name, PassiveTree(0, records(1)))
    await store.end("old", "finished")
    now += 8 * 24 * 3600
    await store.end("new", "finished")
    await store.prune()

    assert await store.find("old") is None
    assert await store.checkpoints("old") == []
    assert await store.find("running") is not None
    assert await store.find("new") is not None


async def test_of_many_that_ended_the_last_ones_are_kept(database: Database) -> None:
    times = iter(range(1000))
    store = SessionStore(database, clock=lambda: next(times))
    for number in range(30):
        await store.begin(replace(SESSION, id=f"{number}"))
        await store.end(f"{number}", "finished")

    kept = [number for number in range(30) if await store.find(f"{number}")]
    assert kept == list(range(10, 30))


async def test_what_is_written_outlives_the_process(tmp_path: Path) -> None:
    for attempt in (1, 2, 3):
        database = Database(tmp_path / "fedmq.sqlite")
        await database.open()
        await SessionStore(database).begin(replace(SESSION, attempt=attempt))
        await database.close()

    with closing(sqlite3.connect(tmp_path / "fedmq.sqlite")) as connection:
        assert connection.execute("SELECT attempt FROM sessions").fetchall() == [(3,)]
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


class TestSchema:
    async def test_an_older_file_is_brought_up_to_date(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "fedmq.sqlite"
        before = Database(path)
        await before.open()
        await SessionStore(before).begin(SESSION)
        await before.close()

        more = (*database_module.MIGRATIONS, "ALTER TABLE sessions ADD COLUMN note TEXT;")
        monkeypatch.setattr(database_module, "MIGRATIONS", more)
        after = Database(path)
        await after.open()
        assert await SessionStore(after).find("one") == SESSION
        await after.close()

        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA user_version").fetchone() == (len(more),)
            assert connection.execute("SELECT note FROM sessions").fetchall() == [(None,)]

    async def test_margins_of_the_first_schema_move_to_their_own_table(
        self, tmp_path: Path
    ) -> None:
        path = tmp_path / "fedmq.sqlite"
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.executescript(database_module.MIGRATIONS[0] + "PRAGMA user_version = 1;")
            connection.execute(
                "INSERT INTO sessions VALUES ('one', 'm', 1, 'running', '', 0, '', 0)"
            )
            for row in (row_of(replace(active_tree(0), margin=None)), row_of(active_tree(1))):
                connection.execute("INSERT INTO steps VALUES ('one', ?, ?, ?)", row)

        database = Database(path)
        await database.open()
        saved = await SessionStore(database).checkpoints("one")
        await database.close()

        assert [row_of(checkpoint)[2] for checkpoint in saved] == [None, row_of(active_tree(1))[2]]

    async def test_a_migration_that_fails_changes_nothing(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        path = tmp_path / "fedmq.sqlite"
        before = Database(path)
        await before.open()
        await before.close()
        more = (*database_module.MIGRATIONS, "CREATE TABLE new (a INTEGER); SELECT nonsense;")
        monkeypatch.setattr(database_module, "MIGRATIONS", more)

        after = Database(path)
        with pytest.raises(ConfigError, match="store cannot be used"):
            await after.open()
        await after.close()

        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA user_version").fetchone() == (len(more) - 1,)
            names = connection.execute("SELECT name FROM sqlite_master").fetchall()
            assert ("new",) not in names

    async def test_the_file_of_a_newer_fedmq_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "fedmq.sqlite"
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("PRAGMA user_version = 99")

        database = Database(path)
        with pytest.raises(ConfigError, match=r"a newer fedmq has made it \(schema 99"):
            await database.open()
        await database.close()

    async def test_a_file_that_is_no_database_is_refused(self, tmp_path: Path) -> None:
        path = tmp_path / "fedmq.sqlite"
        path.write_text("something else entirely, and long enough to be looked at\n" * 20)

        database = Database(path)
        with pytest.raises(ConfigError, match="store cannot be used"):
            await database.open()
        await database.close()


async def test_nothing_opens_the_file_again_while_it_is_closed(tmp_path: Path) -> None:
    database = Database(tmp_path / "fedmq.sqlite")
    await database.open()
    closing = asyncio.create_task(database.close())
    await asyncio.sleep(0)
    with pytest.raises(RuntimeError, match="after shutdown"):
        await database.read(lambda connection: connection.execute("SELECT 1").fetchone())
    await closing


async def test_a_write_outlasts_a_full_disk(database: Database, store: SessionStore) -> None:
    await store.begin(SESSION)
    with room_for(1024):
        saving = asyncio.create_task(store.save("one", active_tree(0)))
        await asyncio.wait([saving], timeout=0.3)
        assert "cannot be used" in database.trouble
        assert await store.find("one") == SESSION  # what is there can be read meanwhile
        assert not saving.done()
    await saving

    assert database.trouble == ""
    assert [checkpoint.number for checkpoint in await store.checkpoints("one")] == [0]


async def test_a_write_that_is_given_up_leaves_no_trouble_behind(
    database: Database, store: SessionStore
) -> None:
    await store.begin(SESSION)
    with room_for(1024):
        first = asyncio.create_task(store.save("one", active_tree(0)))
        second = asyncio.create_task(store.save("one", active_tree(0)))
        await asyncio.wait([first, second], timeout=0.3)
        first.cancel()
        await asyncio.wait([first])
        assert "cannot be used" in database.trouble  # the other one still waits
        second.cancel()
        await asyncio.wait([second])

    assert database.trouble == ""


async def test_a_store_is_opened_when_the_disk_has_room_again(tmp_path: Path) -> None:
    database = Database(tmp_path / "fedmq.sqlite", Backoff(first=0.02, limit=0.05))
    with room_for(1024):
        opening = asyncio.create_task(database.open())
        await asyncio.wait([opening], timeout=0.3)
        assert "cannot be used" in database.trouble
        assert not opening.done()
    await opening

    assert database.trouble == ""
    assert await SessionStore(database).running() == []
    await database.close()


async def test_a_read_outlasts_a_disk_that_refuses_for_a_moment(database: Database) -> None:
    refusals = iter([True, True, False])
    troubles: list[str] = []

    def look(connection: sqlite3.Connection) -> int:
        troubles.append(database.trouble)
        if next(refusals):
            raise sqlite3.OperationalError("disk I/O error")
        return int(connection.execute("SELECT COUNT(*) FROM sessions").fetchone()[0])

    assert await database.read(look) == 0
    assert troubles[0] == "" and "disk I/O error" in troubles[2]
    assert database.trouble == ""
