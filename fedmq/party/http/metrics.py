"""``/metrics``: the daemon's counters in the form that Prometheus reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from fedmq.party.telemetry.metrics import Counters, Gauges

__all__ = ["metrics_router"]

_Values = Iterable[tuple[tuple[str, ...], float]]


def metrics_router(
    counters: Counters, gauges: Callable[[], Gauges], *others: Collector
) -> APIRouter:
    """Serves ``counters``, the ``gauges`` of this moment, and ``others``, from one registry."""
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
