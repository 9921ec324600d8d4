"""Rows that are asked about: the same from memory and from a database, whatever happens to it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy

from fedmq.errors import ConfigError, DataError, RowsUnavailable
from fedmq.party.configuration.data import DataSection
from fedmq.party.configuration.online import OnlineSection
from fedmq.party.data.sources.sql import SqlPool
from fedmq.party.online.rows import (
    LookedUpRows,
    Lookup,
    RowCache,
    Rows,
    RowsInMemory,
    ServedRows,
    ServingSource,
    plan_lookup,
)
from fedmq.party.telemetry.metrics import LookupCounters
from tests.party.data.sources.test_sources import as_csv, as_sql
from tests.postgres_server import PostgresServer

HEADER = ("id", "age", "city", "income")
FEATURES = ("income", "city=Rome", "city=Bern", "age")
PEOPLE = [
    ("p3", 30, "Rome", 1.5),
    ("p1", None, "Oslo", 2000.25),
    ("p2", 51, None, None),
    *((f"q{number}", number, "Oslo", number / 4) for number in range(1200)),
]
nan = np.nan

Opened = Callable[..., Awaitable[ServedRows]]


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    server = PostgresServer()
    server.start()
    yield server
    server.discard()


@pytest.fixture(params=["csv", "sqlite in memory", "sqlite", "postgresql"])
async def opened(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Opened]:
    """Stores rows, and opens them for a model with some features."""
    sources = []

    async def store(
        header: Sequence[str], rows: Sequence[Any], features: tuple[str, ...], **values: Any
    ) -> ServedRows:
        sqlite = f"sqlite:///{tmp_path}/data.sqlite"
        match request.param:
            case "csv":
                values.pop("query", None)
                data = as_csv(tmp_path, header, rows, **values)
            case "postgresql":
                url = request.getfixturevalue("postgres").url
                data = as_sql(url, header, rows, **values)
            case _:
                data = as_sql(sqlite, header, rows, **values)
        lookup = {"enabled": "in memory" not in request.param, "timeout": 10}
        section = OnlineSection.model_validate({"lookup": lookup})
        source = ServingSource("telco", data, section)
        sources.append(source)
        await source.open()
        served = source.served(source.reading.of(features, "m").run())
        by_id = request.param in ("sqlite", "postgresql")
        assert isinstance(served, LookedUpRows if by_id else RowsInMemory)
        return served

    yield store
    for source in sources:
        source.close()


def values(rows: Rows, ids: Sequence[str]) -> list[list[float]]:
    return rows.values[rows.places(ids)].tolist()


async def test_every_kind_of_source_gives_the_rows_that_are_asked_for(opened: Opened) -> None:
    served = await opened(HEADER, PEOPLE, FEATURES)
    ids = ["p2", "p1", "p3", "p1"]

    rows = await served.about(ids, 10)

    assert rows.features == served.features == FEATURES
    assert rows.values.dtype == np.float32
    np.testing.assert_array_equal(
        values(rows, ids),
        [[nan, nan, nan, 51], [2000.25, 0, 0, nan], [1.5, 1, 0, 30], [2000.25, 0, 0, nan]],
    )


async def test_an_unknown_id_has_no_values_and_costs_the_others_nothing(opened: Opened) -> None:
    served = await opened(HEADER, PEOPLE, FEATURES)
    ids = ["nobody", "p3", "", "p3'; DROP TABLE people; --", "p\0"]

    for _ in range(2):
        rows = await served.about(ids, 10)
        assert (rows.places(ids) < 0).tolist() == [True, False, True, True, True]
        np.testing.assert_array_equal(values(rows, ids)[:2], [[nan] * 4, [1.5, 1, 0, 30]])


async def test_many_rows_at_once_and_many_questions_at_once(opened: Opened) -> None:
    served = await opened(HEADER, PEOPLE, FEATURES)
    ids = [f"q{number}" for number in range(1200)]

    parts = [ids, ids[::-1], ids[7:9], ids[100:900]]
    for rows, asked in zip(
        await asyncio.gather(*(served.about(part, 10) for part in parts)), parts, strict=True
    ):
        ages = [float(name[1:]) for name in asked]
        assert [row[3] for row in values(rows, asked)] == ages


async def test_ids_that_are_numbers_are_found_by_their_text(opened: Opened) -> None:
    served = await opened(("id", "age"), [(7, 30), (-8, 31), (2**31 - 1, 32)], ("age",))
    ids = ["7", "07", "-8", "x", "7.0", str(2**31 - 1), str(2**80)]

    rows = await served.about(ids, 10)

    np.testing.assert_array_equal(values(rows, ids), [[30], [nan], [31], [nan], [nan], [32], [nan]])


LOANS = [("p1", 30, 2), ("p2", 5, 0), ("p1", 31, 5), ("p1", 32, 7), ("p3", 6, 9)]
"""Id, age and the day of each loan, in the order of days for each person."""


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM people ORDER BY day;",
        'SELECT id, age, day FROM people order by id desc, "day" asc',
    ],
)
@pytest.mark.parametrize("duplicates", ["each", "hidden"])
async def test_each_row_of_a_person_is_found_by_its_number(
    opened: Opened, query: str, duplicates: str
) -> None:
    served = await opened(("id", "age", "day"), LOANS, ("age",), duplicates=duplicates, query=query)
    ids = ["p1#3", "p2", "p1", "p1#2", "p1#4", "p2#2", "p9#1"]
    for _ in range(2):  # from the source, and from the cache
        rows = await served.about(ids, 10)
        assert values(rows, ids)[:4] == [[32], [5], [30], [31]]
        assert (rows.places(ids[4:]) == -1).all()


async def test_rows_without_an_order_are_found_where_a_person_has_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for query in (
        "SELECT * FROM people",
        "SELECT * FROM (SELECT * FROM people ORDER BY day)",
        "SELECT id, age FROM people ORDER BY day",  # which is not yielded
    ):
        url = f"sqlite:///{tmp_path}/data.sqlite"
        data = as_sql(url, ("id", "age", "day"), LOANS, duplicates="each", query=query)
        source = ServingSource("bank", data, OnlineSection.model_validate({"lookup": {}}))
        await source.open()
        served = source.served(source.reading.of(("age",), "m").run())
        ids = ["p1", "p1#2", "p2", "p3"]
        rows = await served.about(ids, 10)
        source.close()
        assert values(rows, ids)[2:] == [[5], [6]]
        assert (rows.places(ids[:2]) == -1).all()
        assert "bank: id 'p1' counts as unknown: its rows have no order; end the query in" in (
            caplog.text
        )
        caplog.clear()


async def test_an_id_of_several_columns_is_found_by_all_of_them(opened: Opened) -> None:
    loans = [(1, "a|b", 30), (1, "c", 31), (2, "c", 32)]
    served = await opened(("branch", "loan", "age"), loans, ("age",), id=["branch", "loan"])
    ids = ["1|a\\|b", "2|c", "1|c", "2|a\\|b", "1", "c|1", "1|c|", "x|c", "1|a|b"]

    rows = await served.about(ids, 10)

    np.testing.assert_array_equal(values(rows, ids), [[30], [32], [31], *[[nan]] * 6])


async def test_names_of_columns_may_be_any(opened: Opened) -> None:
    header = ("Kunden Nr", "select", 'a"b', "100%")
    served = await opened(header, [("p1", 1, 2, "x")], ('a"b', "select", "100%=x"), id="Kunden Nr")
    assert values(await served.about(["p1"], 10), ["p1"]) == [[2, 1, 1]]


@pytest.mark.parametrize(("rule", "age"), [("first", 30), ("last", 31)])
async def test_the_rule_for_repeated_ids_says_which_row_counts(
    opened: Opened, rule: str, age: float
) -> None:
    served = await opened(
        ("id", "age"), [("p1", 30), ("p2", 5), ("p1", 31)], ("age",), duplicates=rule
    )
    assert values(await served.about(["p1", "p2"], 10), ["p1", "p2"]) == [[age], [5]]


async def test_a_column_that_the_model_needs_and_the_source_lacks_is_named(opened: Opened) -> None:
    with pytest.raises(DataError, match="no column 'height', which model m was trained on"):
        await opened(HEADER, PEOPLE, ("age", "height"))


# Lookups.


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Database:
    """People in SQLite, looked up; ``statements`` are those that it was asked."""

    def __init__(self, data: DataSection, features: tuple[str, ...], **options: Any) -> None:
        assert data.url is not None
        seconds = options.pop("seconds", 10)
        self.counters = LookupCounters()
        self.pool = SqlPool("telco: people", data.url, options.pop("connections", 2), seconds)
        self.statements: list[Sequence[Any]] = []
        sqlalchemy.event.listen(
            self.pool._engine,
            "before_cursor_execute",
            lambda _c, _k, statement, asked, *_: self.statements.append(asked),
        )
        self.clock = Clock()
        settings = {"entries": 100, "max_age": 30, **options}
        lookup = plan_lookup("telco", data, features, "m")
        assert isinstance(lookup, Lookup)
        self.rows = LookedUpRows(lookup, self.pool, self.counters, **settings, clock=self.clock)

    async def ages(self, *ids: str, seconds: float = 10) -> list[float]:
        rows = await self.rows.about(ids, seconds)
        return [row[0] for row in values(rows, ids)]


@pytest.fixture
def people(tmp_path: Path) -> Callable[..., Database]:
    made = []

    def make(*, rows: Sequence[Any] = (("p1", 1), ("p2", 2), ("p3", 3)), **options: Any) -> Any:
        data = as_sql(f"sqlite:///{tmp_path}/data.sqlite", ("id", "age"), rows)
        query = options.pop("query", data.query)
        keys = {key: options.pop(key) for key in ("duplicates", "normalise") if key in options}
        data = data.model_copy(update={"query": query, **keys})
        made.append(Database(data, ("age",), **options))
        return made[-1]

    yield make
    for database in made:
        database.pool.close()


def is_there(path: Path) -> bool:
    return path.exists()


async def test_a_file_that_was_replaced_is_read_anew_and_none_is_made(
    people: Callable[..., Database], tmp_path: Path
) -> None:
    database = people()
    assert await database.ages("p1") == [1]

    as_sql(f"sqlite:///{tmp_path}/other.sqlite", ("id", "age"), [("p2", 20)])
    (tmp_path / "other.sqlite").replace(tmp_path / "data.sqlite")
    assert await database.ages("p2") == [20]

    (tmp_path / "data.sqlite").unlink()
    with pytest.raises(RowsUnavailable):
        await database.ages("p3")
    assert database.pool.trouble == "there is no such file"
    assert not is_there(tmp_path / "data.sqlite")


async def test_only_what_is_asked_for_is_fetched_and_then_remembered(
    people: Callable[..., Database],
) -> None:
    database = people()

    assert await database.ages("p1", "p2") == [1, 2]
    assert await database.ages("p2", "p3", "p1") == [2, 3, 1]

    assert database.statements == [("p1", "p2"), ("p3",)]
    assert (database.counters.hits, database.counters.misses) == (2, 3)
    assert sum(database.counters.seconds.counts) == 2


async def test_what_is_remembered_grows_old_unknown_ids_too(
    people: Callable[..., Database],
) -> None:
    database = people(max_age=30)
    await database.ages("p1", "nobody")
    with database.pool._engine.connect() as connection:
        connection.execute(sqlalchemy.text("UPDATE people SET age = 40 WHERE id = 'p1'"))
        connection.execute(sqlalchemy.text("INSERT INTO people VALUES ('nobody', 50)"))

    database.clock.now = 29.9
    np.testing.assert_array_equal(await database.ages("p1", "nobody"), [1, nan])
    database.clock.now = 30.0
    assert await database.ages("p1", "nobody") == [40, 50]


def test_the_oldest_are_forgotten_when_there_are_too_many() -> None:
    clock = Clock()
    cache = RowCache(3, 10.0, clock)
    cache.put({"a": None, "b": None})
    cache.put({"c": None, "a": None})
    cache.put({"d": None})

    assert set(cache.find("abcd")) == {"a", "c", "d"}
    assert len(cache) == 3


async def test_what_is_being_fetched_is_waited_for_and_not_fetched_twice(
    people: Callable[..., Database],
) -> None:
    database = people()

    answers = await asyncio.gather(*(database.ages("p1", "p2") for _ in range(20)))

    assert answers == [[1, 2]] * 20
    assert database.statements == [("p1", "p2")]


async def test_one_row_that_cannot_be_read_is_unknown_alone(
    people: Callable[..., Database], caplog: pytest.LogCaptureFixture
) -> None:
    database = people()
    with database.pool._engine.connect() as connection:
        connection.execute(sqlalchemy.text("UPDATE people SET age = 'old' WHERE id = 'p1'"))
        connection.execute(sqlalchemy.text("INSERT INTO people VALUES ('p2', 9)"))

    with caplog.at_level(logging.WARNING):
        np.testing.assert_array_equal(await database.ages("p1", "p2", "p3"), [nan, nan, 3])

    assert "id 'p1' counts as unknown: " in caplog.text and "'old' is no number" in caplog.text
    assert "id 'p2' counts as unknown: " in caplog.text and "ids are repeated" in caplog.text


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM people;",
        "SELECT id, age FROM people WHERE id LIKE 'p%' -- all of them",
        "SELECT age, id FROM people ORDER BY age ; ",
        "WITH these AS (SELECT * FROM people) SELECT * FROM these",
    ],
)
async def test_the_owners_query_may_be_any_select(
    people: Callable[..., Database], query: str
) -> None:
    assert await people(query=query).ages("p3", "p1") == [3, 1]


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"rows": []}, "there are no rows"),
        ({"rows": [(" p1", 1)]}, "the id ' p1' is compared as 'p1', by which it cannot be found"),
        ({"normalise": ("upper",)}, "the id 'p1' is compared as 'P1'"),
        ({"normalise": ("trim", "sha256")}, "compared as their SHA-256"),
        ({"rows": [("p1", 1), ("p1", 2)]}, "1 ids are repeated"),
        ({"rows": [("p1", 1)], "query": "SELECT id, 'old' AS age FROM people"}, "'old' is no num"),
    ],
)
async def test_what_would_go_wrong_with_every_row_is_said_beforehand(
    people: Callable[..., Database], options: dict[str, Any], reason: str
) -> None:
    with pytest.raises(DataError, match=reason):
        people(**options)


@pytest.mark.parametrize(
    ("url", "reason"),
    [("://h", "not a database URL"), ("oracle+cx_oracle://db", "its driver is not installed")],
)
async def test_a_database_that_can_never_be_reached_is_said_at_the_start(
    url: str, reason: str
) -> None:
    data = DataSection(type="sql", url=url, query="SELECT 1 AS id", id="id")

    with pytest.raises(ConfigError, match=reason):
        await ServingSource("telco", data, OnlineSection()).open()


# A database in trouble.


async def test_a_database_that_is_away_is_said_and_its_return_is_noticed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    server = PostgresServer()
    server.start()
    data = as_sql(server.url, ("id", "age"), [("p1", 1), ("p2", 2), ("p3", 3)])
    database = Database(data, ("age",), seconds=2)
    try:
        assert await database.ages("p1") == [1]
        server.stop()
        with caplog.at_level(logging.ERROR):
            for _ in range(3):
                with pytest.raises(RowsUnavailable) as error:
                    await database.ages("p1", "p2")
                # Other parties see this line: nothing about the database, and nothing from it.
                assert str(error.value) == "telco: its rows cannot be looked up now"
        assert len(caplog.records) == 1
        assert database.pool.trouble
        assert database.counters.failures == 3
        assert await database.ages("p1") == [1]  # this much is remembered

        server.start()
        assert await database.ages("p1", "p2", "p3") == [1, 2, 3]
        assert database.pool.trouble == ""
    finally:
        database.pool.close()
        server.discard()


async def test_a_slow_database_holds_up_neither_the_event_loop_nor_the_request(
    postgres: PostgresServer,
) -> None:
    data = as_sql(postgres.url, ("id", "age"), [("p1", 1)])
    database = Database(data, ("age",), seconds=0.3, connections=1)
    slow = sqlalchemy.text("SELECT pg_sleep(3)")
    loop = asyncio.get_running_loop()

    busy = asyncio.create_task(database.pool.run(lambda connection: connection.execute(slow)))
    await asyncio.sleep(0.05)
    begun, beats = loop.time(), 0
    asking = asyncio.create_task(database.ages("p1", seconds=0.1))
    while not asking.done():
        await asyncio.sleep(0.005)
        beats += 1

    assert beats > 10
    assert loop.time() - begun < 0.25
    with pytest.raises(RowsUnavailable):
        await asking
    with pytest.raises(DataError, match=r"no answer within|statement timeout"):
        await busy
    await asyncio.sleep(0.3)  # the server gives the statement up, and the connection is free
    assert await database.ages("p1") == [1]
    database.pool.close()


async def test_a_row_on_which_the_query_fails_is_unknown_alone(
    postgres: PostgresServer, caplog: pytest.LogCaptureFixture
) -> None:
    people = [(f"p{age}", age) for age in range(20, 0, -1)] + [("p0", 0)]
    data = as_sql(postgres.url, ("id", "age"), people)
    query = "SELECT id, 60 / (age - 7) AS age FROM people"
    first = plan_lookup("telco", data, ("age",), "m")
    broken = data.model_copy(update={"query": query})
    source = ServingSource("telco", broken, OnlineSection())
    await source.open()
    served = source.served(replace(first, data=broken))

    ids = [f"p{age}" for age in range(1, 21)]
    with caplog.at_level(logging.WARNING):
        rows = await served.about(ids, 10)

    assert np.flatnonzero(rows.places(ids) < 0).tolist() == [6]
    assert values(rows, ["p1", "p9"]) == [[-10], [30]]
    assert "id 'p7' counts as unknown: division by zero" in caplog.text
    assert source.trouble == ""
    source.close()


async def test_no_more_connections_are_opened_than_are_allowed(postgres: PostgresServer) -> None:
    data = as_sql(postgres.url, ("id", "age"), [(f"p{age}", age) for age in range(100)])
    database = Database(data, ("age",), connections=3)
    count = sqlalchemy.text(
        "SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'client%'"
    )

    answers = await asyncio.gather(*(database.ages(f"p{age}") for age in range(100)))

    assert answers == [[age] for age in range(100)]
    seen = await database.pool.run(lambda connection: connection.execute(count).scalar())
    assert seen <= 3
    database.pool.close()


def test_whole_numbers_of_64_bits_are_found_and_longer_ones_are_not_asked_for(
    tmp_path: Path,
) -> None:
    engine = sqlalchemy.create_engine(f"sqlite:///{tmp_path}/people.sqlite")
    largest = 2**63 - 1
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("CREATE TABLE people (id INTEGER, age REAL)"))
        for number, age in ((largest, 1.0), (7, 2.0)):
            insert = sqlalchemy.text("INSERT INTO people VALUES (:id, :age)")
            connection.execute(insert, {"id": number, "age": age})
    data = DataSection(type="sql", url=str(engine.url), query="SELECT * FROM people", id="id")
    lookup = plan_lookup("telco", data, ("age",), "m")

    ids = [str(largest), "7", str(largest + 1), "9" * 20]
    with engine.connect() as connection:
        known = lookup.read(connection, ids)
    engine.dispose()

    assert [known[name] is not None for name in ids] == [True, True, False, False]
