"""An HTTP server of scores for tests, and a client that may ask it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pyarrow

from fedmq.party.configuration.http import HttpSection
from fedmq.party.http.predict import predict_router
from fedmq.party.http.server import HttpServer
from fedmq.party.online.requests import PredictionService
from tests.party.online.serving_harness import ServingHarness

TOKEN = "a-token-of-sixteen-characters"
HEADERS = {"Authorization": f"Bearer {TOKEN}"}
PREDICT = "/v1/models/production/predict"


def arrow_stream(rows: pyarrow.Table | pyarrow.RecordBatch) -> bytes:
    """``rows`` as the body of a request."""
    sink = pyarrow.BufferOutputStream()
    with pyarrow.ipc.new_stream(sink, rows.schema) as writer:
        writer.write(rows)
    body: bytes = sink.getvalue().to_pybytes()
    return body


@asynccontextmanager
async def serving(
    harness: ServingHarness,
) -> AsyncIterator[httpx.AsyncClient]:
    section = HttpSection.model_validate({"port": 0, "tokens": [TOKEN]})
    service = PredictionService(harness.scorer)
    server = HttpServer(section, [predict_router(service)])
    await server.start()
    async with httpx.AsyncClient(base_url=server.url, headers=HEADERS) as client:
        yield client
    await server.close()
    await harness.scorer.close()
