"""Which part of a party takes messages of the online lane, and how does an answer leave?

At the active party a scorer takes answers; at a passive party an answerer takes questions.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping, Set
from functools import partial
from typing import TYPE_CHECKING

from fedmq.errors import LinkError
from fedmq.messages.body import Body
from fedmq.messages.envelope import Envelope, Header
from fedmq.messages.online import QUESTIONS
from fedmq.party.compute.pool import ComputePool
from fedmq.party.configuration.federation import Federation
from fedmq.party.configuration.party import PartyFile
from fedmq.party.consent.audit_log import QuestionLog
from fedmq.party.consent.policy_consent import PolicyConsent
from fedmq.party.data.id_column import comparable
from fedmq.party.data.repeated_ids import people_of
from fedmq.party.identity.sealer import Clear, Sealer
from fedmq.party.online.answering import ASKED_FILE, Answering, AskedPeople
from fedmq.party.online.drift import DriftWatch
from fedmq.party.online.fallback_scores import FallbackScores
from fedmq.party.online.model_loader import ModelLoader
from fedmq.party.online.requests import PredictionService, RequestQueue
from fedmq.party.online.rows import ServingSource
from fedmq.party.online.scoring import Scorer
from fedmq.party.store.documents import Deployments, ModelStore
from fedmq.transport.background_tasks import BackgroundTasks
from fedmq.transport.link import Link

if TYPE_CHECKING:
    from fedmq.party.telemetry.spans import OnlineSpans

__all__ = ["OnlineLane", "OnlineSender"]

log = logging.getLogger(__name__)


class OnlineLane:
    """Scores at the active party, answers at the passive parties: from question to reply.

    Raises DataError if the file of deployments is damaged, ConfigError if the folder of the
    question log cannot be used.
    """

    def __init__(
        self,
        *,
        config: PartyFile,
        federation: Federation,
        link: Link,
        sealer: Sealer,
        consent: PolicyConsent,
        model_store: ModelStore,
        pool: ComputePool,
        heard: Mapping[str, float],
        spans: OnlineSpans | None = None,
    ) -> None:
        section, data = config.online, config.serving or config.data
        self._active = federation.active
        self._is_active = config.party == federation.active
        self._gate = link.priority_gate
        self._spans = spans
        self._sender = OnlineSender(federation.name, link, sealer)
        self.on_not_served: Callable[[str, str], None] = lambda _, __: None
        """Gets a party and a model that the party no longer serves, though it once agreed to."""
        self.source = ServingSource(config.party, data, section)
        self.drift = DriftWatch(config.state, section.drift, self._served)
        self.scorer = Scorer(
            config.party,
            section,
            self._sender.send,
            link.reach_broker,
            self._report_not_served,
            spans,
            self._gate,
            self.drift,
            heard,
            partial(people_of, data) if data.counts_each else tuple,
        )
        self.scorer.members = federation.parties
        if section.unknown == "fallback":
            self.scorer.answer = FallbackScores(self.scorer).answer
        self.predictions = PredictionService(
            self.scorer,
            lambda ids: comparable(ids, data),
        )
        queue = section.requests if self._is_active else None
        self._requests = RequestQueue(queue, self.predictions) if queue is not None else None
        self._question_log = (
            QuestionLog(config.state, section.audit_days)
            if section.audit and not self._is_active
            else None
        )
        self.answering = Answering(
            section,
            self._question_log,
            consent=consent.answering,
            agree=consent.scoring,
            until_written=consent.until_written,
            drift=self.drift if section.drift.rows else None,
            asked=AskedPeople(None if self._is_active else config.state / ASKED_FILE),
            send=self._sender.send,
            explains=lambda: consent.policy.explain != "none",
        )
        self.deployments = Deployments.read(config.state)
        self.loader = ModelLoader(
            is_active=self._is_active,
            model_store=model_store,
            deployments=self.deployments,
            source=self.source,
            scorer=self.scorer,
            answering=self.answering,
            pool=pool,
            gate=self._gate,
            max_age=section.max_age,
            reasons=config.data.reasons,
        )
        self._answers = BackgroundTasks()
        self.receive: Callable[[Envelope], None] = (
            self.scorer.receive if self._is_active else self._take_question
        )
        """Takes messages of the online lane: answers at the active party, questions elsewhere."""

    async def start(self) -> None:
        """Load the models that were served before, and accept requests.

        Raises:
            ConfigError: the serving source is a database for which packages are missing.
        """
        await self.source.open()
        await asyncio.to_thread(self.answering.rate_limits.asked.read)
        await self.loader.start()
        await self.drift.start()
        if self._requests is not None:
            self._requests.start()

    async def close(self) -> None:
        """Finish running requests, within two seconds."""
        if self._requests is not None:
            await self._requests.close()
        await self.scorer.close()
        await self.loader.close()
        await self._answers.close()
        self.answering.close()
        await self.drift.close()
        self.source.close()
        if self._question_log is not None:
            await self._question_log.close()
        await self.answering.rate_limits.asked.close()

    @property
    def troubles(self) -> tuple[str, ...]:
        """Why requests or rows cannot be read now, one line each."""
        rows = self.source.trouble and f"rows cannot be looked up: {self.source.trouble}"
        requests = self._requests.trouble if self._requests is not None else ""
        return tuple(filter(None, (rows, requests)))

    def _take_question(self, envelope: Envelope) -> None:
        header, body = envelope.header, envelope.body
        if header.sender == self._active:
            self._answers.spawn(self._answer(header, body))
        elif (reply := self.answering.answer_neighbour(header.sender, body)) is not None:
            self._sender.send(header.sender, reply, header.session, 1.0)

    def _served(self) -> Set[str]:
        """Ids of the models that are served here."""
        if self._is_active:
            return {model.id for model in self.scorer.models.values()}
        return self.answering.shares.keys()

    def _report_not_served(self, party: str, model: str) -> None:
        self.on_not_served(party, model)

    async def _answer(self, header: Header, body: Body) -> None:
        span = None if self._spans is None else self._spans.answer(header, body)
        with self._gate.taken():
            answer = await self.answering.answer(header, body)
        if span is not None:
            span.end(answer)
        if answer is not None:
            seconds = body.budget if isinstance(body, QUESTIONS) else 1.0
            await self._sender.post(header.sender, answer, header.session, seconds)


class OnlineSender:
    """Sends the online messages of one party once each: a party that misses an answer asks again.

    ``sealer`` makes the bytes of an envelope; without it they are in the clear.
    """

    def __init__(self, federation: str, link: Link, sealer: Sealer | None = None) -> None:
        self.lost = 0
        """Messages that the link refused."""
        self._header = partial(
            Header,
            federation=federation,
            attempt=1,
            sender=link.party,
            sequence=0,
            acknowledged=0,
        )
        self._link = link
        self._sealer = sealer or Clear()
        self._numbers = itertools.count(1)
        self._tasks = BackgroundTasks()

    def send(self, recipient: str, body: Body, session: str, seconds: float) -> None:
        """Like ``post``, in the background."""
        self._tasks.spawn(self.post(recipient, body, session, seconds))

    async def post(self, recipient: str, body: Body, session: str, seconds: float) -> None:
        """Send ``body``, which is useful for ``seconds``; it may be lost unnoticed."""
        seconds = max(seconds, 0.05)
        header = self._header(
            id=f"{session}/{self._link.party}/{next(self._numbers)}",
            session=session,
            recipient=recipient,
            kind=body.kind,
        )
        try:
            data = await self._sealer.seal_within(Envelope(header, body), seconds)
            await self._link.post(recipient, data, message_id=header.id, expires=seconds)
        except LinkError as error:
            self.lost += 1
            log.debug("%s was not sent: %s", header.id, error)
