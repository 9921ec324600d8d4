"""Screens: the active party's owner looks at all parties' columns before a training."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Mapping
from functools import partial
from typing import Any

from fedmq.computation import Computation
from fedmq.errors import ConfigError, FedmqError
from fedmq.messages.body import Body
from fedmq.messages.envelope import Envelope, Header
from fedmq.messages.screen import ScreenOpen
from fedmq.party.configuration.job import ScreenJob
from fedmq.party.consent.policy_consent import correlates
from fedmq.party.consent.terms import RequestedTerms
from fedmq.party.data.loading import Aligned
from fedmq.party.data.screening import (
    LabelledColumns,
    load_labelled_columns,
    load_shown_columns,
    made_screen,
    own_columns,
    screen_found,
    screen_opening,
    shown_columns,
)
from fedmq.party.services.service import Command, Service, answered
from fedmq.party.sessions.recovery import Opening
from fedmq.party.sessions.sessions import AttemptLoop, OnChange, OnProgress, RunningSession
from fedmq.party.store.alignments import AlignmentStore
from fedmq.party.store.answered_people import AnsweredPeopleStore
from fedmq.party.store.documents import keep_shown_screen, made_screens
from fedmq.party.store.journal import PeopleJournal
from fedmq.party.store.kept_secret import kept_secret
from fedmq.party.store.screens import MadeScreen
from fedmq.privacy.lattice.inner_products import ColumnKey
from fedmq.privacy.random_stream import fresh_seed
from fedmq.protocol.screen.active import ActiveScreen, Shown
from fedmq.protocol.screen.passive import PassiveScreen, ScreenTerms

__all__ = ["ScreenService"]

log = logging.getLogger(__name__)


class ScreenService(Service):
    """Asks each passive party separately: a refusal does not hold up the others."""

    @property
    def opened_sessions(self) -> Mapping[type[Body], Opening]:
        return {ScreenOpen: self._join}

    @property
    def commands(self) -> Mapping[str, Command]:
        return {"screen": self._screen}

    # The active party's side

    async def _screen(self, request: Mapping[str, Any], on_progress: OnProgress) -> dict[str, Any]:
        context = self.context
        context.require_active("look at columns")
        job = ScreenJob.model_validate(request["job"])
        partners = context.federation.partners(job.parties)
        begun, salt = asyncio.get_running_loop().time(), secrets.token_hex(8)
        own: LabelledColumns = await context.pool.run(
            load_labelled_columns.bind(
                context.party,
                context.config.data,
                self._aligned(job.alignment),
                salt,
                job,
            )
        )
        sessions = {party: secrets.token_hex(8) for party in partners}
        secret = await self._secret() if own.numbers.columns else b""

        async def looked_at(party: str) -> tuple[dict[str, Any], int]:
            key = ColumnKey(fresh_seed(), fresh_seed())
            opening = screen_opening(job, own, salt, key)

            async def attempt(number: int, on_change: OnChange) -> RunningSession:
                standard = own.numbers.standard
                machine = ActiveScreen(party, opening, own.label, key, standard, secret)
                return context.sessions.open(
                    session, number, "screen", job.name, machine, on_change=on_change
                )

            session = sessions[party]
            attempts = context.sessions.drive(AttemptLoop(attempt))
            await on_progress({"event": "opened", "session": session, "screen": job.name})
            try:
                shown: Shown = await attempts.followed(on_progress)
            except FedmqError as error:
                return {"refused": str(error)}, attempts.bytes_sent
            return shown_columns(party, shown, own), attempts.bytes_sent

        found = await asyncio.gather(*(looked_at(party) for party in partners))
        parties = {
            context.party: own_columns(own.columns, own.alike, own.label),
            **{party: told for party, (told, _) in zip(partners, found, strict=True)},
        }
        sent = sum(sent for _, sent in found)
        seconds = round(asyncio.get_running_loop().time() - begun, 3)
        screen = screen_found(job, own.label, own.rows, parties, sent) | {"seconds": seconds}
        await asyncio.to_thread(self._keep, made_screen(screen, own.numbered, sessions))
        return screen

    def _keep(self, made: MadeScreen) -> None:
        """Keep the screen for trainings that follow; its owner has it either way."""
        try:
            made_screens(self.context.config.state).keep(made.name, made)
        except ConfigError as error:
            log.warning("%s", error)

    async def _secret(self) -> bytes:
        return await asyncio.to_thread(kept_secret, self.context.config.state)

    def _aligned(self, name: str | None) -> Aligned | None:
        return None if name is None else Aligned(AlignmentStore(self.context.config.state), name)

    # The passive party's side

    async def _join(self, envelope: Envelope) -> RunningSession:
        context, header, opening = self.context, envelope.header, envelope.body
        assert isinstance(opening, ScreenOpen)
        agreed = await answered(self._agree(header, opening))
        smallest = self._smallest_difference
        machine = PassiveScreen(
            header.sender,
            await self._read(header, opening),
            lambda: agreed.result()[0],
            consent_within=0 if agreed.exception() else agreed.result()[1],
            secret=await self._secret() if correlates(context.config.policy, opening) else b"",
        )
        journal = PeopleJournal(context.session_store.database, header.session, smallest)
        return context.host(header, "screen", opening.name, machine, journal)

    @property
    def _smallest_difference(self) -> int:
        """By so many people a screen differs from earlier answers: of fewer it would tell."""
        policy = self.context.config.policy
        return max(policy.smallest_difference, policy.smallest_group)

    async def _read(self, header: Header, opening: ScreenOpen) -> Computation:
        context = self.context
        people = min(opening.rows, opening.most_rows)
        store = AnsweredPeopleStore(context.session_store.database)
        return load_shown_columns.bind(
            context.party,
            context.config.data,
            self._aligned(opening.alignment_name or None),
            opening,
            header.sender,
            context.config.policy.features,
            context.config.policy.smallest_group,
            await store.earlier(people, self._smallest_difference),
            correlates(context.config.policy, opening),
            partial(keep_shown_screen, context.config.state, header.session),
        )

    async def _agree(self, header: Header, opening: ScreenOpen) -> tuple[ScreenTerms, int]:
        """What this party shows, and the seconds that its owner has to agree; 0: at once.

        Raises:
            Refused: policy or owner refuse it.
        """
        context, policy = self.context, self.context.config.policy
        measured = await context.consent.screen(header, opening)
        correlating = correlates(policy, opening)
        requested = RequestedTerms.of_screen(header.sender, opening, measured, correlating)
        seconds = await context.owner_consent.seconds_left(header, requested)
        return ScreenTerms(policy.column_names == "shared", measured, correlating), seconds
