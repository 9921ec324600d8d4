"""What the active party asks of the others about a model: a signature, names, a deletion."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Mapping
from typing import Any

from fedmq.boosting.model.share import PassiveShare
from fedmq.boosting.model.tree import ShownColumns
from fedmq.errors import FedmqError, ProtocolError, Refused
from fedmq.messages.body import Body
from fedmq.messages.envelope import Envelope, Header
from fedmq.messages.model_request import (
    ModelCardOffer,
    ModelCardSigned,
    ModelColumnNames,
    ModelColumns,
    ModelDelete,
    ModelDeleted,
)
from fedmq.party.card.model_card import card_in
from fedmq.party.card.signed_card import endorse
from fedmq.party.services.service import Command, Service
from fedmq.party.sessions.recovery import Opening
from fedmq.party.sessions.sessions import OnProgress, RunningSession
from fedmq.party.store.documents import check_unserved, delete_model, keep_column_names
from fedmq.protocol.model_request.active import ActiveModelRequest
from fedmq.protocol.model_request.passive import PassiveModelRequest
from fedmq.protocol.record_columns import columns_of, record_columns

__all__ = ["ModelRequestService"]

log = logging.getLogger(__name__)

_WAIT_SECONDS = 60.0
_LONGEST_NAME = 200  # characters of a column's name; the rest is left out

Question = ModelCardOffer | ModelDelete | ModelColumns


class ModelRequestService(Service):
    """Asks each other party by itself: what one refuses does not hold the others up."""

    @property
    def opened_sessions(self) -> Mapping[type[Body], Opening]:
        return dict.fromkeys((ModelCardOffer, ModelDelete, ModelColumns), self._join)

    @property
    def commands(self) -> Mapping[str, Command]:
        return {
            "sign_card": self._sign_card,
            "delete_everywhere": self._delete_everywhere,
            "column_names": self._column_names,
        }

    # The active party's side

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

    async def _column_names(self, request: Mapping[str, Any], _: OnProgress) -> dict[str, Any]:
        """By party, why it shares no names; what is shared is kept."""
        self.context.require_active("ask for the names of columns")
        model, state = str(request["model"]), self.context.config.state
        share = await asyncio.to_thread(self.context.model_store.active, model)
        answers = await self._ask(share.parties[1:], ModelColumns(model=model), request)
        shared = {}
        for owner, party in enumerate(share.parties):
            if "columns" in (answer := answers.get(party, {})):
                records = sum(int((tree.owner == owner).sum()) for tree in share.trees)
                try:
                    shown = columns_of(party, answer.pop("columns"), records)
                except ProtocolError as error:
                    answer["refused"] = str(error)
                else:
                    assert shown is not None
                    shared[party] = shown
        await asyncio.to_thread(keep_column_names, state, model, shared)
        return answers

    async def _ask(
        self,
        parties: tuple[str, ...],
        question: Question,
        request: Mapping[str, Any],
    ) -> dict[str, Any]:
        seconds = float(request.get("seconds") or _WAIT_SECONDS)
        answers = await asyncio.gather(
            *(self._answer(party, question, seconds) for party in parties)
        )
        return dict(zip(parties, answers, strict=True))

    async def _answer(self, party: str, question: Question, seconds: float) -> dict[str, Any]:
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
        if isinstance(body, ModelColumnNames):
            return {"columns": body.columns}
        return {"endorsement": body.endorsement} if isinstance(body, ModelCardSigned) else {}

    # The side of a party that is asked

    async def _join(self, envelope: Envelope) -> RunningSession:
        header, body = envelope.header, envelope.body
        assert isinstance(body, Question)
        answer = await self._decided(header, body)
        return self.context.sessions.open(
            header.session,
            header.attempt,
            "model request",
            body.model,
            PassiveModelRequest(header.sender, answer),
        )

    async def _decided(
        self, header: Header, body: Question
    ) -> ModelCardSigned | ModelDeleted | ModelColumnNames | Refused:
        """The answer of this party, once it has done what it says."""
        try:
            if isinstance(body, ModelDelete):
                await self.context.consent.deletion(header, body.model)
                await asyncio.to_thread(delete_model, self.context.config.state, body.model)
                return ModelDeleted()
            if isinstance(body, ModelColumns):
                await self.context.consent.column_names(header, body.model)
                return await asyncio.to_thread(self._named, body)
            await self.context.consent.card(header, body.model)
            return await asyncio.to_thread(self._signed, body)
        except Refused as error:
            return error
        except FedmqError as error:  # it may quote this party's files
            log.warning("%s of model %s: %s", body.kind, body.model, error)
            return Refused(f"{self.context.party} could not do it; its log says why")

    def _named(self, body: ModelColumns) -> ModelColumnNames:
        table = self._share(body.model).lookup_table
        names = {name: name[:_LONGEST_NAME] for name in table.columns}
        shown = ShownColumns.of(table, len(table), names)
        return ModelColumnNames(columns=record_columns(shown))

    def _share(self, model: str) -> PassiveShare:
        context = self.context
        if not context.model_store.path(model).exists():
            raise Refused(f"{context.party} has no share of model {model}")
        return context.model_store.passive(model)

    def _signed(self, body: ModelCardOffer) -> ModelCardSigned:
        context, share = self.context, self._share(body.model)
        signed = endorse(
            card_in(body.card), share, context.party, context.consent.audit.log, context.sealer.sign
        )
        return ModelCardSigned(endorsement=signed.model_dump_json())
