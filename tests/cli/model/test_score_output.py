"""Scores go where the party's data live, in its own spelling, and to a table exactly once."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
import sqlalchemy

from fedmq.cli.score_output import ScoreRows, ScoreTable, check_file, queried_ids, write_file
from fedmq.errors import ConfigError, DataError
from fedmq.party.configuration.data import DataSection
from fedmq.party.operations import control
from tests.cli.test_next_steps import typed
from tests.postgres_server import PostgresServer

OWN = {"without": [], "fallback": [None, None, None]}
RESULT = {"scores": [0.25, None, -1.5], "unknown_at": [[], ["telco"], []], **OWN}
IDS = ["ä", "b", "c"]
DAY = date(2026, 11, 25)


def scored(result: Mapping[str, Any] = RESULT) -> ScoreRows:
    return ScoreRows.of(("id",), IDS, result, strict=False)


def of_csv(**more: Any) -> DataSection:
    return DataSection(path=Path("data.csv"), id="id", **more)


def sqlite_section(folder: Path) -> DataSection:
    sqlite3.connect(folder / "people.sqlite").close()
    return DataSection(
        type="sql", url=f"sqlite:///{folder}/people.sqlite", query="SELECT 1", id="id"
    )


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    server = PostgresServer()
    try:
        server.start()
        yield server
    finally:
        server.discard()


@pytest.fixture(params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> DataSection:
    if request.param == "sqlite":
        return sqlite_section(tmp_path)
    url = request.getfixturevalue("postgres").url
    return DataSection(type="sql", url=url, query="SELECT 1", id="id")


def rows_in(data: DataSection, table: str) -> list[tuple[Any, ...]]:
    engine = sqlalchemy.create_engine(str(data.url))
    try:
        with engine.connect() as connection:
            query = sqlalchemy.text(f"SELECT id, score, reason, model FROM {table} ORDER BY id")
            return [tuple(row) for row in connection.execute(query)]
    finally:
        engine.dispose()


def test_csv_is_in_the_partys_own_spelling(tmp_path: Path) -> None:
    data = of_csv(separator=";", decimal=",", encoding="cp1252")
    path = tmp_path / "scores.csv"
    write_file(path, scored(), data)
    assert path.read_bytes().decode("cp1252").splitlines() == [
        "id;score;reason",
        "ä;0,25;",
        "b;;unknown at telco",
        "c;-1,5;",
    ]
    check_file(path, data)  # a file of scores may be replaced
    with pytest.raises(ConfigError, match="exists already and holds no scores"):
        check_file(path, of_csv())
    with pytest.raises(DataError, match="'ä' cannot be written in ascii"):
        write_file(path, scored(), of_csv(encoding="ascii"))


def test_an_id_of_several_columns_has_them_in_files_and_tables(tmp_path: Path) -> None:
    columns, ids = ("branch", "loan"), ["1|a\\|b", "1|c", "2|c"]
    rows = ScoreRows.of(columns, ids, RESULT, strict=False)
    path, data = tmp_path / "scores.csv", of_csv().model_copy(update={"id": columns})
    for _ in range(2):
        check_file(path, data)
        write_file(path, rows, data)
    assert path.read_text().splitlines()[:2] == ["branch,loan,score,reason", "1,a|b,0.25,"]
    write_file(tmp_path / "scores.parquet", rows, data)
    read = pyarrow.parquet.read_table(tmp_path / "scores.parquet").to_pydict()
    assert (read["branch"], read["loan"]) == (["1", "1", "2"], ["a|b", "c", "c"])
    database = sqlite_section(tmp_path).model_copy(update={"id": columns})
    table = ScoreTable("scores", database)
    for added in (3, 0):
        table.check()
        assert table.write(rows, "m", DAY) == added
    asked = "SELECT DISTINCT loan, branch FROM scores ORDER BY branch, loan"
    assert queried_ids(asked, database) == ids
    with pytest.raises(DataError, match=r"there is no column 'loan', but .'branch'.; name it so"):
        queried_ids("SELECT branch FROM scores", database)


def test_hashes_of_several_columns_have_one_column() -> None:
    rows = ScoreRows.of(("branch", "loan"), ["af", "b0", "c1"], RESULT, strict=False)
    assert (rows.headers[0], rows.id_columns) == ("branch|loan", 1)


def test_a_name_that_ends_in_parquet_gets_a_parquet_file(tmp_path: Path) -> None:
    path = tmp_path / "scores.parquet"
    write_file(path, scored(), of_csv())
    read = pyarrow.parquet.read_table(path)
    assert read.to_pydict() == {
        "id": IDS,
        "score": [0.25, None, -1.5],
        "reason": ["", "unknown at telco", ""],
    }
    check_file(path, of_csv())
    path.write_text("id,score\n")
    with pytest.raises(ConfigError, match="holds no scores"):
        check_file(path, of_csv())


def test_contributions_follow_the_scores() -> None:
    explained = {
        **RESULT,
        "players": ["bank.x", "bias"],
        "contributions": [[[0.5, 1.0]], None, [[2.0, 3.0]]],
    }
    assert scored(explained).headers == ("id", "score", "reason", "bank.x", "bias")
    assert [row[3:] for row in scored(explained).rows] == [(0.5, 1.0), (None, None), (2.0, 3.0)]


def test_a_table_has_each_person_once_a_model_and_day(database: DataSection) -> None:
    table = ScoreTable("scores", database)
    table.check()
    assert table.write(scored(), "m", DAY) == 3
    again = scored({"scores": [0.9, 0.9, 0.9], "unknown_at": [[], [], []], **OWN})
    table.check()
    assert table.write(again, "m", DAY) == 0
    assert sorted(rows_in(database, "scores")) == sorted(
        [("ä", 0.25, "", "m"), ("b", None, "unknown at telco", "m"), ("c", -1.5, "", "m")]
    )
    assert table.write(again, "m", date(2026, 11, 26)) == 3
    assert table.write(again, "other", DAY) == 3
    assert len(rows_in(database, "scores")) == 9


def test_another_table_of_that_name_is_refused_before_anybody_is_scored(
    database: DataSection,
) -> None:
    engine = sqlalchemy.create_engine(str(database.url))
    with engine.begin() as connection:
        connection.execute(sqlalchemy.text("CREATE TABLE customers (id TEXT, town TEXT)"))
    engine.dispose()
    with pytest.raises(DataError, match="there is no column 'day', so it is no table of scores"):
        ScoreTable("customers", database).check()


def test_without_a_database_there_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="needs the party's database"):
        ScoreTable("scores", of_csv()).check()
    with pytest.raises(ConfigError, match="--ids-query: the party's rows come from no database"):
        queried_ids("SELECT 1", of_csv())


def test_ids_come_from_a_query_that_reads(tmp_path: Path) -> None:
    data = sqlite_section(tmp_path)
    with sqlite3.connect(tmp_path / "people.sqlite") as database:
        database.execute("CREATE TABLE due (id INTEGER, day TEXT)")
        database.executemany("INSERT INTO due VALUES (?, 'x')", [(7,), (8,)])
    database.close()
    assert queried_ids("SELECT id, day FROM due ORDER BY id", data) == ["7", "8"]
    assert queried_ids("SELECT id AS person FROM due WHERE id > 7", data) == ["8"]
    with pytest.raises(ConfigError, match="--ids-query: it begins with DELETE"):
        queried_ids("DELETE FROM due", data)
    with pytest.raises(DataError, match="there are no ids"):
        queried_ids("SELECT id FROM due WHERE id > 8", data)
    with pytest.raises(DataError, match="row 1: the id is empty"):
        queried_ids("SELECT NULL AS id", data)
    with pytest.raises(DataError, match=r"no column 'id', but \['a', 'b'\]; name it so with AS"):
        queried_ids("SELECT 1 AS a, 2 AS b", data)


def test_the_command_scores_a_query_into_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with sqlite3.connect(tmp_path / "people.sqlite") as database:
        database.execute("CREATE TABLE people (id TEXT, label INTEGER)")
        database.executemany("INSERT INTO people VALUES (?, 1)", [("a",), ("b",)])
    database.close()
    (tmp_path / "federation.toml").write_text('name = "d"\nactive = "bank"\npassive = ["telco"]\n')
    (tmp_path / "party.toml").write_text(
        'party = "bank"\nfederation = "federation.toml"\nbroker = "amqp://127.0.0.1:1/"\n'
        '[data]\ntype = "sql"\nurl = "sqlite:///people.sqlite"\nquery = "SELECT * FROM people"\n'
        'id = "id"\nlabel = "label"\n[policy]\nallow_unsealed = true\n'
    )
    asked: list[Mapping[str, Any]] = []

    async def answer(_: Path, request: Mapping[str, Any]) -> AsyncIterator[dict[str, Any]]:
        asked.append(request)
        result = {"model": "m", "name": "production", "newest": False, "scores": [0.5, None]}
        unknown = {"unknown_at": [[], ["telco"]], "degraded": {"telco": 0.5}, "learned_at": []}
        own = {"without": [], "fallback": [None, None], "mode": "hop"}
        yield {"event": "done", "result": {**result, **unknown, **own}}

    monkeypatch.setattr(control, "send_request", answer)
    monkeypatch.chdir(tmp_path)
    words = ("predict", "party.toml", "--to-table", "scores", "--day", "2026-11-25", "--ids-query")
    for added in (2, 0):
        typed([*words, "SELECT id FROM people ORDER BY id"], monkeypatch)
        shown = capsys.readouterr().out
        assert f"in table scores, {added} rows of which are new; telco does not know" in shown
    assert asked[0]["ids"] == ["a", "b"]
    with sqlite3.connect(tmp_path / "people.sqlite") as database:
        found = database.execute("SELECT id, score, reason, model, day FROM scores").fetchall()
    database.close()
    assert sorted(found) == [
        ("a", 0.5, "", "m", "2026-11-25"),
        ("b", None, "unknown at telco", "m", "2026-11-25"),
    ]
