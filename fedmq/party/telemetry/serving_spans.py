"""OpenTelemetry spans of online scores: requests, rounds, questions, and what parties answer.

Each batch is a trace, whose id is a hash of federation, session and number of the batch. The span
of a question has an id that is a hash too, so that whoever is asked can put its answer below it:
both know all that it takes from the question itself. Spans hold no ids of people and no values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from opentelemetry import trace as otel

from fedmq.messages.body import Body
from fedmq.messages.envelope import Header
from fedmq.messages.online import OnlineHop, OnlineRefusal, OnlineRows
from fedmq.party.telemetry.spans import Telemetry, trace_context
from fedmq.protocol.online.computations import OnlineScores
from fedmq.protocol.online.options import Mode

__all__ = ["AnswerSpan", "BatchSpans", "OnlineSpans"]


class OnlineSpans:
    """Follows a ``share`` of all batches; parties with the same share follow the same ones."""

    def __init__(self, telemetry: Telemetry, federation: str, party: str, share: float) -> None:
        self._telemetry = telemetry
        self._federation = federation
        self._party = party
        self._share = share

    def batch(
        self, session: str, number: int, model: str, mode: Mode, arrived: Sequence[tuple[int, int]]
    ) -> BatchSpans | None:
        """Spans of a batch that sets out; None if it is not among those that are followed.

        ``arrived``: when each of its requests came (nanoseconds), and how many rows it has.
        """
        context = self._context(session, number)
        if context is None:
            return None
        shown = {"fedmq.party": self._party, "fedmq.model": model, "fedmq.mode": mode}
        return BatchSpans(self._telemetry, context, shown, arrived)

    def answer(self, header: Header, body: Body) -> AnswerSpan | None:
        """The span of an answer to ``body``, from now on; None if that is not followed."""
        if not isinstance(body, OnlineHop | OnlineRows):
            return None
        context = self._context(header.session, body.batch)
        if context is None:
            return None
        mode = "hop" if isinstance(body, OnlineHop) else "bitmap"
        parent = otel.SpanContext(
            context.trace_id, _question(context, body.hop), True, context.trace_flags
        )
        attributes: dict[str, str | int] = {
            "fedmq.party": self._party,
            "fedmq.model": body.model,
            "fedmq.mode": mode,
            "fedmq.rows": len(body.ids),
        }
        return AnswerSpan(self._telemetry.begin("answer", parent, attributes))

    def _context(self, session: str, batch: int) -> otel.SpanContext | None:
        context = trace_context(self._federation, f"{session}/{batch}")
        return context if context.trace_id < self._share * 2**128 else None


class AnswerSpan:
    """A party looks its rows up and answers."""

    def __init__(self, span: otel.Span) -> None:
        self._span = span

    def end(self, answer: Body | None) -> None:
        """The party has answered."""
        if isinstance(answer, OnlineRefusal):
            self._span.set_status(otel.Status(otel.StatusCode.ERROR, answer.cause))
        self._span.end()


class BatchSpans:
    """The batch; below it its requests, and its rounds with the questions of each."""

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
        """``party`` was asked ``body``, perhaps once more, in round number ``turn``."""
        if not isinstance(body, OnlineHop | OnlineRows):
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
        """An answer has come, perhaps for the second time."""
        turn, question = self._questions.pop(getattr(body, "hop", -1), (0, None))
        if question is None:
            return
        if isinstance(body, OnlineRefusal):
            question.set_status(otel.Status(otel.StatusCode.ERROR, body.cause))
        question.end()
        if all(turn != other for other, _ in self._questions.values()):
            self._rounds.pop(turn).end()

    def done(self, index: int, result: Any) -> None:
        """Request number ``index`` came to ``result``: scores, or an error."""
        span = self._requests.pop(index)
        if isinstance(result, OnlineScores):
            if result.degraded:
                span.set_attribute("fedmq.degraded", sorted(result.degraded))
            span.set_status(otel.Status(otel.StatusCode.OK))
        else:
            span.set_status(otel.Status(otel.StatusCode.ERROR, str(result)))
        span.end()

    def end(self) -> None:
        """The batch is over; questions that are still open were not answered."""
        for _, question in self._questions.values():
            question.set_status(otel.Status(otel.StatusCode.ERROR, "no answer"))
            question.end()
        for span in (*self._rounds.values(), *self._requests.values(), self._batch):
            span.end()


def _question(context: otel.SpanContext, hop: int) -> int:
    digest = hashlib.sha256(f"{context.trace_id}/{hop}".encode()).digest()
    return int.from_bytes(digest[:8]) or 1
