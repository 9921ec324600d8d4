"""Online scores in the form that Prometheus reads; part of ``/metrics``."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from fedmq.party.serving.answering import Answering
from fedmq.party.serving.meters import BOUNDS, ScoreMeters
from fedmq.party.serving.request import Counter
from fedmq.party.serving.scorer import Scorer

__all__ = ["AnsweringCollector", "ScoreCollector"]


class ScoreCollector(Collector):
    """What the label holder is asked for, and who does not answer it."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter

    def collect(self) -> Iterator[Metric]:
        """The metrics as they stand now."""
        yield from _requests(self._counter.meters)
        yield from _parties(self._counter.scorer)


class AnsweringCollector(Collector):
    """What a feature holder is asked."""

    def __init__(self, answering: Answering) -> None:
        self._answering = answering

    def collect(self) -> Iterator[Metric]:
        """The metrics as they stand now."""
        answering = self._answering
        yield CounterMetricFamily(
            "fedmq_online_questions", "Questions of the label holder", answering.questions
        )
        yield CounterMetricFamily(
            "fedmq_online_questions_turned_away",
            "Questions that went beyond a limit of [online]",
            answering.guard.turned_away,
        )


def _requests(meters: ScoreMeters) -> Iterator[Metric]:
    requests = CounterMetricFamily(
        "fedmq_online_requests", "Requests for scores", labels=("status",)
    )
    for status, times in sorted(meters.requests.items()):
        requests.add_metric((str(status),), times)
    yield requests
    bounds = [*(f"{bound:g}" for bound in BOUNDS), "+Inf"]
    yield HistogramMetricFamily(
        "fedmq_online_request_seconds",
        "From a request's body to its answer",
        buckets=list(zip(bounds, accumulate(meters.seconds), strict=True)),
        sum_value=meters.seconds_sum,
    )
    yield CounterMetricFamily("fedmq_online_rows", "Rows that were answered", meters.rows)
    yield CounterMetricFamily(
        "fedmq_online_degraded", "Answers with a part that was guessed", meters.degraded
    )


def _parties(scorer: Scorer) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "fedmq_online_queued_rows", "Rows that wait for a batch", scorer.queued_rows
    )
    away = GaugeMetricFamily(
        "fedmq_online_party_away", "1 while the party counts as away", labels=("party",)
    )
    opened = CounterMetricFamily(
        "fedmq_online_breaker_opened", "Times that it began to count as away", labels=("party",)
    )
    for party, breaker in sorted(scorer.breakers.items()):
        away.add_metric((party,), float(breaker.is_open))
        opened.add_metric((party,), breaker.opened)
    yield away
    yield opened
