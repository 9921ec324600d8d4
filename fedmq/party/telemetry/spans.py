"""OpenTelemetry spans of what this party does in each session, in a trace that all parties share.

The trace's id is a hash of federation and session, so every party knows it without a message.
Spans hold names, numbers of trees and times, as the logs do, and no data.
Needs the extra ``fedmq[otel]``.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from importlib.metadata import version
from typing import TYPE_CHECKING

from fedmq.errors import ConfigError
from fedmq.party.telemetry.timeline import Span
from fedmq.protocol.session import Address

try:
    from opentelemetry import trace as otel
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor
    from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
except ImportError:
    raise ConfigError("[telemetry] needs more packages; run: pip install 'fedmq[otel]'") from None

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Self

__all__ = ["SessionSpans", "Telemetry", "trace_context"]

log = logging.getLogger(__name__)

_EXPORT_SECONDS = 2  # a collector that is away must not hold up the end of a daemon


def trace_context(federation: str, session: str) -> otel.SpanContext:
    """The parent that all parties give to their spans of ``session``."""
    digest = hashlib.sha256(f"fedmq trace\0{federation}\0{session}".encode()).digest()
    return otel.SpanContext(
        # Zero is no valid id.
        trace_id=int.from_bytes(digest[:16]) or 1,
        span_id=int.from_bytes(digest[16:24]) or 1,
        is_remote=True,
        trace_flags=otel.TraceFlags(otel.TraceFlags.SAMPLED),
    )


class _Ids(RandomIdGenerator):
    """Random span ids, except the next one if it is ``chosen``."""

    chosen: int | None = None

    def generate_span_id(self) -> int:
        chosen, self.chosen = self.chosen, None
        return super().generate_span_id() if chosen is None else chosen


class _CollectorAway(logging.Handler):
    """Says in one line what the library says in its own words: spans are lost."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(logging.WARNING)
        self._endpoint = endpoint

    def emit(self, _: logging.LogRecord) -> None:
        """Log it; whoever reads the log is spared repetitions."""
        log.warning("telemetry.endpoint: %s takes no spans; they are lost", self._endpoint)


class Telemetry:
    """The exporter of one party's spans."""

    def __init__(self, party: str, processor: SpanProcessor) -> None:
        resource = Resource.create({"service.name": "fedmq", "service.instance.id": party})
        self._ids = _Ids()
        self._provider = TracerProvider(
            resource=resource, shutdown_on_exit=False, id_generator=self._ids
        )
        self._provider.add_span_processor(processor)
        self._tracer = self._provider.get_tracer("fedmq", version("fedmq"))

    @classmethod
    def to(cls, endpoint: str, party: str) -> Self:
        """Send the spans to a collector in the background; it may be away."""
        # Its own lines name no cause that an owner could mend, and some are tracebacks.
        library = logging.getLogger("opentelemetry")
        library.handlers, library.propagate = [_CollectorAway(endpoint)], False
        exporter = OTLPSpanExporter(endpoint=endpoint, timeout=_EXPORT_SECONDS)
        return cls(party, BatchSpanProcessor(exporter))

    def follow(self, address: Address, purpose: str, model: str) -> SessionSpans:
        """The span of one attempt at a session, which begins now."""
        return SessionSpans(self._tracer, address, purpose, model)

    def begin(
        self,
        name: str,
        parent: otel.SpanContext,
        attributes: Mapping[str, str | int | float],
        since: int | None = None,
        number: int | None = None,
    ) -> otel.Span:
        """A span below ``parent``, since ``since`` (nanoseconds), with the id ``number``."""
        self._ids.chosen = number
        above = otel.set_span_in_context(otel.NonRecordingSpan(parent))
        return self._tracer.start_span(name, above, attributes=attributes, start_time=since)

    def close(self) -> None:
        """Send what is left; takes seconds where the collector is away."""
        self._provider.shutdown()


class SessionSpans:
    """The attempt, its trees one after the other, and the computations within each tree."""

    def __init__(self, tracer: otel.Tracer, address: Address, purpose: str, model: str) -> None:
        self._tracer = tracer
        parent = otel.NonRecordingSpan(trace_context(address.federation, address.session))
        self._session = tracer.start_span(
            purpose,
            otel.set_span_in_context(parent),
            attributes={
                "fedmq.party": address.party,
                "fedmq.session": address.session,
                "fedmq.attempt": address.attempt,
                "fedmq.model": model,
            },
        )
        self._trees = purpose == "training"
        self._tree: otel.Span | None = None
        self._since = time.time_ns()

    def computed(self, what: str, asked: float, span: Span) -> None:
        """The computation ``what`` was asked for at ``asked`` (seconds), and ran in ``span``."""
        if self._trees and self._tree is None:
            above = otel.set_span_in_context(self._session)
            self._tree = self._tracer.start_span("tree", above, start_time=self._since)
        parent = self._tree or self._session
        done = self._tracer.start_span(
            what,
            otel.set_span_in_context(parent),
            start_time=_nanoseconds(span.start),
            attributes={
                "fedmq.worker": span.worker,
                "fedmq.waited_seconds": span.start - asked,
                "fedmq.busy_seconds": span.busy,
            },
        )
        done.end(_nanoseconds(span.end))

    def tree_done(self, number: int) -> None:
        """Tree ``number``, counted from 1, is grown; later computations belong to the next."""
        if self._tree is not None:
            self._tree.set_attribute("fedmq.tree", number)
            self._tree.end()
        self._tree, self._since = None, time.time_ns()

    def end(self, outcome: asyncio.Future[Any]) -> None:
        """The attempt is over; ``outcome`` is open if another attempt follows."""
        if self._tree is not None:
            self._tree.end()
        if not outcome.done() or outcome.cancelled():
            self._session.add_event("interrupted")
        elif error := outcome.exception():
            self._session.set_status(otel.Status(otel.StatusCode.ERROR, str(error)))
        else:
            self._session.set_status(otel.Status(otel.StatusCode.OK))
        self._session.end()


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
