"""Online scores of several classes: a number for each, over HTTP as JSON and Arrow."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import numpy as np
import pyarrow
import pytest

from fedmq import AsyncClient
from fedmq.party.configuration.http import HttpSection
from fedmq.party.http.predict import ARROW, predict_router
from fedmq.party.http.server import HttpServer
from fedmq.party.online.requests import PredictionService
from tests.party.http.serving import arrow_stream
from tests.party.online.serving_harness import ServingHarness
from tests.protocol.online.test_online import World

PREDICT = "/v1/models/production/predict"
IDS = [f"P{row}" for row in range(40)]
CLASSES: dict[str, Any] = {"objective": "multi:softprob", "num_class": 3}


@pytest.fixture(
    scope="module",
    params=[CLASSES, {**CLASSES, "multi_strategy": "multi_output_tree"}],
    ids=["one-output-per-tree", "multi-output-tree"],
)
def world(request: pytest.FixtureRequest) -> World:
    return World(rows=300, trees=3, **request.param)


@pytest.fixture
async def served(world: World) -> AsyncIterator[httpx.AsyncClient]:
    harness = ServingHarness(world)
    service = PredictionService(harness.scorer)
    server = HttpServer(HttpSection(port=0), [predict_router(service)])
    await server.start()
    async with httpx.AsyncClient(base_url=server.url) as client:
        yield client
    await server.close()
    await harness.scorer.close()


def probabilities(world: World) -> Any:
    passive = {party: world.columns[party][:40] for party in ("telco", "retail")}
    return world.model.predict(active=world.columns["active"][:40], passive=passive)


async def test_a_score_is_a_probability_for_each_class(
    served: httpx.AsyncClient, world: World
) -> None:
    answer = await served.post(PREDICT, json={"ids": IDS})
    assert answer.status_code == 200, answer.text
    scores = np.array([row["score"] for row in answer.json()["scores"]], np.float32)
    np.testing.assert_array_equal(scores, probabilities(world))
    np.testing.assert_allclose(scores.sum(axis=1), 1, rtol=1e-5)


async def test_margins_are_xgboosts(served: httpx.AsyncClient, world: World) -> None:
    answer = await served.post(PREDICT, json={"ids": IDS, "output": "margin"})
    scores = np.array([row["score"] for row in answer.json()["scores"]], np.float32)
    np.testing.assert_allclose(scores, world.margins[:40], rtol=1e-5, atol=1e-6)


async def test_rows_start_at_a_margin_for_each_class(
    served: httpx.AsyncClient, world: World
) -> None:
    margin = [[0.5, -0.5, 0.25 * row] for row in range(40)]
    asked = {"ids": IDS, "base_margin": margin}
    answer = await served.post(PREDICT, json=asked)
    passive = {party: world.columns[party][:40] for party in ("telco", "retail")}
    active = world.columns["active"][:40]
    expected = world.model.predict(active=active, passive=passive, base_margin=margin)
    scores = np.array([row["score"] for row in answer.json()["scores"]], np.float32)
    np.testing.assert_array_equal(scores, expected)


async def test_in_arrow_a_score_is_a_list(served: httpx.AsyncClient, world: World) -> None:
    table = pyarrow.table({"id": [*IDS, "nobody"]})
    headers = {"Content-Type": ARROW, "Accept": ARROW}
    answer = await served.post(PREDICT, content=arrow_stream(table), headers=headers)
    assert answer.status_code == 200, answer.text
    *scores, nobody = pyarrow.ipc.open_stream(answer.content).read_all().column("score").to_pylist()
    np.testing.assert_array_equal(np.array(scores, np.float32), probabilities(world))
    assert nobody is None


async def test_a_client_reads_a_tuple_and_none_for_who_is_unknown(
    served: httpx.AsyncClient, world: World
) -> None:
    async with AsyncClient(str(served.base_url)) as client:
        known, unknown = (await client.predict(["P3", "nobody"])).scores
    assert isinstance(known, tuple)
    assert known == tuple(probabilities(world)[3].astype(np.float64).tolist())
    assert unknown is None


async def test_softmax_names_the_likeliest_class() -> None:
    world = World(rows=200, trees=2, **{**CLASSES, "objective": "multi:softmax"})
    harness = ServingHarness(world)
    scored = await harness.scorer.score("production", IDS)
    await harness.scorer.close()
    np.testing.assert_array_equal(
        scored.scores.predictions, world.margins[:40].argmax(axis=1).astype(np.float32)
    )


async def test_a_party_that_is_away_degrades_all_classes_alike(world: World) -> None:
    harness = ServingHarness(world, degrade="partial", away=0.1)
    harness.away = {"telco"}
    scored = await harness.scorer.score("production", IDS, seconds=20.0)
    await harness.scorer.close()
    assert list(scored.scores.degraded) == ["telco"]
    assert scored.scores.predictions.shape == (40, 3)
    np.testing.assert_allclose(scored.scores.predictions.sum(axis=1), 1, rtol=1e-5)
