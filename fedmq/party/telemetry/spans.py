"""OpenTelemetry spans of this party's work, in traces that all parties share.

A session is a trace. Its id is a hash of federation and session, so every party knows it without a
message. A batch of online scores is a trace, too: its id is a hash of federation, session and
number of the batch. The id of a question's span is a hash as well: the asked party computes
both from the question, and puts its answer below it. Spans hold names, numbers of trees and times,
like the logs; no ids of people and no values. Needs the extra ``fedmq[otel]``.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from fedmq.errors import ConfigError
from fedmq.messages.body import Body
from fedmq.messages.envelope import Header
from fedmq.messages.online import QUESTIONS, OnlineRefusal
from fedmq.party.telemetry.timeline import Span
from fedmq.protocol.online.active import OnlineScores
from fedmq.protocol.online.options import Mode
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
    from typing import Self

__all__ = ["AnswerSpan", "BatchSpans", "OnlineSpans", "SessionSpans", "Telemetry", "trace_context"]

log = logging.getLogger(__name__)

_EXPORT_SECONDS = 2  # an absent collector must not hold up the end of a daemon


def trace_context(federation: str, session: str) -> otel.SpanContext:
    """The parent of all parties' spans of ``session``."""
    digest = hashlib.sha256(f"fedmq trace\0{federation}\0{session}".encode()).digest()
    return otel.SpanContext(
        # Zero is an invalid id.
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
    """Logs in one line, in place of the library's own words, that spans are lost."""

    def __init__(self, endpoint: str) -> None:
        super().__init__(logging.WARNING)
        self._endpoint = endpoint

    def emit(self, _: logging.LogRecord) -> None:
        """Log it, without repetitions."""
        log.warning("telemetry.endpoint: %s accepts no spans; they are lost", self._endpoint)


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
        """Send the spans to a collector in the background; the collector may be away."""
        # The library's own lines name no cause that an owner could fix, and some are tracebacks.
        library = logging.getLogger("opentelemetry")
        library.handlers, library.propagate = [_CollectorAway(endpoint)], False
        exporter = OTLPSpanExporter(endpoint=endpoint, timeout=_EXPORT_SECONDS)
        return cls(party, BatchSpanProcessor(exporter))

    def follow(self, address: Address, purpose: str, model: str) -> SessionSpans:
        """The span of one attempt at a session, beginning now."""
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
        """Send the remaining spans; takes seconds if the collector is away."""
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
        """Add the computation ``what``, requested at ``asked`` (seconds) and run in ``span``."""
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
        """End tree ``number``, counted from 1; later computations belong to the next."""
        if self._tree is not None:
            self._tree.set_attribute("fedmq.tree", number)
            self._tree.end()
        self._tree, self._since = None, time.time_ns()

    def end(self, outcome: asyncio.Future[Any]) -> None:
        """End the attempt; ``outcome`` is open if another attempt follows."""
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


class OnlineSpans:
    """Follows a ``share`` (0 to 1) of all batches; parties with the same share follow the same."""

    def __init__(self, telemetry: Telemetry, federation: str, party: str, share: float) -> None:
        self._telemetry = telemetry
        self._federation = federation
        self._party = party
        self._share = share

    def batch(
        self, session: str, number: int, model: str, mode: Mode, arrived: Sequence[tuple[int, int]]
    ) -> BatchSpans | None:
        """Spans of a batch that begins now; None if it is not followed.

        ``arrived``: by request, its arrival (nanoseconds) and its number of rows.
        """
        context = self._context(session, number)
        if context is None:
            return None
        shown = {"fedmq.party": self._party, "fedmq.model": model, "fedmq.mode": mode}
        return BatchSpans(self._telemetry, context, shown, arrived)

    def answer(self, header: Header, body: Body) -> AnswerSpan | None:
        """The span of an answer to ``body``, beginning now; None if the batch is not followed."""
        if not isinstance(body, QUESTIONS):
            return None
        context = self._context(header.session, body.batch)
        if context is None:
            return None
        parent = otel.SpanContext(
            context.trace_id, _question(context, body.hop), True, context.trace_flags
        )
        attributes: dict[str, str | int] = {
            "fedmq.party": self._party,
            "fedmq.model": body.model,
            "fedmq.mode": body.mode,
            "fedmq.rows": len(body.ids),
        }
        return AnswerSpan(self._telemetry.begin("answer", parent, attributes))

    def _context(self, session: str, batch: int) -> otel.SpanContext | None:
        context = trace_context(self._federation, f"{session}/{batch}")
        return context if context.trace_id < self._share * 2**128 else None


class AnswerSpan:
    """A party's lookup of its rows and its answer."""

    def __init__(self, span: otel.Span) -> None:
        self._span = span

    def end(self, answer: Body | None) -> None:
        """End the span: the party has answered, refused, or has nothing to answer."""
        if isinstance(answer, OnlineRefusal):
            self._span.set_status(otel.Status(otel.StatusCode.ERROR, answer.cause))
        self._span.end()


class BatchSpans:
    """The batch; below it its requests and its rounds, below a round its questions."""

    def __init__(
        self,
        telemetry: Telemetry,
        context: otel.SpanContext,
        shown: dict[str, str],
        arrived: Sequence[tuple[int, int]],
    ) -> None:
        self._telemetry = telemetry
        self._context = context
        self._batch = telemetry.begin("batch", context, shown, min(since for since, _ in arrived))
        below = self._batch.get_span_context()
        self._requests = {
            index: telemetry.begin("request", below, {"fedmq.rows": rows}, since)
            for index, (since, rows) in enumerate(arrived)
        }
        self._rounds: dict[int, otel.Span] = {}
        self._asked: set[int] = set()
        self._questions: dict[int, tuple[int, otel.Span]] = {}

    def asked(self, party: str, body: Body, turn: int) -> None:
        """``party`` gets the question ``body``, perhaps repeated, in round ``turn``."""
        if not isinstance(body, QUESTIONS):
            return
        if body.hop in self._asked:
            _, question = self._questions.get(body.hop, (0, None))
            if question is not None:
                question.add_event("asked again")
            return
        self._asked.add(body.hop)
        if turn not in self._rounds:
            below = self._batch.get_span_context()
            self._rounds[turn] = self._telemetry.begin("round", below, {"fedmq.round": turn})
        question = self._telemetry.begin(
            "question",
            self._rounds[turn].get_span_context(),
            {"fedmq.peer": party, "fedmq.rows": len(body.ids)},
            number=_question(self._context, body.hop),
        )
        self._questions[body.hop] = turn, question

    def answered(self, body: Body) -> None:
        """Note an answer, perhaps a repetition."""
        turn, question = self._questions.pop(getattr(body, "hop", -1), (0, None))
        if question is None:
            return
        if isinstance(body, OnlineRefusal):
            question.set_status(otel.Status(otel.StatusCode.ERROR, body.cause))
        question.end()
        if all(turn != other for other, _ in self._questions.values()):
            self._rounds.pop(turn).end()

    def done(self, index: int, result: Any) -> None:
        """End request number ``index`` with ``result``: scores, or an error."""
        span = self._requests.pop(index)
        if isinstance(result, OnlineScores):
            if result.degraded:
                span.set_attribute("fedmq.degraded", sorted(result.degraded))
            span.set_status(otel.Status(otel.StatusCode.OK))
        else:
            span.set_status(otel.Status(otel.StatusCode.ERROR, str(result)))
        span.end()

    def end(self) -> None:
        """End the batch; open questions were not answered."""
        for _, question in self._questions.values():
            question.set_status(otel.Status(otel.StatusCode.ERROR, "no answer"))
            question.end()
        for span in (*self._rounds.values(), *self._requests.values(), self._batch):
            span.end()


def _question(context: otel.SpanContext, hop: int) -> int:
    digest = hashlib.sha256(f"{context.trace_id}/{hop}".encode()).digest()
    return int.from_bytes(digest[:8]) or 1
