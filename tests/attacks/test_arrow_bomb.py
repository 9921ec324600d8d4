"""A caller sends some kilobytes of compressed Arrow that become hundreds of megabytes."""

from __future__ import annotations

import io
import tracemalloc
from collections.abc import AsyncIterator

import httpx
import numpy as np
import pyarrow
import pyarrow.ipc
import pytest

from fedmq.party.configuration.http import HttpSection
from fedmq.party.http.predict import ARROW, predict_router, unpacked_bytes
from fedmq.party.http.server import HttpServer
from fedmq.party.online.requests import PredictionService
from tests.party.online.serving_harness import ServingHarness
from tests.protocol.online.test_online import usual_world

PREDICT = "/v1/models/production/predict"
MOST = 1024 * 1024


@pytest.fixture
async def served() -> AsyncIterator[httpx.AsyncClient]:
    harness = ServingHarness(usual_world())
    predictions = PredictionService(harness.scorer)
    section = HttpSection(port=0, body_bytes=MOST)
    server = HttpServer(section, [predict_router(predictions, section.body_bytes)])
    await server.start()
    async with httpx.AsyncClient(base_url=server.url) as client:
        yield client
    await server.close()
    await harness.scorer.close()


def stream(table: pyarrow.Table, compression: str | None) -> bytes:
    sink = io.BytesIO()
    options = pyarrow.ipc.IpcWriteOptions(compression=compression)
    with pyarrow.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return sink.getvalue()


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
async def test_a_body_that_unpacks_to_too_much_is_refused_unread(
    served: httpx.AsyncClient, compression: str
) -> None:
    bomb = stream(pyarrow.table({"id": np.zeros(20_000_000, np.int64)}), compression)
    assert len(bomb) < MOST
    pool = pyarrow.default_memory_pool()
    counted = pyarrow.proxy_memory_pool(pool)
    pyarrow.set_memory_pool(counted)
    try:
        answer = await served.post(PREDICT, content=bomb, headers={"Content-Type": ARROW})
    finally:
        pyarrow.set_memory_pool(pool)

    assert answer.status_code == 413
    assert "unpacked" in answer.json()["error"]
    assert (counted.max_memory() or 0) < MOST  # 160 MB if it had been unpacked


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
async def test_an_honest_body_is_scored_compressed_or_not(
    served: httpx.AsyncClient, compression: str | None
) -> None:
    body = stream(pyarrow.table({"id": ["P1", "P2"] * 100}), compression)
    answer = await served.post(PREDICT, content=body, headers={"Content-Type": ARROW})
    assert answer.status_code == 200
    assert len(answer.json()["scores"]) == 200


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
def test_the_size_is_that_of_the_buffers(compression: str | None) -> None:
    table = pyarrow.table({"id": np.arange(5000), "age": np.zeros(5000, np.float32)})
    assert unpacked_bytes(pyarrow, stream(table, compression)) == table.nbytes == 60_000


async def test_a_dictionary_is_refused_before_it_is_unpacked(served: httpx.AsyncClient) -> None:
    words = pyarrow.DictionaryArray.from_arrays(
        np.zeros(1, np.int32), pyarrow.array(["x" * 50_000_000])
    )
    bomb = stream(pyarrow.table({"id": ["P1"], "word": words}), "zstd")
    answer = await served.post(PREDICT, content=bomb, headers={"Content-Type": ARROW})
    assert answer.status_code == 413


@pytest.mark.parametrize("cut", [1, 9, 40, 200, 400])
async def test_a_damaged_stream_is_no_stream(served: httpx.AsyncClient, cut: int) -> None:
    body = stream(pyarrow.table({"id": np.arange(100)}), "zstd")
    damaged = body[:cut] + b"\xff\xff\xff\x7f" + body[cut + 4 :]
    tracemalloc.start()
    answer = await served.post(PREDICT, content=damaged, headers={"Content-Type": ARROW})
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert answer.status_code in (200, 400, 404, 413, 422)  # whatever was damaged, never a crash
    assert peak < 16 * MOST
