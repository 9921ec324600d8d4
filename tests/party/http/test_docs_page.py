"""The page that describes the service: complete, and by itself."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from html.parser import HTMLParser

import httpx
import pytest
from fastapi import APIRouter

from fedmq.party.configuration.http import HttpSection
from fedmq.party.http.docs_page import docs_page
from fedmq.party.http.monitoring import health_router
from fedmq.party.http.predict import predict_router
from fedmq.party.http.server import HttpServer
from fedmq.party.online.requests import PredictionService
from tests.party.online.serving_harness import ServingHarness
from tests.protocol.online.test_online import World

TOKEN = "a-token-of-sixteen-characters"


class Page(HTMLParser):
    """Tags with their attributes, and the text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
async def client() -> AsyncIterator[httpx.AsyncClient]:
    harness = ServingHarness(World(rows=50, trees=2, depth=2))
    routers: list[APIRouter] = [
        health_router(list),
        predict_router(PredictionService(harness.scorer)),
    ]
    section = HttpSection.model_validate({"port": 0, "tokens": [TOKEN]})
    server = HttpServer(section, routers)
    await server.start()
    async with httpx.AsyncClient(base_url=server.url) as client:
        yield client
    await server.close()
    await harness.scorer.close()


async def test_it_names_every_endpoint_answer_and_field(client: httpx.AsyncClient) -> None:
    document = (await client.get("/openapi.json")).json()
    answer = await client.get("/docs")

    assert answer.headers["content-type"].startswith("text/html")
    page = Page(answer.text)
    assert page.open == []
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert f"{method.upper()} {path}" in page.text
            assert operation["summary"] in page.text
            for status, response in operation["responses"].items():
                assert f"{status}{response['description']}" in page.text
    assert "/v1/models/{model}/predict" in document["paths"]
    for field in ("ids", "features", "deadline_ms", "x-request-id", "degraded", "unknown_at"):
        assert field in page.text


async def test_it_loads_nothing_and_runs_nothing(client: httpx.AsyncClient) -> None:
    answer = await client.get("/docs")

    page = Page(answer.text)
    assert {tag for tag, _ in page.tags}.isdisjoint({"script", "img", "link", "iframe", "base"})
    assert [attributes["href"] for _, attributes in page.tags if "href" in attributes] == [
        "openapi.json"
    ]
    assert not any("src" in attributes for _, attributes in page.tags)
    assert not re.search(r"https?://|url\(|@import", answer.text)
    assert answer.headers["content-security-policy"].startswith("default-src 'none'")


async def test_a_browser_without_a_token_sees_it_and_nothing_else(
    client: httpx.AsyncClient,
) -> None:
    assert (await client.get("/docs")).status_code == 200
    for path in ("/v1/models", "/docs/", "/docs/../v1/models", "/openapi.jsonx"):
        assert (await client.get(path)).status_code == 401


def test_markup_in_a_description_is_text() -> None:
    evil = "<script>alert(1)</script>"
    page = Page(
        docs_page(
            {
                "info": {"title": evil},
                "paths": {evil: {"get": {"summary": evil, "responses": {evil: {}}}}},
                "components": {"schemas": {evil: {"title": evil}}},
            }
        )
    )

    assert "script" not in {tag for tag, _ in page.tags}
    assert page.text.count(evil) >= 6
