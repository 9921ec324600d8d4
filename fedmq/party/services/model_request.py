"""What the label holder asks of the others about a model: to sign its card, to delete a share."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Mapping
from typing import Any

from fedmq.errors import FedmqError, Refused
from fedmq.messages.body import Body
from fedmq.messages.envelope import Envelope, Header
from fedmq.messages.model_request import (
    ModelCardOffer,
    ModelCardSigned,
    ModelDelete,
    ModelDeleted,
)
from fedmq.party.card.endorsement import endorse
from fedmq.party.card.model_card import card_in
from fedmq.party.services.service import Command, Service
from fedmq.party.sessions.running import OnProgress, RunningSession
from fedmq.party.sessions.stray_messages import Opening
from fedmq.party.store.model_deletion import check_unserved, delete_model
from fedmq.protocol.model_request.active import ActiveModelRequest
from fedmq.protocol.model_request.passive import PassiveModelRequest

__all__ = ["ModelRequestService"]

log = logging.getLogger(__name__)

_WAIT_SECONDS = 60.0


class ModelRequestService(Service):
    """Asks each other party by itself: what one refuses does not hold the others up."""

    @property
    def opened_sessions(self) -> Mapping[type[Body], Opening]:
        return {ModelCardOffer: self._join, ModelDelete: self._join}

    @property
    def commands(self) -> Mapping[str, Command]:
        return {"sign_card": self._sign_card, "delete_everywhere": self._delete_everywhere}

    # The label holder's side

    async def _sign_card(self, request: Mapping[str, Any], _: OnProgress) -> dict[str, Any]:
        """By party, its endorsement of a card or why there is none."""
        self.context.require_active("have a card signed")
        card = card_in(str(request["card"]))
        question = ModelCardOffer(model=card.model, card=str(request["card"]))
        return await self._ask(card.parties[1:], question, request)

    async def _delete_everywhere(
        self, request: Mapping[str, Any], on_progress: OnProgress
    ) -> dict[str, Any]:
        """By party, whether its share of a model is deleted; this party's own goes last."""
        self.context.require_active("delete a model at all parties")
        model, state = str(request["model"]), self.context.config.state
        share = await asyncio.to_thread(self.context.model_store.active, model)
        await asyncio.to_thread(check_unserved, state, model)
        answers = await self._ask(share.parties[1:], ModelDelete(model=model), request)
        if all("refused" not in answer for answer in answers.values()):
            await asyncio.to_thread(delete_model, state, model)
        return answers

    async def _ask(
        self,
        parties: tuple[str, ...],
        question: ModelCardOffer | ModelDelete,
        request: Mapping[str, Any],
    ) -> dict[str, Any]:
        seconds = float(request.get("seconds") or _WAIT_SECONDS)
        answers = await asyncio.gather(
            *(self._answer(party, question, seconds) for party in parties)
        )
        return dict(zip(parties, answers, strict=True))

    async def _answer(
        self, party: str, question: ModelCardOffer | ModelDelete, seconds: float
    ) -> dict[str, Any]:
        """What ``party`` answers within so many seconds, or why it does not."""
        if party not in self.context.federation.parties:
            return {"refused": f"{party} is no party of the federation any more"}
        machine = ActiveModelRequest(party, question)
        running = self.context.sessions.open(
            secrets.token_hex(8), 1, "model request", question.model, machine
        )
        runner = running.runner
        runner.start()
        await asyncio.wait({runner.outcome}, timeout=seconds)
        if not runner.outcome.done():
            runner.cancel(f"{self.context.party} does not wait any longer")
            return {
                "refused": f"{party} has not answered within {seconds:g} s; what was asked may "
                "still be done when it is back"
            }
        try:
            body = await runner.outcome
        except FedmqError as error:
            return {"refused": str(error)}
        return {"endorsement": body.endorsement} if isinstance(body, ModelCardSigned) else {}

    # The side of a party that is asked

    async def _join(self, envelope: Envelope) -> RunningSession:
        header, body = envelope.header, envelope.body
        assert isinstance(body, ModelCardOffer | ModelDelete)
        answer = await self._decided(header, body)
        return self.context.sessions.open(
            header.session,
            header.attempt,
            "model request",
            body.model,
            PassiveModelRequest(header.sender, answer),
        )

    async def _decided(
        self, header: Header, body: ModelCardOffer | ModelDelete
    ) -> ModelCardSigned | ModelDeleted | Refused:
        """The answer of this party, once it has done what it says."""
        try:
            if isinstance(body, ModelDelete):
                await self.context.consent.deletion(header, body.model)
                await asyncio.to_thread(delete_model, self.context.config.state, body.model)
                return ModelDeleted()
            await self.context.consent.card(header, body.model)
            return await asyncio.to_thread(self._signed, body)
        except Refused as error:
            return error
        except FedmqError as error:  # it may quote this party's files
            log.warning("%s of model %s: %s", body.kind, body.model, error)
            return Refused(f"{self.context.party} could not do it; its log says why")

    def _signed(self, body: ModelCardOffer) -> ModelCardSigned:
        context = self.context
        if not context.model_store.path(body.model).exists():
            raise Refused(f"{context.party} has no share of model {body.model}")
        share = context.model_store.passive(body.model)
        signed = endorse(
            card_in(body.card), share, context.party, context.consent.audit.log, context.sealer.sign
        )
        return ModelCardSigned(endorsement=signed.model_dump_json())
