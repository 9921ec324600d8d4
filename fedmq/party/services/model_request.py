"""What does the active party ask a passive one about a model, and what does that party answer?

``QUESTIONS`` has an entry for each question: the policy key that allows it, its words in the
audit log, and the function that answers it. The body of a question and the body of its answer are a
pair in `fedmq.messages.model_request`; asking, deciding and answering are the same for all.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.share import PassiveShare
from fedmq.boosting.model.tree import DisclosedColumns, LookupTable
from fedmq.errors import DaemonError, DataError, FedmqError, MessageError, ProtocolError, Refused
from fedmq.messages.array import Array, pack_payload, unpack_payload
from fedmq.messages.body import Body
from fedmq.messages.envelope import Envelope, Header
from fedmq.messages.model_request import (
    MOST_PEOPLE,
    ModelCardOffer,
    ModelCardSigned,
    ModelColumnNames,
    ModelColumns,
    ModelDelete,
    ModelDeleted,
    ModelGroupPiece,
    ModelGroups,
    ModelGroupSums,
    ModelQuestion,
    ModelSplits,
    ModelThresholds,
)
from fedmq.party.card.model_card import card_in
from fedmq.party.card.signed_card import endorse
from fedmq.party.consent.terms import RequestedTerms
from fedmq.party.data.group_sums import AddGroups
from fedmq.party.data.id_column import check_lengths, comparable
from fedmq.party.services.service import Command, PartyContext, Service
from fedmq.party.sessions.recovery import Opening
from fedmq.party.sessions.sessions import OnProgress, RunningSession
from fedmq.party.store.answered_people import (
    AnsweredPeopleStore,
    EarlierPeople,
    GroupQuestions,
)
from fedmq.party.store.documents import check_unserved, delete_model, keep_column_names
from fedmq.party.store.journal import PeopleJournal
from fedmq.privacy.homomorphic import SAFE_KEY_BITS
from fedmq.privacy.homomorphic.group_sums import decrypt_group_sums, encrypt_people, make_group_key
from fedmq.privacy.homomorphic.paillier import public_numbers, public_of
from fedmq.privacy.plan import PIECE_BYTES
from fedmq.protocol.model_request.active import ActiveModelRequest
from fedmq.protocol.model_request.passive import GroupPieces, PassiveModelRequest
from fedmq.protocol.model_request.told_splits import splits_of, told_splits
from fedmq.protocol.record_columns import columns_of, record_columns

__all__ = ["QUESTIONS", "ModelRequestService", "Question"]

log = logging.getLogger(__name__)

_WAIT_SECONDS = 60.0
_GROUPS_WAIT_SECONDS = 600.0
_LONGEST_NAME = 200  # characters of a column's name; the rest is left out
_ID_BYTES = 256

Answer = Body | GroupPieces


class ModelRequestService(Service):
    """Asks each passive party separately: a refusal does not hold up the others."""

    @property
    def opened_sessions(self) -> Mapping[type[Body], Opening]:
        return dict.fromkeys(QUESTIONS, self._join)

    @property
    def commands(self) -> Mapping[str, Command]:
        return {
            "sign_card": self._sign_card,
            "delete_everywhere": self._delete_everywhere,
            "column_names": self._column_names,
            "joint_model": self._joint_model,
            "group_sums": self._group_sums,
        }

    # The active party's side

    async def _sign_card(self, request: Mapping[str, Any], _: OnProgress) -> dict[str, Any]:
        """By party, its endorsement of a card, or the reason for none."""
        self.context.require_active("have a card signed")
        card = card_in(str(request["card"]))
        question = ModelCardOffer(model=card.model, card=str(request["card"]))
        return await self._ask_all(card.parties[1:], question, request)

    async def _delete_everywhere(
        self, request: Mapping[str, Any], on_progress: OnProgress
    ) -> dict[str, Any]:
        """By party, whether its share of a model is deleted; this party's own goes last."""
        self.context.require_active("delete a model at all parties")
        model, state = str(request["model"]), self.context.config.state
        share = await asyncio.to_thread(self.context.model_store.active, model)
        await asyncio.to_thread(check_unserved, state, model)
        answers = await self._ask_all(share.parties[1:], ModelDelete(model=model), request)
        if all("refused" not in answer for answer in answers.values()):
            await asyncio.to_thread(delete_model, state, model)
        return answers

    async def _column_names(self, request: Mapping[str, Any], _: OnProgress) -> dict[str, Any]:
        """By party, the reason for sharing no names; shared names are kept."""
        self.context.require_active("ask for the names of columns")
        model, state = str(request["model"]), self.context.config.state
        share = await asyncio.to_thread(self.context.model_store.active, model)
        answers = await self._ask_all(share.parties[1:], ModelColumns(model=model), request)
        shared = {}
        for owner, party in enumerate(share.parties):
            if "columns" in (answer := answers.get(party, {})):
                records = sum(int((tree.owner == owner).sum()) for tree in share.trees)
                try:
                    columns = columns_of(party, answer.pop("columns"), records)
                except ProtocolError as error:
                    answer["refused"] = str(error)
                else:
                    assert columns is not None
                    shared[party] = columns
        await asyncio.to_thread(keep_column_names, state, model, shared)
        return answers

    async def _joint_model(self, request: Mapping[str, Any], _: OnProgress) -> dict[str, Any]:
        """By party, its splits of a model, or the reason for none; nothing of it is kept."""
        self.context.require_active("ask for the thresholds of a model")
        model = str(request["model"])
        share = await asyncio.to_thread(self.context.model_store.active, model)
        others = share.parties[1:]
        # Nobody tells anything before all owners have said yes.
        asked = await self._ask_all(others, ModelSplits(model=model, only_asks=True), request)
        if any("refused" in answer for answer in asked.values()):
            return {party: _refusal_of(answer) for party, answer in asked.items()}
        answers = await self._ask_all(others, ModelSplits(model=model), request)
        for owner, party in enumerate(share.parties):
            if "thresholds" in (answer := answers.get(party, {})):
                records = sum(int((tree.owner == owner).sum()) for tree in share.trees)
                try:
                    splits = splits_of(party, ModelThresholds.model_construct(**answer), records)
                    answers[party] = {"splits": splits.model_dump(mode="json")}
                except ProtocolError as error:
                    answers[party] = {"refused": str(error)}
        return answers

    async def _group_sums(self, request: Mapping[str, Any], _: OnProgress) -> list[dict[str, Any]]:
        """By group of another party's column: its name, its number of people, its figures."""
        context = self.context
        context.require_active("ask for groups")
        model, party = str(request["model"]), str(request["party"])
        share = await asyncio.to_thread(context.model_store.active, model)
        if party not in context.federation.parties or party not in share.parties[1:]:
            raise DaemonError(f"{party} took no part in the training of model {model}")
        ids = tuple(comparable(request["ids"], context.config.serving or context.config.data))
        check_lengths(ids, lambda place: f"ids, row {place + 1}")
        if not 0 < len(ids) <= MOST_PEOPLE:
            raise DataError(f"groups of {len(ids):,} people: the limit is {MOST_PEOPLE:,}")
        pool = context.pool
        bits = max(SAFE_KEY_BITS, context.config.policy.smallest_key or 0)
        key = await pool.run(make_group_key.bind(bits))
        ones, selected = (np.array(request[name], np.bool_) for name in ("ones", "selected"))
        score = np.array(request["score"], np.float64)
        ciphertexts = await pool.run(encrypt_people.bind(key, ones, selected, score))
        question = ModelGroups(
            model=model,
            column=str(request["column"]),
            people=len(ids),
            public=pack_payload(public_numbers(key.public)),
        )
        pieces = _pieces(ids, ciphertexts)
        body = await self._ask(party, question, _GROUPS_WAIT_SECONDS, pieces)
        if body is None:
            raise DaemonError(f"{party} has not answered within {_GROUPS_WAIT_SECONDS:g} s")
        assert isinstance(body, ModelGroupSums)
        counts, sums = body.counts.numpy(), body.ciphertexts.numpy()
        if not len(body.groups) == len(counts) == len(sums) or int(counts.sum()) != len(ids):
            raise MessageError(f"{party}: its groups are not those of {len(ids):,} people")
        figures = await pool.run(decrypt_group_sums.bind(key, sums, len(ids)))
        return [
            {"group": name, "people": count, **asdict(found)}
            for name, count, found in zip(body.groups, counts.tolist(), figures, strict=True)
        ]

    async def _ask_all(
        self, parties: Sequence[str], question: ModelQuestion, request: Mapping[str, Any]
    ) -> dict[str, Any]:
        """By party, the fields of its answer, or the reason for none."""
        seconds = float(request.get("seconds") or _WAIT_SECONDS)

        async def answered(party: str) -> dict[str, Any]:
            if party not in self.context.federation.parties:
                return {"refused": f"{party} has left the federation"}
            try:
                body = await self._ask(party, question, seconds)
            except FedmqError as error:
                return {"refused": str(error)}
            if body is None:
                return {
                    "refused": f"{party} has not answered within {seconds:g} s; it may still "
                    "carry the request out when it returns"
                }
            return dict(body)

        answers = await asyncio.gather(*(answered(party) for party in parties))
        return dict(zip(parties, answers, strict=True))

    async def _ask(
        self,
        party: str,
        question: ModelQuestion,
        seconds: float,
        pieces: Sequence[ModelGroupPiece] = (),
    ) -> Body | None:
        """The answer of ``party`` within ``seconds``; None if there is none."""
        machine = ActiveModelRequest(party, question, pieces)
        running = self.context.sessions.open(
            secrets.token_hex(8), 1, "model request", question.model, machine
        )
        runner = running.runner
        runner.start()
        await asyncio.wait({runner.outcome}, timeout=seconds)
        if not runner.outcome.done():
            runner.cancel(f"{self.context.party} no longer waits")
            return None
        body = await runner.outcome
        assert isinstance(body, Body)
        return body

    # The passive party's side

    async def _join(self, envelope: Envelope) -> RunningSession:
        header, body = envelope.header, envelope.body
        assert isinstance(body, ModelQuestion)
        question = QUESTIONS[type(body)]
        machine = PassiveModelRequest(header.sender, await self._decided(header, question, body))
        running = self.context.sessions.open(
            header.session,
            header.attempt,
            "model request",
            body.model,
            machine,
            journal=PeopleJournal(
                self.context.session_store.database,
                header.session,
                self.context.config.policy.smallest_difference,
            ),
        )
        if question.end_recorded:
            self.context.consent.audit.follow(header, running.runner.outcome, running.traffic)
        return running

    async def _decided(
        self, header: Header, question: Question, body: ModelQuestion
    ) -> Answer | Refused:
        """This party's answer after it has acted, or the pieces that the answer is made from."""
        context = self.context
        agreed = {entry: getattr(body, field) for entry, field in question.agreed.items()}
        terms = {field: getattr(body, field) for field in ("model", *question.agreed.values())}
        ask_owner = question.ask_owner
        owner = None if ask_owner is None else partial(ask_owner, context, header, body)
        try:
            await context.consent.question(
                header, question.policy, question.does.format_map(terms), terms, agreed, owner
            )
            return await question.answer(context, header, body)
        except Refused as error:
            return error
        except FedmqError as error:  # it may quote this party's files
            log.warning("%s of model %s: %s", body.kind, body.model, error)
            return Refused(f"{context.party} could not carry the request out; its log says why")


