"""Alignments: the active party's owner asks for them, passive parties join."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fedmq.computation import Computation
from fedmq.errors import ConfigError
from fedmq.messages.alignment import AlignmentOpen
from fedmq.messages.body import Body
from fedmq.messages.envelope import Envelope, Header
from fedmq.party.configuration.job import AlignmentJob
from fedmq.party.consent.terms import RequestedTerms
from fedmq.party.data.loading import (
    AlignmentIds,
    AlignmentTerms,
    OthersKeptList,
    read_ids,
    require_same_steps,
)
from fedmq.party.services.service import Command, PartyContext, Service, answered
from fedmq.party.sessions.recovery import Opening
from fedmq.party.sessions.sessions import AttemptLoop, OnChange, OnProgress, RunningSession
from fedmq.party.store.alignments import AlignmentStore
from fedmq.party.store.kept_blindings import KeptPoints, OwnBlinding
from fedmq.protocol.alignment.active import ActiveAlignment
from fedmq.protocol.alignment.passive import PassiveAlignment

__all__ = ["AlignmentService"]

_KEY_BYTES = 32


class AlignmentService(Service):
    """Finds the ids that all parties share, and keeps this party's list of them.

    No part of an alignment is stored: if a party restarts, all parties begin anew.
    """

    def __init__(self, context: PartyContext) -> None:
        super().__init__(context)
        self._making: set[str] = set()

    @property
    def opened_sessions(self) -> Mapping[type[Body], Opening]:
        return {AlignmentOpen: self._join}

    @property
    def commands(self) -> Mapping[str, Command]:
        return {"align": self._align}

    def _terms(
        self, name: str, session: str, attempt: int, parties: tuple[str, ...]
    ) -> AlignmentTerms:
        return AlignmentTerms(name, f"{session}/{attempt}", parties)

    def _read(self, terms: AlignmentTerms, blinding: OwnBlinding | None = None) -> Computation:
        context, store = self.context, AlignmentStore(self.context.config.state)
        data = context.config.data
        return read_ids.bind(context.party, data, context.is_active, terms, store, blinding)

    async def _join(self, envelope: Envelope) -> RunningSession:
        header, opening = envelope.header, envelope.body
        assert isinstance(opening, AlignmentOpen)
        policy = self.context.config.policy
        agreed = await answered(self._agree(header, opening))
        federation, parties = self.context.federation, opening.parties
        if not federation.are_members(parties) or self.context.party not in parties:
            parties = federation.parties
        terms = self._terms(opening.name, header.session, header.attempt, parties)
        blinding = None
        if opening.keeps is not None:
            blinding = OwnBlinding(
                self.context.config.state, policy.kept_blinding_days, opening.keeps, opening.kept
            )
        machine = PassiveAlignment(
            self.context.party,
            parties,
            self._read(terms, blinding),
            lambda _: agreed.result(),
            secrets.token_bytes(_KEY_BYTES),
            policy.smallest_alignment,
            policy.most_alignment_ids,
            consent_within=0 if agreed.exception() else agreed.result(),
        )
        return self.context.host(header, "alignment", opening.name, machine)

    async def _agree(self, header: Header, opening: AlignmentOpen) -> int:
        """The seconds that the owner has to agree; 0: no consent needed.

        Raises:
            Refused: policy or owner refuse it, or the parties normalise ids differently.
        """
        await self.context.consent.alignment(header, opening)
        require_same_steps(
            self.context.party,
            self.context.config.data.normalise,
            self.context.federation.active,
            opening.normalise,
        )
        requested = RequestedTerms.of_alignment(header.sender, opening)
        return await self.context.owner_consent.seconds_left(header, requested)

    async def _align(self, request: Mapping[str, Any], on_progress: OnProgress) -> dict[str, Any]:
        self.context.require_active("align")
        if not self.context.federation.passive:
            raise ConfigError("there is no other party to align with")
        job = AlignmentJob.model_validate(request["job"])
        name = job.name
        federation = self.context.federation
        parties = (federation.active, *federation.partners(job.parties))
        if absent := [party for party in job.at_least if party not in parties[1:]]:
            raise ConfigError(f"at_least: {absent[0]} is no passive party of the alignment")
        if job.prepare and len(parties) > 2:
            raise ConfigError(
                "prepare: a key is kept for alignments of two parties; name the other one in "
                "`parties` of the job"
            )
        known_to = None if job.join == "inner" else job.at_least
        if name in self._making:
            raise ConfigError(f"alignment {name!r} is being made already; see: fedmq status")
        self._making.add(name)
        session = secrets.token_hex(8)
        begun = asyncio.get_running_loop().time()
        try:
            own: AlignmentIds = await self.context.pool.run(
                self._read(self._terms(name, session, 1, parties))
            )
        except BaseException:
            self._making.discard(name)
            raise

        made: list[ActiveAlignment] = []

        async def attempt(number: int, on_change: OnChange) -> RunningSession:
            kept_list = None
            if job.prepare:
                points = KeptPoints(self.context.config.state, parties[1])
                kept_list = OthersKeptList(points, *await asyncio.to_thread(points.head))
            machine = ActiveAlignment(
                name,
                parties,
                own.ids,
                own.normalise,
                secrets.token_bytes(_KEY_BYTES),
                replace(own, terms=self._terms(name, session, number, parties)).keep,
                self.context.config.policy.smallest_alignment,
                known_to,
                own.rows_of,
                kept_list,
            )
            made.append(machine)
            return self.context.sessions.open(
                session, number, "alignment", name, machine, on_change=on_change
            )

        attempts = self.context.sessions.drive(AttemptLoop(attempt))
        attempts.result.add_done_callback(lambda _: self._making.discard(name))
        await on_progress({"event": "opened", "session": session, "alignment": name})
        rows: int = await attempts.followed(on_progress)
        stored = await asyncio.to_thread(AlignmentStore(self.context.config.state).described, name)
        return {
            "alignment": name,
            "join": job.join,
            "rows": rows,
            "people": stored["people"],
            "lacked_at": stored["lacked_at"],
            "choices": stored["choices"],
            "own_ids": len(own.ids),
            "reused": made[-1].reused if job.prepare else None,
            "parties": list(parties),
            "seconds": round(asyncio.get_running_loop().time() - begun, 3),
            "bytes_sent": attempts.bytes_sent,
        }
