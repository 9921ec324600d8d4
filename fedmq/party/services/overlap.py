"""Counts of shared people: the active party's owner asks for one, passive parties join."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from random import SystemRandom
from typing import Any

from fedmq.computation import Computation
from fedmq.errors import ConfigError
from fedmq.messages.body import Body
from fedmq.messages.envelope import Envelope, Header
from fedmq.messages.overlap import OverlapOpen
from fedmq.party.configuration.job import AlignmentJob
from fedmq.party.consent.terms import RequestedTerms
from fedmq.party.data.loading import read_id_list, require_same_steps
from fedmq.party.services.service import Command, Service, answered
from fedmq.party.sessions.recovery import Opening
from fedmq.party.sessions.sessions import AttemptLoop, OnChange, OnProgress, RunningSession
from fedmq.privacy.noisy_count import drawn_noise
from fedmq.protocol.overlap.active import ActiveOverlap, SharedPeople
from fedmq.protocol.overlap.passive import OverlapLimits, PassiveOverlap

__all__ = ["OverlapService"]

_KEY_BYTES = 32


class OverlapService(Service):
    """Counts the people whom all parties share; nothing of it is kept."""

    @property
    def opened_sessions(self) -> Mapping[type[Body], Opening]:
        return {OverlapOpen: self._join}

    @property
    def commands(self) -> Mapping[str, Command]:
        return {"overlap": self._count}

    def _read(self) -> Computation:
        context = self.context
        return read_id_list.bind(context.party, context.config.data, context.is_active)

    async def _join(self, envelope: Envelope) -> RunningSession:
        header, opening = envelope.header, envelope.body
        assert isinstance(opening, OverlapOpen)
        policy = self.context.config.policy
        agreed = await answered(self._agree(header, opening))
        federation, parties = self.context.federation, opening.parties
        if not federation.are_members(parties) or self.context.party not in parties[1:]:
            parties = federation.parties
        machine = PassiveOverlap(
            self.context.party,
            parties,
            self._read(),
            lambda _: agreed.result(),
            secrets.token_bytes(_KEY_BYTES),
            drawn_noise(SystemRandom()),
            OverlapLimits(
                policy.overlap == "exact", policy.smallest_alignment, policy.most_alignment_ids
            ),
            consent_within=0 if agreed.exception() else agreed.result(),
        )
        return self.context.host(header, "overlap", opening.name, machine)

    async def _agree(self, header: Header, opening: OverlapOpen) -> int:
        """The seconds that the owner has to agree; 0: no consent needed.

        Raises:
            Refused: policy or owner refuse it, or the parties normalise ids differently.
        """
        await self.context.consent.overlap(header, opening)
        require_same_steps(
            self.context.party,
            self.context.config.data.normalise,
            self.context.federation.active,
            opening.normalise,
        )
        requested = RequestedTerms.of_overlap(header.sender, opening)
        return await self.context.owner_consent.seconds_left(header, requested)

    async def _count(self, request: Mapping[str, Any], on_progress: OnProgress) -> dict[str, Any]:
        self.context.require_active("count shared people")
        if not self.context.federation.passive:
            raise ConfigError("there is no other party to share people with")
        job = AlignmentJob.model_validate(request["job"])
        federation, config = self.context.federation, self.context.config
        parties = (federation.active, *federation.partners(job.parties))
        session = secrets.token_hex(8)
        begun = asyncio.get_running_loop().time()
        ids = await self.context.pool.run(self._read())

        async def attempt(number: int, on_change: OnChange) -> RunningSession:
            machine = ActiveOverlap(
                job.name, parties, ids, config.data.normalise, secrets.token_bytes(_KEY_BYTES)
            )
            return self.context.sessions.open(
                session, number, "overlap", job.name, machine, on_change=on_change
            )

        attempts = self.context.sessions.drive(AttemptLoop(attempt))
        await on_progress({"event": "opened", "session": session, "alignment": job.name})
        shared: SharedPeople = await attempts.followed(on_progress)
        return {
            "alignment": job.name,
            "people": shared.people,
            "exact": shared.exact,
            "fewest": shared.fewest,
            "own_ids": len(ids),
            "parties": list(parties),
            "seconds": round(asyncio.get_running_loop().time() - begun, 3),
            "bytes_sent": attempts.bytes_sent,
        }
