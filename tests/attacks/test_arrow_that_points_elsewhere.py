"""A caller sends Arrow whose texts begin and end outside the body, or more cells than bytes."""

from __future__ import annotations

import io
import struct
import time
from collections.abc import AsyncIterator

import httpx
import numpy as np
import pyarrow
import pyarrow.ipc
import pytest

from fedmq.party.configuration.http import HttpSection
from fedmq.party.http.predict import ARROW, predict_router
from fedmq.party.http.server import HttpServer
from fedmq.party.online.requests import PredictionService
from tests.party.online.serving_harness import ServingHarness
from tests.protocol.online.test_online import World, usual_world

PREDICT = "/v1/models/production/predict"
MOST = 4 * 1024 * 1024
ENDS = (0, 4, 8, 12)
"""Where three texts of four letters begin and end."""


@pytest.fixture(scope="module")
def world() -> World:
    return usual_world()


@pytest.fixture
async def served(world: World) -> AsyncIterator[httpx.AsyncClient]:
    harness = ServingHarness(world)
    predictions = PredictionService(harness.scorer)
    section = HttpSection(port=0, body_bytes=MOST)
    server = HttpServer(section, [predict_router(predictions, section.body_bytes)])
    await server.start()
    async with httpx.AsyncClient(base_url=server.url, timeout=60) as client:
        yield client
    await server.close()
    await harness.scorer.close()


def stream(table: pyarrow.Table) -> bytes:
    sink = io.BytesIO()
    with pyarrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


async def answered(served: httpx.AsyncClient, body: bytes) -> httpx.Response:
    return await served.post(PREDICT, content=body, headers={"Content-Type": ARROW})


@pytest.mark.parametrize(
    "ends",
    [(0, 4, 8, 4000), (0, 4, 8, 2**31 - 1), (0, -400, 8, 12), (0, 12, 0, 12), (0, 4, -(2**21), 12)],
)
@pytest.mark.parametrize("column", ["id", "town"])
async def test_texts_outside_the_body_are_no_stream(
    served: httpx.AsyncClient, ends: tuple[int, ...], column: str
) -> None:
    texts = {"id": pyarrow.array([1, 2, 3]), column: ["AAAA", "BBBB", "CCCC"]}
    body = stream(pyarrow.table(texts))
    place = body.index(struct.pack("<4i", *ENDS))
    moved = body[:place] + struct.pack("<4i", *ends) + body[place + 16 :]
    answer = await answered(served, moved)
    assert (answer.status_code, answer.json()["error"]) == (400, "body: no Arrow stream")
    assert (await answered(served, stream(pyarrow.table({"id": ["P1"]})))).status_code == 200


async def test_cells_of_one_bit_are_no_more_than_cells_of_eight_bytes(
    served: httpx.AsyncClient,
) -> None:
    bits = pyarrow.array(np.zeros(90, np.bool_))
    columns = {f"c{number}": bits for number in range(6000)}
    body = stream(pyarrow.table({"id": [f"P{row}" for row in range(90)], **columns}))
    assert len(body) < MOST
    answer = await answered(served, body)
    assert answer.status_code == 413
    assert "90 rows of 6001 columns are too many" in answer.json()["error"]


async def test_ten_thousand_columns_are_counted_at_once(served: httpx.AsyncClient) -> None:
    cell = pyarrow.array([1], pyarrow.int8())
    columns = {f"c{number}": cell for number in range(10_000)}
    body = stream(pyarrow.table({"id": ["P1"], **columns}))
    begun = time.process_time()
    answer = await answered(served, body)
    assert answer.status_code in (404, 422)
    assert time.process_time() - begun < 2
