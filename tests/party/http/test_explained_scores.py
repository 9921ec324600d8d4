"""Reasons with scores: how many are asked for, of whom, and where there are none."""

from __future__ import annotations

import asyncio

import numpy as np
import pyarrow
import pytest

from fedmq import Client
from fedmq.boosting.model.tree import Agreed, DisclosedColumns
from fedmq.client import ScoreList
from fedmq.party.http.predict import ARROW
from fedmq.protocol.online.options import Mode
from tests.party.http.serving import PREDICT, TOKEN, arrow_stream, serving
from tests.party.online.serving_harness import ServingHarness
from tests.protocol.online.test_online import World, usual_world


@pytest.fixture(scope="module")
def world() -> World:
    return usual_world()


def agreed(world: World) -> Agreed:
    """telco shows its columns, retail is one player."""
    telco = world.shares["telco"]
    table, records = telco.share.lookup_table, len(telco.chains)
    words = {table.feature_names[table.feature[0]]: "short time as a customer"}
    return Agreed(columns={"telco": DisclosedColumns.of(table, records, words)})


async def test_scores_come_with_their_strongest_reasons(world: World) -> None:
    own = world.model.share.lookup_table.feature_names
    harness = ServingHarness(
        world, mode="bitmap", agreed=agreed(world), reasons={own[0]: "little income"}
    )
    async with serving(harness) as served:
        asked = {"ids": ["P5", "P3", "nobody"], "output": "margin", "explain": 100}
        scores = (await served.post(PREDICT, json=asked)).json()["scores"]
        explainer = harness.scorer.models["production"].explainer
        assert explainer is not None
        bias = float(explainer.bias[0])
        for row in scores[:2]:
            values = [reason["value"] for reason in row["reasons"]]
            assert row["score"] == pytest.approx(bias + sum(values), abs=1e-5)
            assert sorted(values, key=abs, reverse=True) == values
        found = {(row["party"], row.get("column")): row for row in scores[0]["reasons"]}
        assert found["telco", 0]["text"] == "short time as a customer"
        assert found["active", own[0]]["text"] == "little income"
        assert "text" not in found["retail", None]
        assert scores[2] == {
            "id": "nobody", "score": None, "unknown_at": ["active", "retail", "telco"],
            "reasons": None,
        }  # fmt: skip

        moved = {**asked, "base_margin": [2.0, -1.0, 0.0]}
        for row, score in zip(
            scores, (await served.post(PREDICT, json=moved)).json()["scores"], strict=True
        ):
            assert score["reasons"] == row["reasons"]
        assert score["score"] is None

        few = (await served.post(PREDICT, json={**asked, "explain": 2})).json()["scores"]
        assert [row["reasons"] for row in few[:2]] == [row["reasons"][:2] for row in scores[:2]]

        table = pyarrow.table({"id": ["P5", "P3"]})
        answer = await served.post(
            PREDICT + "?explain=2",
            content=arrow_stream(table),
            headers={"Content-Type": ARROW, "Accept": ARROW},
        )
        reasons = pyarrow.ipc.open_stream(answer.content).read_all().column("reasons").to_pylist()
        assert [[reason["value"] for reason in row] for row in reasons] == [
            [reason["value"] for reason in row["reasons"]] for row in few[:2]
        ]

        def ask() -> ScoreList:
            with Client(str(served.base_url), TOKEN) as client:
                return client.predict(["P5", "P3"], explain=2)

        (first, *_), _ = (await asyncio.to_thread(ask)).reasons
        strongest = scores[0]["reasons"][0]
        assert first.value == strongest["value"]
        assert first.column == strongest.get("column")


async def test_no_message_shows_that_reasons_were_asked_for(world: World) -> None:
    sent = []
    for explain in (False, True):
        harness = ServingHarness(world, mode="bitmap", agreed=agreed(world))
        await harness.scorer.score("production", ["P5", "P3"], explain=explain)
        sent.append(
            [(party, body.model_copy(update={"budget": 0})) for party, body in harness.sent]
        )
        await harness.scorer.close()
    assert sent[0] == sent[1]
    assert len(sent[0]) == 2


async def test_many_rows_are_explained_beside_the_event_loop_to_the_same_values(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = ServingHarness(world, mode="bitmap", agreed=agreed(world), batch_rows=100)
    at_once = (await harness.scorer.score("production", world.ids, explain=True)).contributions
    assert at_once is not None
    monkeypatch.setattr("fedmq.party.online.scoring._FACTORS_AT_ONCE", 0)
    beside = (await harness.scorer.score("production", world.ids, explain=True)).contributions
    np.testing.assert_array_equal(at_once, beside)
    np.testing.assert_allclose(at_once.sum(axis=1), world.margins, atol=1e-5)
    await harness.scorer.close()


@pytest.mark.parametrize(
    ("mode", "refusing", "words"),
    [
        ("hop", (), "activate it with --mode bitmap"),
        ("bitmap", ("telco",), 'explain = "none" in the [policy] of telco'),
    ],
    ids=["hop", "refusing"],
)
async def test_where_there_are_no_reasons_it_says_why(
    world: World, mode: Mode, refusing: tuple[str, ...], words: str
) -> None:
    harness = ServingHarness(world, mode=mode, agreed=Agreed(refusing=refusing))
    async with serving(harness) as served:
        answer = await served.post(PREDICT, json={"ids": ["P5"], "explain": 4})
        assert answer.status_code == 422
        assert answer.json()["error"].startswith("explain: production: ")
        assert words in answer.json()["error"]
        assert not harness.sent
        assert (await served.post(PREDICT, json={"ids": ["P5"]})).status_code == 200


async def test_a_guess_has_no_reasons(world: World) -> None:
    harness = ServingHarness(world, mode="bitmap", degrade="partial", away=0.05)
    harness.away = {"telco"}
    async with serving(harness) as served:
        answer = (await served.post(PREDICT, json={"ids": ["P5"], "explain": 4})).json()
        assert answer["degraded"].keys() == {"telco"}
        assert answer["scores"][0]["reasons"] is None


async def test_reasons_that_take_too_long_do_not_outlast_the_deadline(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def slow(*_: object) -> None:
        await asyncio.sleep(30)

    monkeypatch.setattr("fedmq.party.online.scoring._contributions", slow)
    harness = ServingHarness(world, mode="bitmap", agreed=agreed(world))
    async with serving(harness) as served:
        asked = {"ids": ["P5"], "explain": 2, "deadline_ms": 300}
        async with asyncio.timeout(5):
            answer = await served.post(PREDICT, json=asked)
        assert answer.status_code == 504
        assert "no reasons within 0.3 s" in answer.json()["error"]
