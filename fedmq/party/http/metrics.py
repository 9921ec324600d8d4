"""``/metrics``: the daemon's meters in the form that Prometheus reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from fedmq.party.telemetry.counters import Gauges, Meters

__all__ = ["metrics_router"]

_Values = Iterable[tuple[tuple[str, ...], float]]


def metrics_router(meters: Meters, standing: Callable[[], Gauges], *others: Collector) -> APIRouter:
    """Serves ``meters``, what ``standing`` says when asked, and ``others``, from one registry."""
    registry = CollectorRegistry()
    for collector in (_MeterCollector(meters, standing), *others):
        registry.register(collector)
    router = APIRouter()

    @router.get("/metrics")
    async def metrics() -> Response:
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)

    return router


class _MeterCollector(Collector):
    def __init__(self, meters: Meters, standing: Callable[[], Gauges]) -> None:
        self._meters = meters
        self._standing = standing

    def collect(self) -> Iterator[Metric]:
        meters, now = self._meters, self._standing()
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
            "fedmq_queue_age_seconds", "Age of the message that came last", meters.queue_age
        )
        yield _counter(
            "fedmq_sessions_ended",
            "Sessions",
            ("purpose", "outcome"),
            meters.sessions_ended.items(),
        )
        yield CounterMetricFamily("fedmq_trees", "Trees that were grown", meters.trees)
        for name, what, values in (
            ("fedmq_messages_sent", "Messages sent, resent ones too", meters.messages_sent),
            ("fedmq_bytes_sent", "Bytes sent", meters.bytes_sent),
            ("fedmq_messages_received", "Messages that were opened", meters.messages_received),
            ("fedmq_bytes_received", "Their bytes", meters.bytes_received),
        ):
            yield _counter(name, what, ("kind",), (((kind,), n) for kind, n in values.items()))
        yield _counter(
            "fedmq_retries",
            "Resends to a peer that did not answer",
            ("peer",),
            (((peer,), n) for peer, n in meters.retries.items()),
        )
        yield CounterMetricFamily(
            "fedmq_redeliveries", "Messages that the broker brought again", meters.redeliveries
        )
        yield CounterMetricFamily(
            "fedmq_dead_letters", "Messages sent to the dead letters", now.dead_letters
        )
        yield _counter(
            "fedmq_messages_refused",
            "Messages that were not taken",
            ("reason",),
            (((reason,), n) for reason, n in meters.refused.items()),
        )
        yield CounterMetricFamily(
            "fedmq_messages_dropped", "Messages of sessions unknown here", meters.dropped
        )
        yield _counter(
            "fedmq_arithmetic_seconds",
            "Time from asking for a computation to its result",
            ("computation",),
            (((name,), spent) for name, spent in meters.arithmetic_seconds.items()),
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