def _refusal_of(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Why a party tells nothing; empty where only others do not agree."""
    return {"refused": answer["refused"]} if "refused" in answer else {}


# The answers of the passive party, after the policy has agreed.


def _in_thread(
    act: Callable[[PartyContext, Header, Any], Answer],
) -> Callable[[PartyContext, Header, Any], Awaitable[Answer]]:
    """``act``, which waits for the disk, off the event loop."""

    async def answer(context: PartyContext, header: Header, asked: Any) -> Answer:
        return await asyncio.to_thread(act, context, header, asked)

    return answer


def _sign(context: PartyContext, _: Header, asked: ModelCardOffer) -> ModelCardSigned:
    signed = endorse(
        card_in(asked.card),
        _share(context, asked.model),
        context.party,
        context.consent.audit.log,
        context.sealer.sign,
    )
    return ModelCardSigned(endorsement=signed.model_dump_json())


def _delete(context: PartyContext, _: Header, asked: ModelDelete) -> ModelDeleted:
    delete_model(context.config.state, asked.model)
    return ModelDeleted()


def _name_columns(context: PartyContext, _: Header, asked: ModelColumns) -> ModelColumnNames:
    table = _share(context, asked.model).lookup_table
    names = {name: name[:_LONGEST_NAME] for name in table.columns}
    disclosed = DisclosedColumns.of(table, len(table), names)
    return ModelColumnNames(columns=record_columns(disclosed))


async def _ask_for_splits(context: PartyContext, header: Header, asked: ModelSplits) -> None:
    """Ask this party's owner about this model; Refused until it has said yes."""
    share = await asyncio.to_thread(_share, context, asked.model)
    terms = RequestedTerms.of_joint_model(header.sender, share, _names_shared(context))
    if seconds := await context.owner_consent.seconds_left(header, terms):
        raise Refused(
            f"its owner is asked, and has {seconds / 3600:.3g} hours to answer; "
            "after a yes repeat the request"
        )


def _tell_splits(context: PartyContext, _: Header, asked: ModelSplits) -> ModelThresholds:
    if asked.only_asks:
        return told_splits(LookupTable.empty(()), named=False)
    return told_splits(_share(context, asked.model).lookup_table, _names_shared(context))


def _names_shared(context: PartyContext) -> bool:
    return context.config.policy.column_names == "shared"


async def _add_groups(context: PartyContext, header: Header, asked: ModelGroups) -> GroupPieces:
    """The addition, for when all ids and ciphertexts have arrived."""
    smallest, earlier = context.config.policy.smallest_difference, None
    if smallest:
        store = AnsweredPeopleStore(context.session_store.database)
        earlier = await store.earlier(asked.people, smallest)
    return await asyncio.to_thread(_addition, context, header, asked, earlier)


def _addition(
    context: PartyContext, header: Header, asked: ModelGroups, earlier: EarlierPeople | None
) -> GroupPieces:
    policy = context.config.policy
    _require_share(context, asked.model)
    smallest_key = max(0 if policy.allow_weak_keys else SAFE_KEY_BITS, policy.smallest_key or 0)
    public = public_of(unpack_payload(asked.public), smallest_key, context.federation.active)

    def addition(ids: tuple[str, ...], ciphertexts: NDArray[np.uint8]) -> AddGroups:
        return AddGroups(
            context.party,
            context.config.serving or context.config.data,
            asked.column,
            ids,
            public,
            ciphertexts,
            header.session,
            GroupQuestions(context.config.state),
            policy.smallest_group,
            policy.most_group_questions_per_day,
            policy.group_names == "shared",
            earlier,
        )

    return GroupPieces(asked.people, addition)


@dataclass(frozen=True, slots=True)
class Question:
    """How a party decides on a question about a model, and how it acts."""

    policy: str
    """The policy key that allows it."""
    does: str
    """The action that the party refuses without it; names in braces are fields of the question."""
    agreed: Mapping[str, str]
    """The audit log's entry for a yes: its names, and the fields that they show."""
    answer: Callable[[PartyContext, Header, Any], Awaitable[Answer]]
    """Act on the question. Raises Refused; text of other errors stays in this party's log."""
    ask_owner: Callable[[PartyContext, Header, Any], Awaitable[None]] | None = None
    """Raises Refused until this party's owner has said yes as well; None: policy is enough."""
    end_recorded: bool = False
    """Whether the audit log also records how the session ended."""


QUESTIONS: Mapping[type[ModelQuestion], Question] = {
    ModelCardOffer: Question(
        policy="sign_cards",
        does="sign cards by itself: pass the file on to its owner, who signs it with: "
        "fedmq models card --sign",
        agreed={"card": "model"},
        answer=_in_thread(_sign),
    ),
    ModelDelete: Question(
        policy="delete_models",
        does="delete its share when others ask; its owner does with: fedmq models delete",
        agreed={"deleted": "model"},
        answer=_in_thread(_delete),
    ),
    ModelColumns: Question(
        policy="column_names",
        does="share the names of its columns",
        agreed={"column_names": "model"},
        answer=_in_thread(_name_columns),
    ),
    ModelGroups: Question(
        policy="groups",
        does="add up by groups of {column!r}",
        agreed={"groups": "column", "people": "people"},
        answer=_add_groups,
        end_recorded=True,
    ),
    ModelSplits: Question(
        policy="joint_models",
        does="tell its thresholds for a model in one file",
        agreed={"joint_model": "model"},
        answer=_in_thread(_tell_splits),
        ask_owner=_ask_for_splits,
        end_recorded=True,
    ),
}
"""Every question, by its body."""


def _share(context: PartyContext, model: str) -> PassiveShare:
    _require_share(context, model)
    return context.model_store.passive(model)


def _require_share(context: PartyContext, model: str) -> None:
    if not context.model_store.path(model).exists():
        raise Refused(f"{context.party} has no share of model {model}")


# Groups on the wire: people in pieces


def _pieces(ids: tuple[str, ...], ciphertexts: NDArray[np.uint8]) -> list[ModelGroupPiece]:
    size = max(1, PIECE_BYTES // (ciphertexts.shape[1] + _ID_BYTES))
    return [
        ModelGroupPiece(
            start=start,
            ids=ids[start : start + size],
            ciphertexts=Array.of(ciphertexts[start : start + size]),
        )
        for start in range(0, len(ids), size)
    ]
