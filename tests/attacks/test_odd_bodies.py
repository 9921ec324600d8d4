"""A caller sends bodies that JSON allows and nobody writes: deep, wide, wrong a million times."""

from __future__ import annotations

import contextlib
import json
import tracemalloc
from collections.abc import AsyncIterator

import httpx
import pytest

from fedmq.party.configuration.http import HttpSection
from fedmq.party.http.predict import predict_router
from fedmq.party.http.server import HttpServer
from fedmq.party.online.requests import PredictionService, PredictRequest, RequestError
from tests.party.online.serving_harness import ServingHarness
from tests.protocol.online.test_online import World, usual_world

DEEP = b"[" * 100_000 + b"]" * 100_000
WRONG = b",".join([b"1"] * 100_000)
NO_MARGINS = b",".join([b'""'] * 100_000)
KEYS = b",".join(b'"k%d":{}' % number for number in range(50_000))
ODD = {
    "deep ids": (b'{"ids":%s}' % DEEP, 400, "body: "),
    "deep features": (b'{"ids":["P1"],"features":[{"f0":%s}]}' % DEEP, 400, "body: "),
    "lone surrogate": (rb'{"ids":["\ud800"]}', 400, "body: "),
    "foreign bytes": (b'{"ids":["\xff"]}', 400, "body: "),
    "nothing": (b"", 400, "body: "),
    "byte order mark": (b'\xef\xbb\xbf{"ids":["P1"]}', 400, "body: "),
    "long number": (b'{"ids":["P1"],"explain":%s}' % (b"9" * 100_000), 400, "body: "),
    "numbers as ids": (b'{"ids":[%s]}' % WRONG, 422, "ids.0: "),
    "rows that are none": (b'{"ids":["P1"],"features":[%s]}' % WRONG, 422, "features.0: "),
    "cells that are none": (b'{"ids":["P1"],"features":[{%s}]}' % KEYS, 422, "features.0.k0"),
    "unknown fields": (b'{"ids":["P1"],%s}' % KEYS, 422, "k0: "),
    "texts as margins": (b'{"ids":["P1"],"base_margin":[%s]}' % NO_MARGINS, 422, "base_margin"),
    "a margin beyond all": (b'{"ids":["P1"],"base_margin":[1e999]}', 422, "active: base_margin"),
    "a margin of nothing": (b'{"ids":["P1"],"base_margin":[NaN]}', 422, "active: base_margin"),
    "a long name": (b'{"ids":["P1"],"%s":1}' % (b"k" * 100_000), 422, "kkk"),
    "a long column": (b'{"ids":["P1"],"features":[{"%s":1}]}' % (b"k" * 100_000), 422, "feat"),
    "no time": (b'{"ids":["P1"],"deadline_ms":NaN}', 422, "deadline_ms: "),
    "reasons below none": (b'{"ids":["P1"],"explain":-1}', 422, "explain: "),
    "many people": (json.dumps({"ids": ["P1"] * 100_000}).encode(), 413, "ids: "),
}


@pytest.fixture(scope="module")
def world() -> World:
    return usual_world()


@pytest.fixture
async def served(world: World) -> AsyncIterator[httpx.AsyncClient]:
    harness = ServingHarness(world)
    predictions = PredictionService(harness.scorer)
    server = HttpServer(HttpSection(port=0), [predict_router(predictions)])
    await server.start()
    async with httpx.AsyncClient(base_url=server.url) as client:
        yield client
    await server.close()
    await harness.scorer.close()


async def test_each_is_answered_in_one_short_line(served: httpx.AsyncClient) -> None:
    headers = {"Content-Type": "application/json"}
    for body, status, begins in ODD.values():
        answer = await served.post("/v1/models/production/predict", content=body, headers=headers)
        error = answer.json()["error"]
        assert (answer.status_code, error[: len(begins)]) == (status, begins)
        assert len(error) < 1100


@pytest.mark.parametrize("odd", ODD)
def test_each_takes_little_more_than_its_own_memory(odd: str) -> None:
    """Each wrong item was an error once: 16 MB of them took a minute, and gigabytes."""
    body, *_ = ODD[odd]
    tracemalloc.start()
    for read in (PredictRequest.read, PredictRequest.read_named):
        with contextlib.suppress(RequestError):
            read(body)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 50 * len(body) + 4_000_000


def test_a_message_too_deep_to_read_is_refused_like_any_other() -> None:
    """It was an internal error, with a page of log for each."""
    for body in (DEEP, b'{"ids":%s}' % DEEP):
        with pytest.raises(RequestError, match="body: no JSON object") as refused:
            PredictRequest.read_named(body)
        assert refused.value.http_status == 400
