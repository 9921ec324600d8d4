"""Scores over HTTP: what goes in, what comes out, and which status says what went wrong."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pyarrow
import pytest

from fedmq import AsyncClient, Client
from fedmq.errors import ConfigError, DaemonError, DataError, PeerSilent, RowsUnavailable
from fedmq.party.configuration.http import HttpSection
from fedmq.party.http.predict import ARROW, predict_router
from fedmq.party.http.server import HttpServer
from fedmq.party.online.requests import PredictionService, PredictRequest, RequestError
from fedmq.party.online.rows import Rows, ServedRows
from tests.free_port import free_port
from tests.party.http.serving import PREDICT, TOKEN, arrow_stream, serving
from tests.party.online.serving_harness import ACTIVE, ServingHarness
from tests.protocol.online.test_online import World, usual_world


@pytest.fixture(scope="module")
def world() -> World:
    return usual_world()


@pytest.fixture
def harness(world: World) -> ServingHarness:
    return ServingHarness(world)


@pytest.fixture
async def served(harness: ServingHarness) -> AsyncIterator[httpx.AsyncClient]:
    async with serving(harness) as client:
        yield client


async def test_scores_come_in_the_order_of_the_ids(served: httpx.AsyncClient, world: World) -> None:
    asked = {"ids": ["P5", "P3"], "output": "margin"}
    answer = await served.post(PREDICT, json=asked, headers={"X-Request-ID": "r1"})

    assert answer.status_code == 200
    assert answer.headers["X-Request-ID"] == "r1"
    assert answer.json() == {
        "model": "simulated",
        "mode": "hop",
        "scores": [
            {"id": "P5", "score": float(world.margins[5])},
            {"id": "P3", "score": float(world.margins[3])},
        ],
    }


async def test_an_id_that_normalisation_makes_too_long_is_named(harness: ServingHarness) -> None:
    predictions = PredictionService(harness.scorer, lambda ids: [name.upper() for name in ids])
    asked = PredictRequest(ids=["P1", "ß" * 129])
    with pytest.raises(
        RequestError, match=r"ids\.1: the id is longer than 256 characters"
    ) as wrong:
        await predictions.answer("production", asked)
    assert wrong.value.http_status == 422


async def test_arrow_in_and_out(served: httpx.AsyncClient, world: World) -> None:
    names = world.model.share.lookup_table.feature_names
    own = world.columns[ACTIVE][:50]
    table = pyarrow.table(
        {
            "id": world.ids[:50],
            **{name: pyarrow.array(own[:, place], from_pandas=True)
               for place, name in enumerate(names)},
        }
    )  # fmt: skip

    answer = await served.post(
        PREDICT + "?output=margin",
        content=arrow_stream(table),
        headers={"Content-Type": ARROW, "Accept": ARROW},
    )

    assert answer.status_code == 200, answer.text
    scores = pyarrow.ipc.open_stream(answer.content).read_all()
    assert scores.column("id").to_pylist() == world.ids[:50]
    got = scores.column("score").to_numpy().astype(np.float32)
    np.testing.assert_array_equal(got, world.margins[:50])


async def test_an_unknown_id_is_an_answer_in_a_batch_and_404_alone(
    served: httpx.AsyncClient,
) -> None:
    batch = await served.post(PREDICT, json={"ids": ["P1", "nobody"]})
    assert batch.status_code == 200
    known, unknown = batch.json()["scores"]
    assert known["score"] is not None
    assert unknown["score"] is None
    assert unknown["id"] == "nobody"
    assert set(unknown["unknown_at"]) >= {ACTIVE}

    alone = await served.post(PREDICT, json={"ids": ["nobody"]})
    assert alone.status_code == 404
    assert "ids.0: 'nobody' is not known at active" in alone.json()["error"]


@pytest.mark.parametrize(
    ("path", "body", "status", "text"),
    [
        ("/v1/models/other/predict", {"ids": ["P1"]}, 404, "model: 'other' is not served here"),
        (PREDICT, {}, 422, "ids: Field required"),
        (PREDICT, {"ids": []}, 422, "ids: "),
        (PREDICT, {"ids": [7]}, 422, "ids.0: "),
        (PREDICT, {"ids": "P1"}, 422, "ids: "),
        (PREDICT, {"ids": [""]}, 422, "ids.0: "),
        (PREDICT, {"ids": ["P" * 257]}, 422, "ids.0: "),
        (PREDICT, [], 422, "body: "),
        (PREDICT, {"ids": ["P1"], "features": {"f0": 1}}, 422, "features: "),
        (PREDICT, {"ids": ["P1"], "features": [{"f0": True}]}, 422, "features.0.f0"),
        (PREDICT, {"ids": ["P1"], "features": [{"f0": 1e39}]}, 422, "features.0.f0: beyond"),
        (PREDICT, {"ids": ["P1"], "idz": 1}, 422, "idz: "),
        (PREDICT, {"ids": ["P1"], "features": [{"f0": "much"}]}, 422, "features.0.f0"),
        (PREDICT, {"ids": ["P1"], "features": [{"wages": 1}]}, 422, "features.0.wages"),
        (PREDICT, {"ids": ["P1"], "features": []}, 422, "features: 0 for 1 ids"),
        (PREDICT, {"ids": ["P1"], "deadline_ms": 0}, 422, "deadline_ms: "),
        (PREDICT, {"ids": ["P1"], "deadline_ms": "soon"}, 422, "deadline_ms: "),
        (PREDICT, {"ids": ["P1"], "output": "rank"}, 422, "output: "),
        (PREDICT, {"ids": ["P1"], "base_margin": ["x"]}, 422, "base_margin"),
        (PREDICT, {"ids": ["P1"], "base_margin": [0, 1]}, 422, "base_margin has shape (2,), (1,)"),
        (PREDICT, {"ids": ["P1"], "base_margin": [[0, 1]]}, 422, "(1,) is needed"),
        (PREDICT, {"ids": ["P1"], "base_margin": [1e39]}, 422, "base_margin in row 1 is inf"),
        (PREDICT, {"ids": ["P1"] * 10_001}, 413, "ids: 10001 rows"),
    ],
)
async def test_bad_input_names_the_field(
    served: httpx.AsyncClient, path: str, body: Any, status: int, text: str
) -> None:
    answer = await served.post(path, json=body)

    assert answer.status_code == status
    assert text in answer.json()["error"]
    assert answer.json()["request_id"]


@pytest.mark.parametrize(
    ("columns", "query", "status", "text"),
    [
        ({"who": ["P1"]}, "", 422, "id: the column is missing"),
        ({"id": ["P1", None]}, "", 422, "id: no rows, or a row without an id"),
        ({"id": ["P1"], "f0": ["much"]}, "", 422, "f0: string is no number"),
        ({"id": ["P1"], "f0": [float("inf")]}, "", 422, "features.0.f0: infinite"),
        ({"id": ["P1"], "wages": [1]}, "", 422, "features.0.wages"),
        ({"id": ["P1"] * 10_001}, "", 413, "id: more than 10000 rows in one request"),
        ({"id": pyarrow.nulls(10**9)}, "", 422, "id: null is neither text nor a whole number"),
        ({"id": [1.5]}, "", 422, "id: double is neither text"),
        ({"id": ["P1"]}, "?deadline_ms=soon", 422, "deadline_ms: "),
        ({"id": ["P1"]}, "?output=rank", 422, "output: "),
    ],
)
async def test_bad_input_in_arrow_names_the_field(
    served: httpx.AsyncClient, columns: dict[str, Any], query: str, status: int, text: str
) -> None:
    table = pyarrow.table(columns)
    body, kind = arrow_stream(table), {"Content-Type": ARROW}

    answer = await served.post(PREDICT + query, content=body, headers=kind)

    assert answer.status_code == status
    assert text in answer.json()["error"]


@pytest.mark.parametrize(
    ("names", "ids", "status", "text"),
    [
        (["id", "id"], pyarrow.array(["P1"]), 422, "id: the column appears more than once"),
        (["id", "f0"], pyarrow.array([b"\xff"]).view(pyarrow.string()), 400, "no Arrow stream"),
    ],
)
async def test_arrow_that_cannot_be_read_is_no_error_of_ours(
    served: httpx.AsyncClient, names: list[str], ids: pyarrow.Array, status: int, text: str
) -> None:
    batch = pyarrow.RecordBatch.from_arrays([ids, pyarrow.array([1.0])], names)
    body, kind = arrow_stream(batch), {"Content-Type": ARROW}

    answer = await served.post(PREDICT, content=body, headers=kind)

    assert (answer.status_code, text in answer.json()["error"]) == (status, True)


@pytest.mark.parametrize("kind", ["application/json", ARROW])
async def test_a_body_that_is_none_is_400(served: httpx.AsyncClient, kind: str) -> None:
    answer = await served.post(PREDICT, content=b"{ids:", headers={"Content-Type": kind})

    assert answer.status_code == 400
    assert answer.json()["error"].startswith("body: ")


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", ""])
async def test_a_type_that_a_web_page_may_send_unasked_is_415(
    served: httpx.AsyncClient, kind: str
) -> None:
    body = b'{"ids": ["P1"]}'
    answer = await served.post(PREDICT, content=body, headers={"Content-Type": kind})

    assert answer.status_code == 415
    assert "application/json" in answer.json()["error"]


@pytest.mark.parametrize(
    "shown", [{"Authorization": "Bearer something-else-altogether"}, {"Authorization": TOKEN}]
)
async def test_a_wrong_token_is_401(served: httpx.AsyncClient, shown: dict[str, str]) -> None:
    answer = await served.post(PREDICT, json={"ids": ["P1"]}, headers=shown)

    assert answer.status_code == 401
    assert answer.json()["error"] == "show a token: Authorization: Bearer TOKEN"


async def test_a_deadline_that_expires_is_504_and_a_party_known_to_be_away_503(
    served: httpx.AsyncClient, harness: ServingHarness
) -> None:
    harness.away = {"telco"}
    hurried = {"ids": ["P1"], "deadline_ms": 20}
    assert [(await served.post(PREDICT, json=hurried)).status_code for _ in range(4)] == [504] * 4
    asked = {"ids": ["P1"], "deadline_ms": 220}
    first = [await served.post(PREDICT, json=asked) for _ in range(2)]
    # Silence does not count against a party while this process itself came to nothing.
    while not harness.scorer.away and len(first) < 20:
        first.append(await served.post(PREDICT, json=asked))
    later = await served.post(PREDICT, json=asked)

    assert {answer.status_code for answer in first} == {504}
    error = first[0].json()["error"]
    assert re.fullmatch(r"deadline_ms: no score within 0\.2\d* s; waited for telco", error)
    assert later.status_code == 503
    assert later.headers["Retry-After"] == "1"
    assert later.json()["error"] == "telco is away"


class UnreadableRows(ServedRows):
    """A source that cannot be read."""

    def __init__(self, features: tuple[str, ...]) -> None:
        self.features = features

    async def about(self, ids: Sequence[str], seconds: float) -> Rows:
        raise RowsUnavailable(f"{ACTIVE}: its rows cannot be looked up now")


async def test_without_its_own_rows_the_active_party_answers_503_unless_they_are_given(
    served: httpx.AsyncClient, world: World, harness: ServingHarness
) -> None:
    model = harness.scorer.models["production"]
    names = model.rows.features
    harness.scorer.models["production"] = replace(model, rows=UnreadableRows(names))

    lacking = await served.post(PREDICT, json={"ids": ["P1"]})
    own = {
        name: None if np.isnan(value) else float(value)
        for name, value in zip(names, world.columns[ACTIVE][1], strict=True)
    }
    asked = {"ids": ["P1"], "features": [own], "output": "margin"}
    given = await served.post(PREDICT, json=asked)

    assert lacking.status_code == 503
    assert lacking.json()["error"] == "active: its rows cannot be looked up now"
    assert harness.scorer.queued_rows == 0
    assert given.json()["scores"][0]["score"] == world.margins[1]


@pytest.mark.parametrize(
    ("degrade", "guessed"),
    [("fail", None), ("partial", {"telco"}), ("active_only", {"telco", "retail"})],
)
async def test_a_party_whose_rows_cannot_be_looked_up_counts_as_away(
    world: World, degrade: str, guessed: set[str] | None
) -> None:
    harness = ServingHarness(world, degrade=degrade, away=30.0, deadline=60.0)
    telco = harness.parties["telco"]
    for name, share in telco.shares.items():
        features = share.share.lookup_table.feature_names
        telco.shares[name] = replace(share, rows=UnreadableRows(features))
    server = HttpServer(HttpSection(port=0), [predict_router(PredictionService(harness.scorer))])
    await server.start()
    async with httpx.AsyncClient(base_url=server.url) as client:
        answer = await client.post(PREDICT, json={"ids": world.ids[:50]})
    await server.close()

    if guessed is None:
        assert answer.status_code == 503
        assert answer.json()["error"].startswith("telco refused: ")
    else:
        assert set(answer.json()["degraded"]) == guessed


async def test_a_full_queue_is_429(
    served: httpx.AsyncClient, world: World, harness: ServingHarness
) -> None:
    harness.away = {"telco"}
    asked = {"ids": world.ids[:600] * 16, "deadline_ms": 300}
    answers = await asyncio.gather(*(served.post(PREDICT, json=asked) for _ in range(8)))

    statuses = [answer.status_code for answer in answers]
    assert 429 in statuses
    assert set(statuses) <= {429, 503, 504}


async def test_a_partial_answer_is_marked(world: World) -> None:
    harness = ServingHarness(world, degrade="partial", away=0.1)
    harness.away = {"telco"}
    server = HttpServer(HttpSection(port=0), [predict_router(PredictionService(harness.scorer))])
    await server.start()
    async with AsyncClient(server.url) as client:
        scores = await client.predict(["P1", "P2"])
    await server.close()

    assert list(scores.degraded) == ["telco"]
    assert 0 < scores.degraded["telco"] <= 1
    assert None not in scores.scores


async def test_the_description_names_the_endpoint(served: httpx.AsyncClient) -> None:
    document = (await served.get("/openapi.json")).json()

    described = document["paths"]["/v1/models/{model}/predict"]["post"]
    assert "application/json" in described["requestBody"]["content"]
    assert {"404", "422", "429", "503", "504"} <= set(described["responses"])


def started(world: World, rows: list[int], margin: list[float]) -> Any:
    """The margins of ``rows`` that start at ``margin``, by the simulated model."""
    passive = {party: world.columns[party][rows] for party in ("telco", "retail")}
    active = world.columns["active"][rows]
    return world.model.predict(
        active=active, passive=passive, base_margin=margin, output_margin=True
    )


async def test_the_clients_speak_to_the_service(
    served: httpx.AsyncClient, world: World, harness: ServingHarness
) -> None:
    url = str(served.base_url)
    async with AsyncClient(url, TOKEN) as client:
        scores = await client.predict(["P1", "nobody"], output="margin")
        assert scores.scores == (float(world.margins[1]), None)
        assert "active" in scores.unknown_at["nobody"]
        with pytest.raises(DataError, match=r"ids\.0"):
            await client.predict("nobody")

    def from_a_thread() -> None:
        with Client(url, TOKEN) as client:
            moved = client.predict(["P1", "P2"], output="margin", base_margin=[0.5, -0.5])
            assert moved.scores == tuple(map(float, started(world, [1, 2], [0.5, -0.5])))
            assert client.predict("P1", output="margin").scores == (float(world.margins[1]),)
            harness.away = {"telco"}
            with pytest.raises(PeerSilent, match="telco"):
                client.predict("P1", seconds=0.1)
        with (
            Client(url, "not-the-token-of-it") as client,
            pytest.raises(DaemonError, match="token"),
        ):
            client.predict("P1")
        with Client("http://127.0.0.1:9") as client, pytest.raises(DaemonError, match="answer"):
            client.predict("P1")

    await asyncio.to_thread(from_a_thread)


async def test_a_client_asks_again_within_its_deadline_while_the_daemon_restarts(
    world: World,
) -> None:
    harness = ServingHarness(world)
    router = predict_router(PredictionService(harness.scorer))
    port = free_port()
    async with AsyncClient(f"http://127.0.0.1:{port}", retries=100, seconds=10) as client:
        asking = asyncio.create_task(client.predict("P1", output="margin"))
        await asyncio.sleep(0.3)
        assert not asking.done()
        server = HttpServer(HttpSection(port=port), [router])
        await server.start()
        assert (await asking).scores == (float(world.margins[1]),)
        await server.close()


async def test_a_client_asks_again_while_a_party_is_away(
    served: httpx.AsyncClient, world: World, harness: ServingHarness
) -> None:
    harness.away = {"telco"}
    url = str(served.base_url)
    async with AsyncClient(url, TOKEN, retries=100) as client, AsyncClient(url, TOKEN) as once:
        for _ in range(2):  # so that nobody waits for it any more
            with pytest.raises(PeerSilent):
                await once.predict("P1", seconds=0.1)
        asking = asyncio.create_task(client.predict("P1", output="margin", seconds=10))
        await asyncio.sleep(0.3)
        assert not asking.done()
        harness.away.clear()
        began = time.monotonic()
        assert (await asking).scores == (float(world.margins[1]),)
        assert time.monotonic() - began < 2


async def test_a_client_gives_up_at_its_deadline_and_after_its_retries() -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    began = time.monotonic()
    async with AsyncClient(url, retries=100) as client:
        with pytest.raises(DaemonError, match="does not answer"):
            await client.predict("P1", seconds=0.5)
    assert 0.2 < time.monotonic() - began < 1.5
    async with AsyncClient(url, retries=1) as client:
        with pytest.raises(DaemonError, match="does not answer"):
            await client.predict("P1", seconds=60)
    assert time.monotonic() - began < 10


async def test_what_a_request_says_wrong_is_not_asked_again(served: httpx.AsyncClient) -> None:
    async with AsyncClient(str(served.base_url), TOKEN, retries=100) as client:
        with pytest.raises(DataError, match=r"ids\.0"):
            await client.predict("nobody")


async def test_scores_that_need_a_party_that_has_left_say_so_at_once(
    served: httpx.AsyncClient, harness: ServingHarness
) -> None:
    harness.scorer.members = ("active", "retail")
    async with AsyncClient(str(served.base_url), TOKEN, retries=100) as client:
        with pytest.raises(DaemonError, match="without telco, which has left the federation"):
            await client.predict("P1")


def test_without_httpx_the_client_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "httpx", None)
    with pytest.raises(ConfigError, match=r"fedmq\[client\]"):
        Client("http://127.0.0.1")
