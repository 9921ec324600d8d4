"""Three daemons of which one looks its rows up in PostgreSQL: exact, also after an outage."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import numpy as np
import pytest
import sqlalchemy

from fedmq import TrainParams
from tests.cli.command import fedmq
from tests.free_port import free_port
from tests.how_often import seldom
from tests.party.online.serving_federation import TOKEN, ServingFederation
from tests.postgres_server import PostgresServer
from tests.rabbitmq_node import RabbitNode

ROWS = 1_000


@dataclass
class ServingHarness:
    """``postgres`` has the rows of telco, whose metrics are at ``metrics``."""

    federation: ServingFederation
    postgres: PostgresServer
    metrics: str

    def predict(self, rows: np.ndarray[Any, Any]) -> tuple[np.ndarray[Any, Any], dict[str, float]]:
        """Margins, and which party was guessed for."""
        answer = httpx.post(
            f"{self.federation.url}/v1/models/production/predict",
            json={"ids": [self.federation.ids[row] for row in rows], "output": "margin"},
            headers={"Authorization": f"Bearer {TOKEN}"},
            timeout=30,
        )
        assert answer.status_code == 200, answer.text
        body = answer.json()
        margins = np.array([row["score"] for row in body["scores"]], dtype=np.float32)
        return margins, body.get("degraded", {})

    def is_exact(self, rows: np.ndarray[Any, Any]) -> bool:
        margins, degraded = self.predict(rows)
        right = np.array_equal(margins, self.federation.margins["model-1"][rows])
        assert degraded or right
        return right and not degraded

    def wait_until_exact(self, seconds: float) -> None:
        back = time.monotonic()
        while not self.is_exact(np.arange(5)):
            assert time.monotonic() - back < seconds
            time.sleep(0.1)

    def store(self, columns: np.ndarray[Any, Any]) -> None:
        engine = sqlalchemy.create_engine(self.postgres.url)
        number = sqlalchemy.Double
        people = sqlalchemy.Table(
            "people",
            sqlalchemy.MetaData(),
            sqlalchemy.Column("id", sqlalchemy.Text, primary_key=True),
            *(sqlalchemy.Column(f"f{place}", number) for place in range(columns.shape[1])),
        )
        rows = []
        for name, values in zip(self.federation.ids, columns.tolist(), strict=True):
            row: dict[str, Any] = {"id": name}
            rows.append(row | {f"f{at}": None if x != x else x for at, x in enumerate(values)})
        with engine.begin() as connection:
            people.create(connection)
            connection.execute(people.insert(), rows)
        engine.dispose()


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory, node: RabbitNode) -> Iterator[ServingHarness]:
    random = np.random.default_rng(4)
    table = random.normal(size=(ROWS, 6)).astype(np.float32)
    label = (table[:, 0] + table[:, 2] * table[:, 5] > 0).astype(np.int64)
    table[random.random(table.shape) < 0.1] = np.nan
    federation = ServingFederation(
        tmp_path_factory.mktemp("federation") / "demo",
        table,
        label,
        [TrainParams(num_boost_round=8, max_depth=4, max_bin=16)],
        online='degrade = "partial"\ndeadline = 10\naway = 4\nmax_age = 0.2\n'
        "lookup = { timeout = 2 }\n",
        node=node,
    )
    postgres = PostgresServer()
    postgres.start()
    port = free_port()
    harness = ServingHarness(federation, postgres, f"http://127.0.0.1:{port}/metrics")
    harness.store(federation.columns["telco"])
    path = federation.folder / "telco" / "party.toml"
    path.write_text(
        f'{path.read_text()}\n[serving]\ntype = "sql"\nurl = "{postgres.url}"\nid = "id"\n'
        f'query = "SELECT * FROM people"\n\n[http]\nport = {port}\n'
    )
    try:
        federation.start()
        yield harness
    finally:
        federation.stop()
        postgres.discard()


@pytest.mark.parametrize("mode", ["hop", *seldom("bitmap")])
def test_scores_are_xgboosts(harness: ServingHarness, mode: str) -> None:
    harness.federation.activate("model-1", mode)

    assert harness.is_exact(np.random.default_rng(0).permutation(ROWS))
    assert all(harness.is_exact(np.array([row])) for row in range(20))

    metrics = httpx.get(harness.metrics).text
    counts = {
        line.split()[0]: float(line.split()[1])
        for line in metrics.splitlines()
        if line.startswith("fedmq_online_lookup")
    }
    assert counts["fedmq_online_lookup_misses_total"] >= ROWS
    assert counts["fedmq_online_lookup_seconds_count"] > 0
    assert counts["fedmq_online_lookup_failures_total"] == 0


def test_while_the_database_is_away_its_party_is_and_both_come_back(
    harness: ServingHarness,
) -> None:
    federation, telco = harness.federation, harness.federation.folder / "telco" / "party.toml"
    harness.postgres.stop()
    time.sleep(0.3)  # by then all that was remembered is too old

    begun = time.monotonic()
    _, degraded = harness.predict(np.arange(50))
    assert set(degraded) == {"telco"}
    assert time.monotonic() - begun < 4  # it says so, and is not waited for
    assert "rows cannot be looked up: " in fedmq("serving", telco).out

    harness.postgres.start()
    harness.wait_until_exact(5)
    assert "cannot" not in fedmq("serving", telco).out

    # Also where a daemon is started while its database is away.
    harness.postgres.stop()
    federation.kill("telco")
    federation.start("telco")
    assert set(harness.predict(np.arange(50))[1]) == {"telco"}
    harness.postgres.start()
    harness.wait_until_exact(5)
    assert harness.is_exact(np.arange(ROWS))
