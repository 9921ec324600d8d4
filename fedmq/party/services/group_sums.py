"""Figures by group of a column at another party: asked for, and added up where the column is."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from fedmq.computation import Computation
from fedmq.errors import DaemonError, DataError, MessageError, Refused
from fedmq.messages.array import Array, pack_payload, unpack_payload
from fedmq.messages.body import Body
from fedmq.messages.envelope import Envelope
from fedmq.messages.model_request import (
    MOST_PEOPLE,
    ModelGroupPiece,
    ModelGroups,
    ModelGroupSums,
)
from fedmq.party.configuration.data import DataSection
from fedmq.party.data.group_sums import AddGroups
from fedmq.party.data.id_column import check_lengths, comparable
from fedmq.party.services.service import Command, Service, answered
from fedmq.party.sessions.recovery import Opening
from fedmq.party.sessions.sessions import OnProgress, RunningSession
from fedmq.party.store.group_questions import GroupQuestions
from fedmq.privacy.homomorphic import SAFE_KEY_BITS
from fedmq.privacy.homomorphic.group_sums import DecryptGroupSums, EncryptPeople, MakeGroupKey
from fedmq.privacy.homomorphic.paillier import PublicKey, check_public
from fedmq.privacy.plan import PIECE_BYTES
from fedmq.protocol.model_request.active import ActiveModelRequest
from fedmq.protocol.model_request.groups_passive import PassiveGroups

__all__ = ["GroupSumsService"]

_WAIT_SECONDS = 600.0
_ID_BYTES = 256


class GroupSumsService(Service):
    """Has numbers of people added by the groups of a column that another party holds."""

    @property
    def opened_sessions(self) -> Mapping[type[Body], Opening]:
        return {ModelGroups: self._join}

    @property
    def commands(self) -> Mapping[str, Command]:
        return {"group_sums": self._group_sums}

    @property
    def _serving(self) -> DataSection:
        return self.context.config.serving or self.context.config.data

    # The active party's side

    async def _group_sums(self, request: Mapping[str, Any], _: OnProgress) -> list[dict[str, Any]]:
        """By group: its name, how many people it has, and its figures."""
        context = self.context
        context.require_active("ask for groups")
        model, party = str(request["model"]), str(request["party"])
        share = await asyncio.to_thread(context.model_store.active, model)
        if party not in context.federation.parties or party not in share.parties[1:]:
            raise DaemonError(f"{party} is no party that model {model} was trained with")
        ids = tuple(comparable(request["ids"], self._serving))
        check_lengths(ids, lambda place: f"ids, row {place + 1}")
        if not 0 < len(ids) <= MOST_PEOPLE:
            raise DataError(f"groups of {len(ids):,} people: {MOST_PEOPLE:,} is the most")
        pool = context.pool
        bits = max(SAFE_KEY_BITS, context.config.policy.smallest_key or 0)
        key = await pool.run(MakeGroupKey(bits))
        ones, selected = (np.array(request[name], np.bool_) for name in ("ones", "selected"))
        score = np.array(request["score"], np.float64)
        ciphertexts = await pool.run(EncryptPeople(key, ones, selected, score))
        question = ModelGroups(
            model=model,
            column=str(request["column"]),
            people=len(ids),
            public=pack_payload(
                {
                    "n": _to_bytes(key.public.n),
                    "noise": _to_bytes(key.public.noise_base),
                    "noise_bits": key.public.noise_bits,
                }
            ),
        )
        body = await self._answer(party, question, _pieces(ids, ciphertexts))
        counts, sums = body.counts.numpy(), body.ciphertexts.numpy()
        if not len(body.groups) == len(counts) == len(sums) or int(counts.sum()) != len(ids):
            raise MessageError(f"{party}: its groups are not those of {len(ids):,} people")
        figures = await pool.run(DecryptGroupSums(key, sums, len(ids)))
        return [
            {"group": name, "people": count, **asdict(found)}
            for name, count, found in zip(body.groups, counts.tolist(), figures, strict=True)
        ]

    async def _answer(
        self, party: str, question: ModelGroups, pieces: list[ModelGroupPiece]
    ) -> ModelGroupSums:
        machine = ActiveModelRequest(party, question, pieces)
        running = self.context.sessions.open(
            secrets.token_hex(8), 1, "model request", question.model, machine
        )
        runner = running.runner
        runner.start()
        await asyncio.wait({runner.outcome}, timeout=_WAIT_SECONDS)
        if not runner.outcome.done():
            runner.cancel(f"{self.context.party} does not wait any longer")
            raise DaemonError(f"{party} has not answered within {_WAIT_SECONDS:g} s")
        body = await runner.outcome
        assert isinstance(body, ModelGroupSums)
        return body

    # The side of the column's owner

    async def _join(self, envelope: Envelope) -> RunningSession:
        header, question = envelope.header, envelope.body
        assert isinstance(question, ModelGroups)
        consent = self.context.consent
        agreed = await answered(
            consent.groups(header, question.model, question.column, question.people)
        )

        def addition(
            question: ModelGroups, ids: tuple[str, ...], ciphertexts: NDArray[np.uint8]
        ) -> Computation:
            return self._addition(header.session, question, ids, ciphertexts)

        machine = PassiveGroups(header.sender, lambda _: agreed.result(), addition)
        running = self.context.sessions.open(
            header.session, header.attempt, "model request", question.model, machine
        )
        consent.audit.follow(header, running.runner.outcome, running.traffic)
        return running

    def _addition(
        self,
        session: str,
        question: ModelGroups,
        ids: tuple[str, ...],
        ciphertexts: NDArray[np.uint8],
    ) -> AddGroups:
        context, policy = self.context, self.context.config.policy
        if not context.model_store.path(question.model).exists():
            raise Refused(f"{context.party} has no share of model {question.model}")
        smallest_key = max(0 if policy.allow_weak_keys else SAFE_KEY_BITS, policy.smallest_key or 0)
        return AddGroups(
            context.party,
            self._serving,
            question.column,
            ids,
            _public_key(unpack_payload(question.public), smallest_key, context.federation.active),
            ciphertexts,
            session,
            GroupQuestions(context.config.state),
            policy.smallest_group,
            policy.most_group_questions_per_day,
            policy.group_names == "shared",
        )


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


def _public_key(public: Mapping[str, Any], smallest: int, owner: str) -> PublicKey:
    """The key of a question; Refused if it is none, or too short."""
    try:
        n, noise = (int.from_bytes(public[name].tobytes(), "little") for name in ("n", "noise"))
        return check_public(n, noise, int(public["noise_bits"]), smallest, owner)
    except (KeyError, AttributeError, TypeError, ValueError):
        raise Refused(f"{owner}: its public key is malformed") from None


def _to_bytes(number: mpz) -> NDArray[np.uint8]:
    return np.frombuffer(number.to_bytes(-(-number.bit_length() // 8), "little"), np.uint8)
