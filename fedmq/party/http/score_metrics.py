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

from fedmq.party.online.answering.answering import Answering
from fedmq.party.online.drift.watch import DriftWatch
from fedmq.party.online.scoring.prediction_service import PredictionService
from fedmq.party.online.scoring.scorer import Scorer
from fedmq.party.telemetry.metrics import BOUNDS, LookupCounters, ScoreCounters, Times

__all__ = ["AnsweringCollector", "DriftCollector", "LookupCollector", "ScoreCollector"]


class ScoreCollector(Collector):
    """Requests for scores at the label holder, and parties that do not answer it."""

    def __init__(self, predictions: PredictionService) -> None:
        self._predictions = predictions

    def collect(self) -> Iterator[Metric]:
        """The metrics as they stand now."""
        yield from _requests(self._predictions.counters)
        yield from _parties(self._predictions.scorer)


class AnsweringCollector(Collector):
    """Questions that a feature holder was asked."""

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
            answering.rate_limits.turned_away,
        )


class DriftCollector(Collector):
    """How far the people who are scored are from those of the training."""

    def __init__(self, drift: DriftWatch) -> None:
        self._drift = drift

    def collect(self) -> Iterator[Metric]:
        """The metrics as they stand now."""
        index = GaugeMetricFamily(
            "fedmq_drift_index",
            "Population stability index of the people scored last",
            labels=("model", "column"),
        )
        alarm = GaugeMetricFamily(
            "fedmq_drift_alarm", "1 while a column drifts", labels=("model", "column")
        )
        for drift in self._drift.found:
            index.add_metric((drift.model, drift.column), drift.index)
            alarm.add_metric((drift.model, drift.column), float(drift.alarm))
        others = GaugeMetricFamily(
            "fedmq_drift_party", "1 while the party says that its columns drift", labels=("party",)
        )
        for party, drifts in sorted(self._drift.others.items()):
            others.add_metric((party,), float(drifts))
        yield from (index, alarm, others)


class LookupCollector(Collector):
    """How often and how fast a party looks rows up in its database."""

    def __init__(self, counters: LookupCounters) -> None:
        self._counters = counters

    def collect(self) -> Iterator[Metric]:
        """The metrics as they stand now."""
        counters = self._counters
        for name, what, count in (
            ("fedmq_online_lookup_hits", "Ids whose row was known from before", counters.hits),
            ("fedmq_online_lookup_misses", "Ids that were looked up", counters.misses),
            ("fedmq_online_lookup_failures", "Lookups without an answer", counters.failures),
        ):
            yield CounterMetricFamily(name, what, count)
        yield _histogram("fedmq_online_lookup_seconds", "Time of a lookup", counters.seconds)


def _requests(counters: ScoreCounters) -> Iterator[Metric]:
    requests = CounterMetricFamily(
        "fedmq_online_requests", "Requests for scores", labels=("status",)
    )
    for status, times in sorted(counters.requests.items()):
        requests.add_metric((str(status),), times)
    yield requests
    yield _histogram(
        "fedmq_online_request_seconds", "From a request's body to its answer", counters.seconds
    )
    yield CounterMetricFamily("fedmq_online_rows", "Rows that were answered", counters.rows)
    yield CounterMetricFamily(
        "fedmq_online_degraded", "Answers with a part that was guessed", counters.degraded
    )


def _histogram(name: str, what: str, times: Times) -> Metric:
    bounds = [*(f"{bound:g}" for bound in BOUNDS), "+Inf"]
    buckets = list(zip(bounds, accumulate(times.counts), strict=True))
    return HistogramMetricFamily(name, what, buckets=buckets, sum_value=times.sum)


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
        opened.add_metric((party,), breaker.times_opened)
    yield away
    yield opened
