"""OpenTelemetry traces: all parties' spans in one, and no harm by a collector that is away."""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AsyncExitStack

import numpy as np
import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from fedmq.boosting.params import TrainParams
from fedmq.computation import Given
from fedmq.party.compute.pool import ThreadPool
from fedmq.party.sessions.observe import Observation
from fedmq.party.sessions.runner import Inbox
from fedmq.party.sessions.sessions import Sessions
from fedmq.party.telemetry.spans import Telemetry, trace_context
from fedmq.party.telemetry.timeline import Span
from fedmq.privacy.engines.plain import Plain
from fedmq.protocol.machine import Machine
from fedmq.protocol.retry_policy import RetryPolicy
from fedmq.protocol.session import Address
from fedmq.protocol.training.active import ActiveTraining
from fedmq.protocol.training.passive import PassiveTraining
from fedmq.protocol.training.terms import ActiveTable, PassiveTable
from fedmq.transport.memory import MemoryBroker, MemoryLink

TREES = 3


def machines() -> dict[str, Machine]:
    random = np.random.default_rng(0)
    X = random.normal(size=(60, 4)).astype(np.float32)
    label = (X.sum(axis=1) > 0).astype(np.float32)
    own = ActiveTable(X[:, :2], ("a", "b"), label, np.zeros(60, bool), "the same ids")
    other = PassiveTable(X[:, 2:], ("c", "d"), "the same ids")
    params = TrainParams(num_boost_round=TREES, max_depth=2, max_bin=8)
    return {
        "bank": ActiveTraining("m", "bank", ("telco",), own, params, Plain()),
        "telco": PassiveTraining("telco", "bank", Given(other), lambda _: Plain(), 7),
    }


async def spans_of_a_training(cancel: bool = False) -> dict[str, tuple[ReadableSpan, ...]]:
    broker, pool = MemoryBroker(), ThreadPool()
    exporters = {party: InMemorySpanExporter() for party in machines()}
    for party in exporters:
        broker.declare(party)
    async with AsyncExitStack() as stack:
        stack.push_async_callback(pool.close)
        running = []
        for party, machine in machines().items():
            link, inbox = MemoryLink(broker, party), Inbox("demo", party)
            sessions = Sessions(
                federation="demo",
                link=link,
                inbox=inbox,
                pool=pool,
                retry=RetryPolicy(),
                observation=Observation(
                    telemetry=Telemetry(party, SimpleSpanProcessor(exporters[party]))
                ),
            )
            running.append(sessions.open("0123", 1, "training", "m", machine))
            await link.open(inbox.on_delivery)
            stack.push_async_callback(link.close)
            stack.push_async_callback(sessions.close, "the test is over")
        running[0].runner.start()
        if cancel:
            running[0].runner.cancel("enough")
        # No peer hears of a training that is cancelled before its first message.
        for session in running[:1] if cancel else running:
            await session.runner.closed
    return {party: exporter.get_finished_spans() for party, exporter in exporters.items()}


async def test_the_spans_of_all_parties_are_one_trace_that_no_message_had_to_carry() -> None:
    spans = await spans_of_a_training()
    context = trace_context("demo", "0123")
    for party, found in spans.items():
        assert {span.context.trace_id for span in found if span.context} == {context.trace_id}
        [session] = [span for span in found if span.name == "training"]
        assert session.parent is not None
        assert session.parent.span_id == context.span_id
        assert dict(session.attributes or {}) == {
            "fedmq.party": party,
            "fedmq.session": "0123",
            "fedmq.attempt": 1,
            "fedmq.model": "m",
        }
        assert session.status.status_code is StatusCode.OK
    assert context.trace_id != trace_context("demo", "4567").trace_id
    assert context.trace_id != trace_context("other", "0123").trace_id


async def test_computations_lie_in_trees_and_trees_in_the_session() -> None:
    spans = await spans_of_a_training()
    for found in spans.values():
        by_id = {span.context.span_id: span for span in found if span.context}
        [session] = [span for span in found if span.name == "training"]
        trees = [span for span in found if span.name == "tree"]
        numbers = [(span.attributes or {}).get("fedmq.tree") for span in trees]
        assert numbers == [1, 2, 3]
        above: Counter[str] = Counter()
        for span in found:
            if span is not session:
                assert span.parent is not None
                above[by_id[span.parent.span_id].name] += 1
        assert above["training"] == len(trees)
        assert above["tree"] == len(found) - len(trees) - 1 > TREES


async def test_a_training_that_fails_is_an_error_with_its_reason() -> None:
    spans = await spans_of_a_training(cancel=True)
    [session] = [span for span in spans["bank"] if span.name == "training"]
    assert session.status.status_code is StatusCode.ERROR
    assert "enough" in str(session.status.description)


@pytest.fixture
def library() -> Iterator[logging.Logger]:
    """The collector's own log, which is put back as it was."""
    library = logging.getLogger("opentelemetry")
    handlers, propagate = library.handlers, library.propagate
    yield library
    library.handlers, library.propagate = handlers, propagate


def test_a_collector_that_is_away_is_one_line_and_does_not_hold_up_the_end(
    library: logging.Logger, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    telemetry = Telemetry.to("http://127.0.0.1:9/v1/traces", "bank")
    spans = telemetry.follow(Address("demo", "0123", 1, "bank"), "training", "m")
    now = time.time()
    spans.computed("Sum", now, Span(1, now, now, 0.0))
    begun = time.monotonic()
    telemetry.close()
    assert time.monotonic() - begun < 5
    lines = [(record.name, record.getMessage()) for record in caplog.records]
    ours = "telemetry.endpoint: http://127.0.0.1:9/v1/traces accepts no spans; they are lost"
    assert set(lines) == {("fedmq.party.telemetry.spans", ours)}
    library.getChild("exporter").error("Exception while exporting", exc_info=ValueError("x"))
    assert {record.getMessage() for record in caplog.records} == {ours}
    assert capsys.readouterr().err == ""
