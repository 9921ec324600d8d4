"""Alignments: asked for by the label holder's owner, joined by the others."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from fedmq.errors import ConfigError, Refused
from fedmq.messages.alignment import AlignmentOpen
from fedmq.messages.body import Body
from fedmq.messages.envelope import Envelope, Header
from fedmq.party.configuration.job import AlignmentJob
from fedmq.party.data.alignment_ids import AlignmentIds, ReadIds, Terms
from fedmq.party.services.service import Command, Opening, PartyContext, Service
from fedmq.party.sessions.attempts import AttemptLoop, OnChange
from fedmq.party.sessions.progress import OnProgress
from fedmq.party.sessions.running import RunningSession
from fedmq.party.store.alignments import AlignmentStore
from fedmq.protocol.alignment.active import ActiveAlignment
from fedmq.protocol.alignment.passive import PassiveAlignment

__all__ = ["AlignmentService"]

_KEY_BYTES = 32


class AlignmentService(Service):
    """Finds the ids that all parties share; keeps this party's list of them.

    After the restart of another party all begin anew: no part of an alignment is kept.
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

    def _terms(self, name: str, session: str, attempt: int) -> Terms:
        return Terms(name, f"{session}/{attempt}", self.at.federation.parties)

    def _read(self, terms: Terms) -> ReadIds:
        store = AlignmentStore(self.at.config.state)
        return ReadIds(self.at.party, self.at.config.data, self.at.is_active, terms, store)

    async def _join(self, envelope: Envelope) -> RunningSession:
        header, opening = envelope.header, envelope.body
        assert isinstance(opening, AlignmentOpen)
        machine = PassiveAlignment(
            self.at.party,
            self.at.federation.parties,
            self._read(self._terms(opening.name, header.session, header.attempt)),
            partial(self._agree, header),
            secrets.token_bytes(_KEY_BYTES),
            self.at.config.policy.smallest_alignment,
        )
        running = self.at.sessions.open(
            header.session, header.attempt, "alignment", opening.name, machine
        )
        self.at.consent.follow(header, running.runner.outcome, running.traffic)
        return running

    def _agree(self, header: Header, opening: AlignmentOpen) -> None:
        """Raise Refused unless policy allows it, and the terms are this party's own."""
        self.at.consent.alignment(header, opening)
        own = self.at.config.data.normalise
        if opening.normalise != own:
            raise Refused(
                f"{self.at.party} normalises ids by {_words(own)}, "
                f"{self.at.federation.active} by {_words(opening.normalise)}; "
                "agree on data.normalise in all party files"
            )

    async def _align(self, request: Mapping[str, Any], say: OnProgress) -> dict[str, Any]:
        self.at.only_active("align")
        if not self.at.federation.passive:
            raise ConfigError("there is no other party to align with")
        name = AlignmentJob.model_validate(request["job"]).name
        if name in self._making:
            raise ConfigError(f"alignment {name!r} is being made already; see: fedmq status")
        self._making.add(name)
        session = secrets.token_hex(8)
        begun = asyncio.get_running_loop().time()
        try:
            own: AlignmentIds = await self.at.pool.run(self._read(self._terms(name, session, 1)))
        except BaseException:
            self._making.discard(name)
            raise

        async def attempt(number: int, on_change: OnChange) -> RunningSession:
            machine = ActiveAlignment(
                name,
                self.at.federation.parties,
                own.ids,
                own.normalise,
                secrets.token_bytes(_KEY_BYTES),
                replace(own, terms=self._terms(name, session, number)).keep,
                self.at.config.policy.smallest_alignment,
            )
            return self.at.sessions.open(
                session, number, "alignment", name, machine, on_change=on_change
            )

        course = self.at.sessions.drive(AttemptLoop(attempt))
        course.result.add_done_callback(lambda _: self._making.discard(name))
        await say({"event": "opened", "session": session, "alignment": name})
        rows: int = await course.followed(say)
        return {
            "alignment": name,
            "rows": rows,
            "own_ids": len(own.ids),
            "parties": list(self.at.federation.parties),
            "seconds": round(asyncio.get_running_loop().time() - begun, 3),
            "bytes_sent": course.bytes_sent,
        }


def _words(steps: tuple[str, ...]) -> str:
    return ", ".join(steps) or "nothing"
