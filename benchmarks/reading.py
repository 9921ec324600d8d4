"""A table of a million rows: how long it takes to read, and to look one id up in a database.

::

    python -m benchmarks.reading [--rows 1000000] [--json] [--page FILE]

Each kind of source is read in a process of its own, whose peak of memory is watched. The database
is a private PostgreSQL server; its table has an index of the ids. Milliseconds are medians.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import sqlalchemy

from benchmarks.page import write_page
from fedmq.party.configuration.data import DataSection
from fedmq.party.configuration.online import OnlineSection
from fedmq.party.data.table import read_table
from fedmq.party.online.rows import ServedRows, ServingSource
from fedmq.simulation.memory_watch import MemoryWatch
from tests.postgres_server import PostgresServer

COLUMNS = 10
FEATURES = tuple(f"x{number}" for number in range(COLUMNS))
QUESTIONS = 100
HEAD = "{rows:,} rows of {columns} columns that are numbers, with ids of 15 characters."


@dataclass(frozen=True)
class Read:
    """One kind of source, read whole: seconds, and the peak of the process in MB."""

    source: str
    seconds: float
    megabytes: float


@dataclass(frozen=True)
class LookedUp:
    """So many ids asked for at once: milliseconds from the database, and from what is kept."""

    ids: int
    from_database: float
    remembered: float


def name_of(row: int) -> str:
    return f"customer{row:07d}"


def made_up(rows: int) -> pa.Table:
    values = np.random.default_rng(0).normal(size=(COLUMNS, rows)).astype(np.float32)
    columns = dict(zip(FEATURES, values, strict=True))
    return pa.table({"id": [name_of(row) for row in range(rows)], **columns})


@contextmanager
def database(file: Path) -> Iterator[str]:
    """A server with the CSV ``file`` as its table ``people``; its URL."""
    server = PostgresServer()
    server.start()
    try:
        engine = sqlalchemy.create_engine(server.url)
        columns = ", ".join(f"{name} real" for name in FEATURES)
        with engine.begin() as connection, file.open("rb") as lines:
            connection.exec_driver_sql(f"CREATE TABLE people (id text PRIMARY KEY, {columns})")
            cursor = connection.connection.cursor()
            with cursor.copy("COPY people FROM STDIN (FORMAT csv, HEADER)") as copy:
                while part := lines.read(1 << 20):
                    copy.write(part)
        engine.dispose()
        yield server.url
    finally:
        server.discard()


def read(source: str, data: DataSection) -> Read:
    """Read in a process of its own, so that only this takes its memory."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        seconds, peak = pool.apply(_read, (data,))
    return Read(source, seconds, peak)


def _read(data: DataSection) -> tuple[float, float]:
    began = time.perf_counter()
    with MemoryWatch() as memory:
        read_table("party", data)
    return time.perf_counter() - began, memory.peak / 1e6


async def looked_up(data: DataSection, rows: int) -> list[LookedUp]:
    section = OnlineSection.model_validate({"lookup": {"enabled": True}})
    source = ServingSource("party", data, section)
    await source.open()
    try:
        served = source.served(source.reading.of(FEATURES, "model").run())
        return [await _questions(served, rows, ids) for ids in (1, 250)]
    finally:
        source.close()


async def _questions(served: ServedRows, rows: int, ids: int) -> LookedUp:
    chosen = np.random.default_rng(ids).choice(rows, size=(QUESTIONS, ids), replace=False)
    asked = [[name_of(row) for row in question] for question in chosen]
    times = []
    for _ in range(2):
        spent = []
        for question in asked:
            began = time.perf_counter()
            await served.about(question, 10)
            spent.append(time.perf_counter() - began)
        times.append(1e3 * median(spent))
    return LookedUp(ids, *times)


def page(reads: list[Read], lookups: list[LookedUp]) -> str:
    lines = ["| read whole | seconds | peak, MB |", "|---|---:|---:|"]
    lines += [f"| {row.source} | {row.seconds:.1f} | {row.megabytes:.0f} |" for row in reads]
    lines += ["", "| ids asked for at once | from PostgreSQL, ms | remembered, ms |"]
    lines += ["|---:|---:|---:|"]
    lines += [f"| {row.ids} | {row.from_database:.2f} | {row.remembered:.2f} |" for row in lookups]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--page", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fedmq-benchmark-") as name:
        folder = Path(name)
        parquet, csv = folder / "people.parquet", folder / "people.csv"
        table = made_up(arguments.rows)
        pq.write_table(table, parquet)
        pa_csv.write_csv(table, csv)
        del table
        with database(csv) as url:
            people = DataSection(type="sql", url=url, query="SELECT * FROM people", id="id")
            sources = {
                "Parquet": DataSection(type="parquet", path=parquet, id="id"),
                "CSV": DataSection(type="csv", path=csv, id="id"),
                "PostgreSQL": people,
            }
            reads = [read(source, data) for source, data in sources.items()]
            lookups = asyncio.run(looked_up(people, arguments.rows))
    text = page(reads, lookups)
    if arguments.json:
        print(json.dumps({"reads": [*map(asdict, reads)], "lookups": [*map(asdict, lookups)]}))
    else:
        print(text)
    if arguments.page is not None:
        head = HEAD.format(rows=arguments.rows, columns=COLUMNS)
        write_page(arguments.page, "Reading tables", "make bench-reading", head, text)


if __name__ == "__main__":
    main()
