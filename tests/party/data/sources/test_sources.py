"""One table from a CSV file, a Parquet file, SQLite and PostgreSQL: read alike, refused alike."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as arrow
import pytest
import sqlalchemy
from pyarrow import parquet

from fedmq.errors import ConfigError, DataError, SourceAway
from fedmq.party.configuration.data import DataSection
from fedmq.party.data.loading import raw_label
from fedmq.party.data.sources import csv_file, parquet_file
from fedmq.party.data.sources import sql as sql_query
from fedmq.party.data.sources.opening import source_of
from fedmq.party.data.table import Table, read_table
from fedmq.party.data.validation import validate_source
from tests.postgres_server import PostgresServer

Rows = Sequence[Sequence[Any]]
Stored = Callable[..., DataSection]

HEADER = ("id", "age", "city", "income", "y")
ROWS: Rows = (
    ("p3", 30, "Rome", 1.5, 0),
    ("p1", None, "Oslo", 2000.25, 1),
    ("p2", 51, None, None, 1),
)


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    server = PostgresServer()
    server.start()
    yield server
    server.discard()


def as_csv(folder: Path, header: Sequence[str], rows: Rows, **values: Any) -> DataSection:
    path = folder / "data.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
    return DataSection(path=path, **{"id": "id", **values})


def as_parquet(folder: Path, header: Sequence[str], rows: Rows, **values: Any) -> DataSection:
    path = folder / "data.parquet"
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(header)
    parquet.write_table(
        arrow.table({name: list(cells) for name, cells in zip(header, columns, strict=True)}),
        path,
        row_group_size=2,
    )
    return DataSection(type="parquet", path=path, **{"id": "id", **values})


def as_sql(url: str, header: Sequence[str], rows: Rows, **values: Any) -> DataSection:
    engine = sqlalchemy.create_engine(url, poolclass=sqlalchemy.pool.NullPool)
    metadata = sqlalchemy.MetaData()
    columns = [
        sqlalchemy.Column(name, _sql_type([row[place] for row in rows]))
        for place, name in enumerate(header)
    ]
    people = sqlalchemy.Table("people", metadata, *columns)
    with engine.begin() as connection:
        people.drop(connection, checkfirst=True)
        people.create(connection)
        if rows:
            connection.execute(
                people.insert(), [dict(zip(header, row, strict=True)) for row in rows]
            )
    engine.dispose()
    given = {"id": "id", "query": "SELECT * FROM people", **values}
    return DataSection(type="sql", url=url, **given)


def _sql_type(cells: Sequence[Any]) -> Any:
    kinds = {type(cell) for cell in cells if cell is not None}
    if kinds <= {int} and kinds:
        return sqlalchemy.Integer
    if kinds <= {int, float} and kinds:
        return sqlalchemy.Numeric(12, 4)
    return sqlalchemy.Text


@pytest.fixture(params=["csv", "parquet", "sqlite", "postgresql"])
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> Stored:
    """Stores rows in one kind of source, and returns the section that names it."""

    def store(header: Sequence[str], rows: Rows, **values: Any) -> DataSection:
        match request.param:
            case "csv":
                return as_csv(tmp_path, header, rows, **values)
            case "parquet":
                return as_parquet(tmp_path, header, rows, **values)
            case "sqlite":
                return as_sql(f"sqlite:///{tmp_path}/data.sqlite", header, rows, **values)
            case _:
                url = request.getfixturevalue("postgres").url
                return as_sql(url, header, rows, **values)

    return store


def read(section: DataSection) -> Table:
    return read_table("bank", section, raw_label if section.label else None)


def test_all_sources_give_the_same_table(stored: Stored) -> None:
    table = read(stored(HEADER, ROWS, label="y"))
    assert table.ids == ("p1", "p2", "p3")
    assert table.features == ("age", "city=Oslo", "city=Rome", "income")
    nan = np.nan
    np.testing.assert_array_equal(
        table.values,
        np.array([[nan, 1, 0, 2000.25], [51, nan, nan, nan], [30, 0, 1, 1.5]], dtype=np.float32),
    )
    assert table.label is not None and table.label.tolist() == [1, 1, 0]


def test_all_sources_have_the_same_fingerprint_in_any_order_of_their_rows(
    stored: Stored, tmp_path: Path
) -> None:
    expected = read(as_csv(tmp_path, HEADER, ROWS, label="y")).fingerprint()
    assert read(stored(HEADER, ROWS[::-1], label="y")).fingerprint() == expected
    changed = [*ROWS[:2], ("p2", 51, None, None, 0)]
    assert read(stored(HEADER, changed, label="y")).fingerprint() != expected


def test_whole_numbers_are_ids_as_they_are_written(stored: Stored) -> None:
    assert read(stored(("id", "x"), [(12, 1.5), (7, 2.5)])).ids == ("12", "7")


def test_only_the_columns_that_are_features_are_read(stored: Stored) -> None:
    chosen = stored(HEADER, ROWS, label="y", features=("income",))
    assert read(chosen).features == ("income",)
    left = stored(HEADER, ROWS, label="y", ignore=("city", "age"))
    assert read(left).features == ("income",)


def test_a_declared_category_may_be_a_number(stored: Stored) -> None:
    rows = [("a", 2), ("b", 1), ("c", None), ("d", 2)]
    table = read(stored(("id", "grade"), rows, types={"grade": "category"}))
    assert table.features == ("grade=1", "grade=2")
    assert table.values[:, 1].tolist()[:2] == [1, 0]
    assert np.isnan(table.values[2]).all()


def test_a_declared_number_refuses_text_with_its_place(stored: Stored) -> None:
    section = stored(("id", "age"), [("a", "30"), ("b", "old")], types={"age": "number"})
    with pytest.raises(DataError, match=r"(line 3|row 2), column 'age': 'old' is no number"):
        read(section)


def test_repeated_ids_are_an_error_that_counts_and_shows_some(stored: Stored) -> None:
    rows = [("a", 1), ("b", 2), ("a", 3), ("b", 4), ("c", 5), ("a", 6)]
    with pytest.raises(DataError, match="3 ids are repeated, such as 'a' in"):
        read(stored(("id", "x"), rows))
    for rule, values in (("first", [1, 2, 5]), ("last", [6, 4, 5])):
        table = read(stored(("id", "x"), rows, duplicates=rule))
        assert table.ids == ("a", "b", "c")
        assert table.values[:, 0].tolist() == values


def test_a_missing_id_and_a_missing_column_are_named(stored: Stored) -> None:
    with pytest.raises(DataError, match=r"(line 3|row 2): the id is empty"):
        read(stored(("id", "x"), [("a", 1), (None, 2)]))
    with pytest.raises(DataError, match=r"there is no column 'key' \(id\)"):
        read(stored(("id", "x"), [("a", 1)], id="key"))
    with pytest.raises(DataError, match="there is no column 'cty'"):
        read(stored(("id", "x"), [("a", 1)], types={"cty": "category"}))


def test_a_source_without_rows_is_refused(stored: Stored) -> None:
    with pytest.raises(DataError, match="there are no rows"):
        read(stored(("id", "x"), []))


def test_rows_come_in_batches(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (csv_file, parquet_file, sql_query):
        monkeypatch.setattr(module, "_BATCH_ROWS", 2)
    rows = [(f"p{number}", number, None if number < 3 else "red") for number in range(7)]
    section = stored(("id", "x", "colour"), rows)
    with source_of("bank", section) as source:
        lengths = [len(batch.numbers) for batch in source.batches(["id"])]
    assert len(lengths) >= 4 and max(lengths) <= 2
    table = read(section)
    assert table.values[:, 0].tolist() == list(range(7))
    assert np.isnan(table.values[:3, 1]).all() and table.values[3:, 1].tolist() == [1] * 4


def test_a_validation_shows_columns_types_missing_shares_and_repeated_ids(stored: Stored) -> None:
    rows = [*ROWS, ("p2", 40, "Rome", 1.0, 0)]
    found = validate_source(
        "bank", stored(HEADER, rows, label="y", ignore=("income",)), labelled=True
    )
    assert (found.rows, found.repeated, found.repeated_ids) == (4, 1, ("p2",))
    described = {
        column.name: (column.role, column.type, column.missing) for column in found.columns
    }
    assert described == {
        "id": ("id", "id", None),
        "age": ("feature", "number", 0.25),
        "city": ("feature", "category", 0.25),
        "income": ("ignored", "not read", None),
        "y": ("label", "number", 0.0),
    }
    [refused] = found.refused
    assert "1 ids are repeated" in refused


def test_a_validation_goes_on_after_the_first_thing_that_is_wrong(tmp_path: Path) -> None:
    rows = [("a", "1", "x", ""), ("b", "old", "2", "1")]
    found = validate_source(
        "bank", as_csv(tmp_path, ("id", "age", "kind", "y"), rows, label="y"), True
    )
    assert len(found.refused) == 3
    assert [column.type for column in found.columns] == ["id", "refused", "refused", "number"]


# Categories


def test_a_number_among_words_is_no_category_unless_declared(tmp_path: Path) -> None:
    rows = [("a", "unknown"), ("b", "3.5")]
    with pytest.raises(DataError, match="line 2, column 'x': 'unknown' is no number, as '3"):
        read(as_csv(tmp_path, ("id", "x"), rows))
    declared = as_csv(tmp_path, ("id", "x"), rows, types={"x": "category"})
    assert read(declared).features == ("x=3.5", "x=unknown")
    marked = as_csv(tmp_path, ("id", "x"), rows, missing=("unknown",))
    assert read(marked).features == ("x",)


def test_a_column_with_too_many_categories_is_refused(tmp_path: Path) -> None:
    rows = [(f"p{number}", f"name {number}") for number in range(5)]
    with pytest.raises(DataError, match="column 'name': more than 4 categories"):
        read(as_csv(tmp_path, ("id", "name"), rows, max_categories=4))


def test_categories_of_a_model_are_found_in_rows_that_lack_some_of_them(tmp_path: Path) -> None:
    rows = [("a", "red"), ("b", None), ("c", "green")]
    table = read(as_csv(tmp_path, ("id", "colour"), rows))
    chosen = table.columns(("colour=blue", "colour=red"))
    np.testing.assert_array_equal(chosen, np.array([[0, 1], [np.nan, np.nan], [0, 0]], np.float32))
    with pytest.raises(KeyError, match="size=big"):
        table.columns(("size=big",))
    empty = read(as_csv(tmp_path, ("id", "colour"), [("a", None)]))
    assert np.isnan(empty.columns(("colour=red",))).all()


def test_columns_that_no_wanted_feature_comes_from_are_not_read(tmp_path: Path) -> None:
    section = as_csv(
        tmp_path, ("id", "a=b", "colour", "note"), [("p", 1, "red", "?!"), ("q", 2, "x", "9")]
    )
    table = read_table("bank", section, wanted=("a=b", "colour=red"))
    assert table.features == ("a=b", "colour=red", "colour=x")


# Ids


@pytest.mark.parametrize(
    ("steps", "given", "expected"),
    [
        (("trim",), " A-1 ", "A-1"),
        ((), " A-1 ", " A-1 "),
        (("trim", "lower"), " Ab ", "ab"),
        (("upper",), "ab", "AB"),
        (("digits",), "+49 (0)30-12", "4903012"),
        (
            ("trim", "sha256"),
            " a ",
            "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb",
        ),
    ],
)
def test_ids_are_normalised_step_by_step(
    tmp_path: Path, steps: tuple[str, ...], given: str, expected: str
) -> None:
    section = as_csv(tmp_path, ("id", "x"), [(given, 1)], normalise=steps)
    assert read(section).ids == (expected,)


def test_ids_that_become_the_same_are_repeated(tmp_path: Path) -> None:
    section = as_csv(tmp_path, ("id", "x"), [("A", 1), ("a", 2)], normalise=("lower",))
    with pytest.raises(DataError, match="1 ids are repeated"):
        read(section)


def test_hashed_ids_are_taken_as_they_are_and_looked_at(tmp_path: Path) -> None:
    options: dict[str, Any] = {"normalise": ("lower", "sha256"), "hashed": True}
    assert read(as_csv(tmp_path, ("id", "x"), [("0" * 64, 1)], **options)).ids == ("0" * 64,)
    with pytest.raises(DataError, match="'anna' is no SHA-256"):
        read(as_csv(tmp_path, ("id", "x"), [("anna", 1)], **options))


def test_ids_of_mixed_types_are_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/mixed.sqlite"
    section = as_sql(url, ("id", "x"), [("a", 1)])
    mixed = section.model_copy(update={"query": "SELECT 'a' AS id, 1 AS x UNION ALL SELECT 7, 2"})
    with pytest.raises(DataError, match="the id '7' is of another type than those before"):
        read(mixed)
    real = section.model_copy(update={"query": "SELECT 1.5 AS id, 1 AS x"})
    with pytest.raises(DataError, match=r"the id '1\.5' is a float; ids are text or whole numbers"):
        read(real)


# What cannot be reached


def test_a_database_that_does_not_answer_is_one_line_without_the_password(
    postgres: PostgresServer,
) -> None:
    url = postgres.url.replace(str(postgres.port), "1")
    section = DataSection(type="sql", url=url, query="SELECT 1 AS id", id="id")
    with pytest.raises(DataError) as caught:
        read(section)
    line = str(caught.value)
    assert line.startswith("bank: postgresql+psycopg://127.0.0.1:1/postgres: no connection: ")
    assert "\n" not in line and "secret" not in line


def test_a_wrong_query_is_named_and_a_database_that_breaks_off_too(
    postgres: PostgresServer,
) -> None:
    section = DataSection(type="sql", url=postgres.url, query="SELECT nothing", id="id")
    with pytest.raises(DataError, match='the query failed: column "nothing" does not exist'):
        read(section)
    breaking = "SELECT n AS id, 1 / (n - 15000) AS x FROM generate_series(1, 20000) AS n"
    with pytest.raises(DataError, match="the query broke off: division by zero"):
        read(section.model_copy(update={"query": breaking}))


@pytest.mark.parametrize(
    ("url", "line"),
    [
        ("://h", "url: not a database URL"),
        ("postgresql://u:se@cret:word@h/db", "^[^/]*//h/db: url: not a database URL$"),
        ("postgresql://u:se/cret@h:port/db", "^[^/]*//h:port/db: url: not a database URL$"),
        ("nosuch://host/db", "driver is not installed"),
    ],
)
def test_a_wrong_url_is_a_wrong_configuration(url: str, line: str) -> None:
    with pytest.raises(ConfigError, match=line):
        read(DataSection(type="sql", url=url, query="SELECT 1 AS id", id="id"))


def test_a_source_that_cannot_be_reached_may_be_there_later(tmp_path: Path) -> None:
    sections = [
        DataSection(type="csv", path=tmp_path / "a.csv", id="id"),
        DataSection(type="parquet", path=tmp_path / "a.parquet", id="id"),
        DataSection(
            type="sql", url="postgresql+psycopg://u:p@127.0.0.1:1/db", query="SELECT 1", id="id"
        ),
        DataSection(
            type="sql", url=f"sqlite:///{tmp_path}/a.sqlite", query="SELECT 1 AS id", id="id"
        ),
    ]
    for section in sections:
        with pytest.raises(SourceAway):
            read(section)
    assert not list(tmp_path.iterdir())


def test_a_parquet_file_of_many_columns_is_read_some_columns_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_file, "_MANY_COLUMNS", 3)
    monkeypatch.setattr(parquet_file, "_COLUMNS_TOGETHER", 3)
    draw, path = np.random.default_rng(0), tmp_path / "wide.parquet"
    columns = {f"c{number}": draw.normal(size=70).astype(np.float32) for number in range(10)}
    ids = [f"{number:03}" for number in range(70)]
    towns = ["Bern" if number % 3 else "Wil" for number in range(70)]
    parquet.write_table(arrow.table({"town": towns, "id": ids, **columns}), path, row_group_size=32)
    table = read_table("bank", DataSection(type="parquet", path=path, id="id"))
    assert table.ids == tuple(ids)
    assert table.features == ("town=Bern", "town=Wil", *columns)
    np.testing.assert_array_equal(
        table.columns(tuple(columns)), np.column_stack([*columns.values()])
    )
    np.testing.assert_array_equal(table.columns(("town=Wil",))[:, 0], np.arange(70) % 3 == 0)


def test_a_parquet_file_of_many_columns_that_is_torn_names_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet_file, "_MANY_COLUMNS", 2)
    monkeypatch.setattr(parquet_file, "_COLUMNS_TOGETHER", 2)
    path = tmp_path / "wide.parquet"
    columns = {f"c{number}": np.arange(1000.0) for number in range(5)}
    whole = arrow.table({"id": [f"{number}" for number in range(1000)], **columns})
    parquet.write_table(whole, path)
    torn = bytearray(path.read_bytes())
    torn[len(torn) // 3 : len(torn) // 2] = bytes(len(torn) // 2 - len(torn) // 3)
    path.write_bytes(torn)
    with pytest.raises(DataError, match=r"^bank: .*wide\.parquet: cannot be read: "):
        read_table("bank", DataSection(type="parquet", path=path, id="id"))


def test_a_file_that_is_no_parquet_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "data.parquet"
    section = DataSection(type="parquet", path=path, id="id")
    with pytest.raises(DataError, match="there is no such file"):
        read(section)
    path.write_text("id\n1\n")
    with pytest.raises(DataError, match="not a Parquet file"):
        read(section)
