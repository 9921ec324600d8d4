"""Traces of online scores: request, rounds, questions, and the answers of others below them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from fedmq.errors import PeerSilent
from fedmq.party.telemetry.spans import OnlineSpans, Telemetry, trace_context
from fedmq.protocol.online.options import Mode
from tests.party.online.serving_harness import ACTIVE, ServingHarness
from tests.protocol.online.test_online import MODES, World
from tests.virtual_clock import in_virtual_time

PARTIES = (ACTIVE, "telco", "retail")


@pytest.fixture(scope="module")
def world() -> World:
    return World(rows=200, trees=6, depth=4)


class Traced:
    """A serving harness whose parties each export their spans to a list of their own."""

    def __init__(self, world: World, share: float = 1.0, **options: object) -> None:
        self.exporters = {party: InMemorySpanExporter() for party in PARTIES}
        spans = {
            party: OnlineSpans(
                Telemetry(party, SimpleSpanProcessor(exporter)), "demo", party, share
            )
            for party, exporter in self.exporters.items()
        }
        self.harness = ServingHarness(world, spans=spans, **options)  # type: ignore[arg-type]

    def spans(self, party: str, name: str) -> list[ReadableSpan]:
        found = self.exporters[party].get_finished_spans()
        return [span for span in found if span.name == name]


def _number(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


def _parent(span: ReadableSpan) -> int:
    assert span.parent is not None
    return span.parent.span_id


def _attributes(span: ReadableSpan) -> Mapping[str, object]:
    return dict(span.attributes or {})


@pytest.mark.parametrize("mode", MODES)
async def test_a_score_is_one_trace_down_to_the_answers_of_others(world: World, mode: Mode) -> None:
    traced = Traced(world, mode=mode)
    names = world.ids[:30]  # among them some that take the longest way
    await asyncio.gather(*(traced.harness.margins([name]) for name in names))

    [batch] = traced.spans(ACTIVE, "batch")
    context = trace_context("demo", f"{traced.harness.scorer.session}/1")
    spans = [
        span for exporter in traced.exporters.values() for span in exporter.get_finished_spans()
    ]
    assert {span.context.trace_id for span in spans if span.context} == {context.trace_id}
    assert _parent(batch) == context.span_id
    assert _attributes(batch) == {
        "fedmq.party": ACTIVE, "fedmq.model": "simulated", "fedmq.mode": mode,
    }  # fmt: skip

    requests, rounds = traced.spans(ACTIVE, "request"), traced.spans(ACTIVE, "round")
    assert len(requests) == len(names)
    assert len(rounds) == (world.served.rounds if mode == "hop" else 1)
    assert [_attributes(turn)["fedmq.round"] for turn in rounds] == list(range(1, len(rounds) + 1))
    assert {_parent(span) for span in (*requests, *rounds)} == {_number(batch)}
    assert all(request.status.status_code is StatusCode.OK for request in requests)

    questions = traced.spans(ACTIVE, "question")
    assert {_parent(question) for question in questions} == {_number(turn) for turn in rounds}
    for party in PARTIES[1:]:
        asked = [
            _number(question)
            for question in questions
            if _attributes(question)["fedmq.peer"] == party
        ]
        answers = traced.spans(party, "answer")
        assert sorted(map(_parent, answers)) == sorted(asked) != []
    for span in spans:
        assert not any(name in str(_attributes(span)) for name in names)
        assert span.end_time is not None


def test_what_is_not_answered_shows_where_and_why(world: World) -> None:
    async def scored() -> Traced:
        traced = Traced(world, ask_again=0.03)
        traced.harness.away = {"telco"}
        with pytest.raises(PeerSilent):
            await traced.harness.margins(world.ids[:5], seconds=0.2)
        return traced

    traced = in_virtual_time(scored())
    [request] = traced.spans(ACTIVE, "request")
    assert request.status.status_code is StatusCode.ERROR
    assert "waited for telco" in str(request.status.description)
    questions = traced.spans(ACTIVE, "question")
    by_peer = {_attributes(question)["fedmq.peer"]: question for question in questions}
    assert by_peer["telco"].status.description == "no answer"
    assert [event.name for event in by_peer["telco"].events][:2] == ["asked again"] * 2
    assert by_peer["retail"].status.description is None


async def test_a_guess_and_a_refusal_are_marked(world: World) -> None:
    traced = Traced(world, degrade="partial", limits={"rows_per_second": 1})
    await traced.harness.margins(world.ids[:50])

    [request] = traced.spans(ACTIVE, "request")
    assert _attributes(request)["fedmq.degraded"] == ("retail", "telco")
    refused = [*traced.spans("telco", "answer"), *traced.spans(ACTIVE, "question")]
    assert {span.status.description for span in refused} == {"rate"}


async def test_parties_with_the_same_share_follow_the_same_batches(world: World) -> None:
    traced = Traced(world, share=0.5, mode="bitmap")
    for name in world.ids[:40]:
        await traced.harness.margins([name])

    followed = len(traced.spans(ACTIVE, "batch"))
    assert 5 < followed < 35
    assert len(traced.spans("telco", "answer")) == followed
