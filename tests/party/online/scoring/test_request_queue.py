"""Requests by message, over a real broker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import aio_pika
import pytest

from fedmq.boosting.model.contributions import Explainer
from fedmq.errors import LinkError
from fedmq.party.configuration.online import RequestsSection
from fedmq.party.online.requests import PredictionService, RequestQueue
from fedmq.transport.rabbitmq.connection import BrokerConnection
from tests.party.online.serving_harness import ServingHarness
from tests.protocol.online.test_online import World, usual_world
from tests.rabbitmq_node import RabbitNode

QUEUE = "scores"


@pytest.fixture(scope="module")
def world() -> World:
    return usual_world()


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(3000):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never did")


class Caller:
    def __init__(self, channel: aio_pika.abc.AbstractChannel) -> None:
        self._channel = channel
        self._answers: asyncio.Queue[aio_pika.abc.AbstractIncomingMessage] = asyncio.Queue()

    async def open(self) -> None:
        self._replies = await self._channel.declare_queue(exclusive=True)
        await self._replies.consume(self._answers.put, no_ack=True)

    async def send(self, body: bytes, name: str) -> None:
        message = aio_pika.Message(body, reply_to=self._replies.name, correlation_id=name)
        await self._channel.default_exchange.publish(message, QUEUE)

    async def answer(self) -> tuple[str | None, dict[str, Any]]:
        async with asyncio.timeout(60):
            message = await self._answers.get()
        return message.correlation_id, json.loads(message.body)


@pytest.fixture
async def caller(node: RabbitNode, world: World) -> AsyncIterator[Caller]:
    connection = await aio_pika.connect(node.url())
    channel = await connection.channel()
    await channel.declare_queue(QUEUE, durable=True)
    section = RequestsSection.model_validate({"broker": node.url(), "queue": QUEUE})
    harness = ServingHarness(world, mode="bitmap")
    requests = RequestQueue(section, PredictionService(harness.scorer))
    requests.start()
    made = Caller(channel)
    await made.open()
    yield made
    await requests.close()
    await connection.close()


async def test_each_request_is_answered_where_it_wants_to_be(caller: Caller, world: World) -> None:
    for row in range(5):
        asked = {"ids": [world.ids[row]], "output": "margin"}
        await caller.send(json.dumps(asked).encode(), f"c{row}")

    answers = dict([await caller.answer() for _ in range(5)])

    for row in range(5):
        answer = answers[f"c{row}"]
        assert answer["status"] == 200
        assert answer["scores"] == [{"id": world.ids[row], "score": float(world.margins[row])}]


async def test_a_request_by_message_gets_reasons_too(caller: Caller, world: World) -> None:
    asked = {"ids": [world.ids[7]], "output": "margin", "explain": 1000}
    await caller.send(json.dumps(asked).encode(), "why")
    _, answer = await caller.answer()
    (score,) = answer["scores"]
    explainer = Explainer.of(world.served, {})
    added = sum(reason["value"] for reason in score["reasons"])
    assert score["score"] == pytest.approx(float(explainer.bias[0]) + added, abs=1e-5)
    assert {reason["party"] for reason in score["reasons"]} == {"active", "telco", "retail"}


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        (b"{", 400, "body: no JSON object"),
        (b"[1]", 400, "body: no JSON object"),
        (b'{"ids": []}', 422, "ids: "),
        (b'{"ids": ["P1"], "model": "other"}', 404, "'other' is not served"),
        (b'{"ids": ["nobody"]}', 404, "'nobody' is not known"),
    ],
)
async def test_what_is_wrong_is_told_as_over_http(
    caller: Caller, body: bytes, status: int, text: str
) -> None:
    await caller.send(body, "c")

    name, answer = await caller.answer()

    assert (name, answer["status"]) == ("c", status)
    assert text in answer["error"]


async def test_an_answer_that_the_broker_does_not_take_is_given_again(
    caller: Caller, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest, refused = BrokerConnection.reply, []

    async def reply(connection: BrokerConnection, *answer: Any) -> None:
        if not refused:
            refused.append(answer)
            raise LinkError("the broker did not confirm in time")
        await honest(connection, *answer)

    monkeypatch.setattr(BrokerConnection, "reply", reply)
    await caller.send(json.dumps({"ids": [world.ids[0]]}).encode(), "c")

    name, answer = await caller.answer()

    assert refused
    assert (name, answer["status"]) == ("c", 200)


@pytest.mark.long
async def test_a_broker_that_is_killed_loses_no_request_that_it_took(
    node: RabbitNode, world: World
) -> None:
    harness = ServingHarness(world, delay=0.1, deadline=20.0)
    section = RequestsSection.model_validate({"broker": node.url(), "queue": "durable"})
    requests = RequestQueue(section, PredictionService(harness.scorer))
    async with await aio_pika.connect(node.url()) as connection:
        channel = await connection.channel()
        for name in ("durable", "replies"):
            await channel.declare_queue(name, durable=True)
        await asyncio.to_thread(node.remember_queues)
        requests.start()
        await _publish(channel, world, range(30))
        await _wait_for(channel, "replies", 30)
        await _publish(channel, world, range(30, 60))
        await until(lambda: harness.scorer.counts.requests > 35)  # it is in the midst of them
        await asyncio.to_thread(node.kill)
    await asyncio.to_thread(node.start)

    scores: dict[int, float] = {}
    wrong: list[dict[str, Any]] = []

    async def take(message: aio_pika.abc.AbstractIncomingMessage) -> None:
        answer = json.loads(message.body)
        if answer["status"] != 200:  # an error raised here would be swallowed
            wrong.append(answer)
            return
        scores[int(message.correlation_id or "")] = answer["scores"][0]["score"]

    async with await aio_pika.connect(node.url()) as connection:
        channel = await connection.channel()
        replies = await channel.declare_queue("replies", durable=True)
        await replies.consume(take, no_ack=True)
        try:
            await until(lambda: len(scores) == 60)
        except AssertionError:
            lacking = sorted(set(range(60)) - set(scores))
            raise AssertionError(f"no scores of {lacking}: {wrong}; {requests.trouble}") from None
    await requests.close()

    assert scores == {row: float(world.margins[row]) for row in range(60)}


async def _publish(
    channel: aio_pika.abc.AbstractChannel, world: World, rows: Iterable[int]
) -> None:
    for row in rows:
        asked = json.dumps({"ids": [world.ids[row]], "output": "margin"}).encode()
        message = aio_pika.Message(
            asked,
            reply_to="replies",
            correlation_id=str(row),
            delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        )
        await channel.default_exchange.publish(message, "durable")


async def _wait_for(channel: aio_pika.abc.AbstractChannel, queue: str, messages: int) -> None:
    for _ in range(1200):
        declared = await channel.declare_queue(queue, passive=True)
        if declared.declaration_result.message_count == messages:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"{queue} never held {messages} messages")
