"""What supervisors and Prometheus see of a daemon."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from unittest.mock import AsyncMock

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from fedmq.messages.codec import encode
from fedmq.party.configuration.http import HttpSection
from fedmq.party.http.monitoring import health_router, metrics_router
from fedmq.party.http.server import HttpServer
from fedmq.party.operations.health import Health
from fedmq.party.sessions.observe import MetricsObserver
from fedmq.party.sessions.runner import Inbox
from fedmq.party.telemetry.metrics import Counters, Gauges
from fedmq.transport.link import Delivery
from tests.party.sealed_parties import envelope


class Daemon:
    """As much of one as the endpoints see."""

    def __init__(self) -> None:
        self.condition = Health()
        self.counters = Counters(clock=lambda: 100.0)

    def standing(self) -> Gauges:
        return Gauges(self.condition.ready, 3, {("training", "growing"): 2}, 1)


@pytest.fixture
def daemon() -> Daemon:
    return Daemon()


@pytest.fixture
async def client(daemon: Daemon) -> AsyncIterator[httpx.AsyncClient]:
    routers = [
        health_router(lambda: daemon.condition),
        metrics_router(daemon.counters, daemon.standing),
    ]
    server = HttpServer(HttpSection(port=0), routers)
    await server.start()
    async with httpx.AsyncClient(base_url=server.url) as client:
        yield client
    await server.close()


async def samples(client: httpx.AsyncClient) -> dict[str, float]:
    text = (await client.get("/metrics")).text
    families = text_string_to_metric_families(text)
    return {
        sample.name + "".join(f"/{value}" for value in sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }


async def test_a_daemon_in_trouble_lives_but_is_not_ready(
    client: httpx.AsyncClient, daemon: Daemon
) -> None:
    assert (await client.get("/health/ready")).status_code == 200
    daemon.condition = Health(("the broker is not connected: it is gone",))
    assert (await client.get("/health/live")).status_code == 200
    answer = await client.get("/health/ready")
    assert answer.status_code == 503
    assert answer.json() == {
        "ready": False,
        "reasons": ["the broker is not connected: it is gone"],
        "away": [],
        "warnings": [],
    }


async def test_a_party_that_is_away_is_told_and_no_reason_to_go_elsewhere(
    client: httpx.AsyncClient, daemon: Daemon
) -> None:
    daemon.condition = Health(away=("telco",))
    answer = await client.get("/health/ready")
    assert answer.status_code == 200
    assert answer.json() == {"ready": True, "reasons": [], "away": ["telco"], "warnings": []}


async def test_where_there_are_tokens_the_reasons_are_for_who_shows_one(daemon: Daemon) -> None:
    reason = "the broker is not connected: mq.example.org:5671 does not answer"
    daemon.condition = Health((reason,), ("telco",))
    token = "a-token-of-sixteen-characters"
    section = HttpSection.model_validate({"port": 0, "tokens": [token]})
    server = HttpServer(section, [health_router(lambda: daemon.condition)])
    await server.start()
    async with httpx.AsyncClient(base_url=server.url) as client:
        for shown in ({}, {"Authorization": "Bearer another-token-of-this-length"}):
            answer = await client.get("/health/ready", headers=shown)
            assert answer.status_code == 503
            assert answer.json() == {"ready": False}
        answer = await client.get("/health/ready", headers={"Authorization": f"Bearer {token}"})
        assert answer.json() == {
            "ready": False,
            "reasons": [reason],
            "away": ["telco"],
            "warnings": [],
        }
    await server.close()


async def test_what_was_counted_is_shown(client: httpx.AsyncClient, daemon: Daemon) -> None:
    counters, message = daemon.counters, envelope()
    attempt = MetricsObserver(counters)
    attempt.leaving(message.header, 200)
    attempt.leaving(message.header, 100)
    attempt.worked("Given", 0.5)
    inbox = Inbox("demo", "telco", counters=counters)
    sent = datetime(1970, 1, 1, 0, 1, 30, tzinfo=UTC).timestamp()
    body, settle = encode(message), AsyncMock()
    await inbox.on_delivery(Delivery(body, "1", "bank", "training", True, settle, settle, sent))
    counters.refused["Untrusted"] += 1
    counters.retries["telco"] += 4
    counters.sessions_ended["training", "finished"] += 1

    seen = await samples(client)
    assert seen["fedmq_messages_sent_total/probe"] == 2
    assert seen["fedmq_bytes_sent_total/probe"] == 300
    assert seen["fedmq_messages_received_total/probe"] == 1
    assert seen["fedmq_redeliveries_total"] == 1
    assert seen["fedmq_queue_age_seconds"] == 10
    assert seen["fedmq_messages_refused_total/Untrusted"] == 1
    assert seen["fedmq_retries_total/telco"] == 4
    assert seen["fedmq_sessions_ended_total/finished/training"] == 1
    assert seen["fedmq_sessions/training/growing"] == 2
    assert seen["fedmq_peers_waited_for"] == 1
    assert seen["fedmq_dead_letters_total"] == 3
    assert seen["fedmq_broker_connected"] == 1
    assert 0 <= seen["fedmq_arithmetic_seconds_total/Given"] < 1


async def test_names_are_in_prometheus_style(client: httpx.AsyncClient) -> None:
    names = re.findall(r"^# TYPE (\S+) (\S+)", (await client.get("/metrics")).text, re.MULTILINE)
    assert len(names) >= 14
    for name, kind in names:
        assert re.fullmatch(r"fedmq_[a-z_]+", name)
        assert name.endswith("_total") == (kind == "counter")
