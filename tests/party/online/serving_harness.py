"""An active party's scorer and two answering parties in one event loop, without a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.served_forest import RecordPlaces
from fedmq.boosting.model.tree import Agreed
from fedmq.messages.body import Body
from fedmq.messages.codec import decode, encode
from fedmq.messages.envelope import Envelope, Header
from fedmq.party.configuration.online import OnlineSection
from fedmq.party.online.answering import Answering, HostedShare
from fedmq.party.online.drift import DriftWatch
from fedmq.party.online.rows import Rows, RowsInMemory
from fedmq.party.online.scoring import Scorer, ServedModel
from fedmq.party.telemetry.spans import OnlineSpans
from fedmq.protocol.online.options import Mode
from fedmq.protocol.online.passive import AnsweringShare
from fedmq.protocol.online.sealed_passive import SealedShare
from fedmq.protocol.sealed_sums import SealedModel
from fedmq.transport.background_tasks import BackgroundTasks
from tests.protocol.online.test_online import World

ACTIVE = "active"


class ServingHarness:
    """Serves the model of ``world`` in one process, from the scorer to the answering parties.

    Messages of the parties in ``away`` are lost. Of all others a share ``drop`` is lost, and the
    rest comes after ``delay`` seconds at most. Reasons are as the other parties ``agreed``;
    ``reasons`` are the active party's own. ``drift``: what watches at each party. ``heard``: when
    the active party heard another on any lane. While the active party's link is not ``thawed``,
    nothing leaves or reaches it.
    """

    def __init__(
        self,
        world: World,
        *,
        mode: Mode = "hop",
        drop: float = 0.0,
        delay: float = 0.0,
        seed: int = 0,
        limits: Mapping[str, Any] | None = None,
        spans: Mapping[str, OnlineSpans] | None = None,
        agreed: Agreed | None = None,
        reasons: Mapping[str, str] | None = None,
        drift: Mapping[str, DriftWatch] | None = None,
        **section: Any,
    ) -> None:
        self.world = world
        self.away: set[str] = set()
        self.heard: dict[str, float] = {}
        self.thawed = asyncio.Event()
        self.thawed.set()
        self.asked_broker = 0
        self.not_served: list[tuple[str, str]] = []
        self.sent: list[tuple[str, Body]] = []
        self.sealed = SealedModel.of(world.model.share, bytes(32)) if mode == "sealed" else None
        self._agreed = agreed or Agreed()
        self._reasons = reasons or {}
        self._answers = BackgroundTasks()
        watches = drift or {}
        self._drop = drop
        self._delay = delay
        self._random = np.random.default_rng(seed)
        self.parties: dict[str, Answering] = {}
        for party, share in world.shares.items():
            answering = Answering(
                OnlineSection.model_validate(limits or {}),
                None,
                drift=watches.get(party),
                send=partial(self._send_from, party),
            )
            features = share.share.lookup_table.feature_names
            rows = RowsInMemory(Rows(features, share.values, share.row_of))
            here = hosted(share, rows)
            if self.sealed is not None:
                terms = self.sealed.terms(party)
                here = replace(here, sealed=SealedShare.of(share.share, terms))
            answering.shares[share.share.model_id] = here
            self.parties[party] = answering
        settings = OnlineSection.model_validate({"mode": mode, "ask_again": 0.05, **section})
        self._spans = spans or {}
        self.scorer = Scorer(
            ACTIVE,
            settings,
            self._send,
            self._ask_broker,
            lambda peer, model: self.not_served.append((peer, model)),
            self._spans.get(ACTIVE),
            drift=watches.get(ACTIVE),
            heard=self.heard,
        )
        self.scorer.models["production"] = self.model(mode)

    def model(self, mode: Mode = "hop") -> ServedModel:
        own = self.world.columns[ACTIVE]
        features = self.world.model.share.lookup_table.feature_names
        rows = RowsInMemory(Rows.of(features, own, self.world.ids))
        served = ServedModel(self.world.served, rows, mode, self.sealed)
        return served.explained(self._agreed, self._reasons)

    async def margins(self, ids: list[str], **options: Any) -> NDArray[np.float32]:
        return (await self.scorer.score("production", ids, **options)).scores.margins

    async def _ask_broker(self) -> None:
        self.asked_broker += 1
        await self.thawed.wait()

    def _send(self, recipient: str, body: Body, session: str, _: float) -> None:
        self.sent.append((recipient, body))
        self._carry(ACTIVE, recipient, body, session)

    def _send_from(self, sender: str, recipient: str, body: Body, session: str, _: float) -> None:
        self._carry(sender, recipient, body, session)

    def _carry(self, sender: str, recipient: str, body: Body, session: str) -> None:
        if {sender, recipient} & self.away or self._random.random() < self._drop:
            return
        if not self.thawed.is_set():  # whoever is here talks to the active party
            return
        header = Header(
            id="x", federation="demo", session=session, attempt=1, sender=sender,
            recipient=recipient, sequence=0, acknowledged=0, kind=body.kind,
        )  # fmt: skip
        envelope = decode(encode(Envelope(header, body)))
        wait = self._delay * self._random.random()
        asyncio.get_running_loop().call_later(wait, self._arrive, envelope)

    def _arrive(self, envelope: Envelope) -> None:
        header = envelope.header
        if header.recipient == ACTIVE:
            self.scorer.receive(envelope)
            return
        if header.sender != ACTIVE:
            answering = self.parties[header.recipient]
            answer = answering.answer_neighbour(header.sender, envelope.body)
            if answer is not None:
                self._carry(header.recipient, header.sender, answer, header.session)
            return
        self._answers.spawn(self._answer(header, envelope.body))

    async def _answer(self, header: Header, body: Body) -> None:
        spans = self._spans.get(header.recipient)
        span = None if spans is None else spans.answer(header, body)
        answer = await self.parties[header.recipient].answer(header, body)
        if span is not None:
            span.end(answer)
        if answer is not None:
            self._carry(header.recipient, ACTIVE, answer, header.session)


def hosted(share: AnsweringShare, rows: RowsInMemory) -> HostedShare:
    """``share`` as a daemon serves it."""
    places = RecordPlaces.of(share.share.places)
    return HostedShare(share.share, share.chains, rows, places, 2 * places.longest_ways())
