"""What Prometheus sees of scores, at the active party and at the parties that answer it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from fedmq.party.configuration.http import HttpSection
from fedmq.party.http.monitoring import AnsweringCollector, ScoreCollector, metrics_router
from fedmq.party.http.predict import predict_router
from fedmq.party.http.server import HttpServer
from fedmq.party.online.requests import PredictionService, RequestError
from fedmq.party.telemetry.metrics import Counters, Gauges, ScoreCounters
from tests.party.online.serving_harness import ServingHarness
from tests.protocol.online.test_online import World

PREDICT = "/v1/models/production/predict"


@pytest.fixture(scope="module")
def world() -> World:
    return World(rows=200, trees=4, depth=3)


@pytest.fixture
def harness(world: World) -> ServingHarness:
    return ServingHarness(world, degrade="partial", away=0.1)


@pytest.fixture
async def served(harness: ServingHarness) -> AsyncIterator[httpx.AsyncClient]:
    predictions = PredictionService(harness.scorer)
    telco = AnsweringCollector(harness.parties["telco"])
    metrics = metrics_router(
        Counters(), lambda: Gauges(True, 0), ScoreCollector(predictions), telco
    )
    server = HttpServer(HttpSection(port=0), [predict_router(predictions), metrics])
    await server.start()
    async with httpx.AsyncClient(base_url=server.url) as client:
        yield client
    await server.close()
    await harness.scorer.close()


async def samples(client: httpx.AsyncClient) -> dict[str, float]:
    families = text_string_to_metric_families((await client.get("/metrics")).text)
    return {
        sample.name + "".join(f"/{value}" for value in sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
        if "_online_" in sample.name
    }


async def test_requests_are_counted_by_what_they_came_to(served: httpx.AsyncClient) -> None:
    before = await samples(served)
    assert before["fedmq_online_rows_total"] == 0

    await served.post(PREDICT, json={"ids": ["P1", "P2", "P3"]})
    await served.post(PREDICT, json={"ids": ["P4"]})
    await served.post(PREDICT, json={"ids": ["nobody"]})
    await served.post(PREDICT, json={"idz": []})
    await served.post(PREDICT, content=b"{", headers={"Content-Type": "application/json"})
    await served.post("/v1/models/other/predict", json={"ids": ["P1"]})

    seen = await samples(served)
    assert seen["fedmq_online_requests_total/200"] == 2
    assert seen["fedmq_online_requests_total/400"] == 1
    assert seen["fedmq_online_requests_total/404"] == 2
    assert seen["fedmq_online_requests_total/422"] == 1
    assert seen["fedmq_online_rows_total"] == 4
    assert seen["fedmq_online_degraded_total"] == 0
    assert seen["fedmq_online_queued_rows"] == 0
    assert seen["fedmq_online_request_seconds_count"] == 6
    assert seen["fedmq_online_request_seconds_bucket/+Inf"] == 6
    assert 0 < seen["fedmq_online_request_seconds_sum"] < 6
    assert seen["fedmq_online_questions_total"] >= 2
    assert seen["fedmq_online_questions_turned_away_total"] == 0


async def test_a_party_that_does_not_answer_shows(
    served: httpx.AsyncClient, harness: ServingHarness
) -> None:
    await served.post(PREDICT, json={"ids": ["P1"]})
    assert (await samples(served))["fedmq_online_party_away/telco"] == 0
    harness.away = {"telco"}
    for _ in range(3):
        assert "degraded" in (await served.post(PREDICT, json={"ids": ["P1", "P2"]})).json()

    seen = await samples(served)
    assert seen["fedmq_online_degraded_total"] == 3
    assert seen["fedmq_online_party_away/telco"] == 1
    assert seen["fedmq_online_party_away/retail"] == 0
    assert seen["fedmq_online_breaker_opened_total/telco"] == 1
    assert seen["fedmq_online_breaker_opened_total/retail"] == 0


def test_times_fall_into_the_pieces_of_the_histogram() -> None:
    times = iter([0.0, 0.0025, 1.0, 1.003, 2.0, 9.0])
    counters = ScoreCounters(clock=lambda: next(times))

    with counters.request():
        pass
    with pytest.raises(RequestError), counters.request():
        raise RequestError(429, "later")
    with pytest.raises(ZeroDivisionError), counters.request():
        raise ZeroDivisionError

    assert counters.requests == {200: 1, 429: 1, 500: 1}
    assert counters.seconds.counts == [1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]
    assert counters.seconds.sum == pytest.approx(7.0055)
