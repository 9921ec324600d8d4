"""Pages for supervisors: ``/health/live``, ``/health/ready``, and ``/metrics`` for Prometheus."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from fedmq.party.http.access import is_stranger
from fedmq.party.online.answering import Answering
from fedmq.party.online.drift import DriftWatch
from fedmq.party.online.requests import PredictionService
from fedmq.party.online.scoring import Scorer
from fedmq.party.operations.health import Health
from fedmq.party.telemetry.metrics import (
    BOUNDS,
    Counters,
    Gauges,
    LookupCounters,
    ScoreCounters,
    Times,
)

__all__ = [
    "AnsweringCollector",
    "DriftCollector",
    "LookupCollector",
    "ScoreCollector",
    "health_router",
    "metrics_router",
]

_Values = Iterable[tuple[tuple[str, ...], float]]


def health_router(health: Callable[[], Health]) -> APIRouter:
    """The endpoints that show the present ``health``."""
    router = APIRouter(prefix="/health")

    @router.get("/live")
    async def live() -> dict[str, bool]:
        """Answers as long as the event loop turns; if it does not answer, restart the daemon."""
        return {"live": True}

    @router.get("/ready")
    async def ready(request: Request) -> JSONResponse:
        """200 when sessions can be served, 503 when not. No need to restart.

        The reasons name the broker and parties; where tokens are needed, only a caller that shows
        one sees them.
        """
        now = health()
        answer = {"ready": now.ready} if is_stranger(request) else now.described()
        return JSONResponse(answer, status_code=200 if now.ready else 503)

    return router


def metrics_router(
    counters: Counters, gauges: Callable[[], Gauges], *others: Collector
) -> APIRouter:
    """Serves ``counters``, the present ``gauges``, and ``others``, from one registry."""
    registry = CollectorRegistry()
    for collector in (_DaemonCollector(counters, gauges), *others):
        registry.register(collector)
    router = APIRouter()

    @router.get("/metrics")
    async def metrics() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return router


class _DaemonCollector(Collector):
    def __init__(self, counters: Counters, gauges: Callable[[], Gauges]) -> None:
        self._counters = counters
        self._gauges = gauges

    def collect(self) -> Iterator[Metric]:
        counters, now = self._counters, self._gauges()
        yield GaugeMetricFamily(
            "fedmq_broker_connected", "1 while the broker is connected", float(now.connected)
        )
        yield _gauge(
            "fedmq_sessions", "Sessions that run", ("purpose", "state"), now.sessions.items()
        )
        yield GaugeMetricFamily(
            "fedmq_peers_waited_for", "Peers that have not answered", float(now.waiting)
        )
        yield GaugeMetricFamily(
            "fedmq_queue_age_seconds", "Age of the message that came last", counters.queue_age
        )
        yield _counter(
            "fedmq_sessions_ended",
            "Sessions",
            ("purpose", "outcome"),
            counters.sessions_ended.items(),
        )
        yield CounterMetricFamily("fedmq_trees", "Trees that were grown", counters.trees)
        for name, what, values in (
            ("fedmq_messages_sent", "Messages sent, resent ones too", counters.messages_sent),
            ("fedmq_bytes_sent", "Bytes sent", counters.bytes_sent),
            ("fedmq_messages_received", "Messages that were opened", counters.messages_received),
            ("fedmq_bytes_received", "Their bytes", counters.bytes_received),
        ):
            yield _counter(name, what, ("kind",), (((kind,), n) for kind, n in values.items()))
        yield _counter(
            "fedmq_retries",
            "Resends to a peer that did not answer",
            ("peer",),
            (((peer,), n) for peer, n in counters.retries.items()),
        )
        yield CounterMetricFamily(
            "fedmq_redeliveries", "Messages that the broker brought again", counters.redeliveries
        )
        yield CounterMetricFamily(
            "fedmq_dead_letters", "Messages sent to the dead letters", now.dead_letters
        )
        yield _counter(
            "fedmq_messages_refused",
            "Messages that were not taken",
            ("reason",),
            (((reason,), n) for reason, n in counters.refused.items()),
        )
        yield CounterMetricFamily(
            "fedmq_messages_dropped", "Messages of sessions unknown here", counters.dropped
        )
        yield _counter(
            "fedmq_arithmetic_seconds",
            "Time from asking for a computation to its result",
            ("computation",),
            (((name,), spent) for name, spent in counters.arithmetic_seconds.items()),
        )


def _counter(name: str, what: str, labels: tuple[str, ...], values: _Values) -> Metric:
    family = CounterMetricFamily(name, what, labels=labels)
    for key, value in values:
        family.add_metric(key, value)
    return family


def _gauge(name: str, what: str, labels: tuple[str, ...], values: _Values) -> Metric:
    family = GaugeMetricFamily(name, what, labels=labels)
    for key, value in values:
        family.add_metric(key, value)
    return family


class ScoreCollector(Collector):
    """Requests for scores at the active party, and parties that do not answer."""

    def __init__(self, predictions: PredictionService) -> None:
        self._predictions = predictions

    def collect(self) -> Iterator[Metric]:
        """The present metrics."""
        yield from _requests(self._predictions.counters)
        yield from _parties(self._predictions.scorer)


class AnsweringCollector(Collector):
    """Questions to a passive party."""

    def __init__(self, answering: Answering) -> None:
        self._answering = answering

    def collect(self) -> Iterator[Metric]:
        """The present metrics."""
        answering = self._answering
        yield CounterMetricFamily(
            "fedmq_online_questions", "Questions of the active party", answering.questions
        )
        yield CounterMetricFamily(
            "fedmq_online_questions_turned_away",
            "Questions that went beyond a limit of [online]",
            answering.rate_limits.turned_away,
        )


class DriftCollector(Collector):
    """Drift of the people scored from the people of the training."""

    def __init__(self, drift: DriftWatch) -> None:
        self._drift = drift

    def collect(self) -> Iterator[Metric]:
        """The present metrics."""
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
    """Rate and speed of a party's row lookups in its database."""

    def __init__(self, counters: LookupCounters) -> None:
        self._counters = counters

    def collect(self) -> Iterator[Metric]:
        """The present metrics."""
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
