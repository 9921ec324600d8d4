"""Screens: the active party's owner looks at all parties' columns before a training."""

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
from collections.abc import Mapping
from functools import partial
from typing import Any

from fedmq.computation import Computation
from fedmq.errors import ConfigError, FedmqError, Refused
from fedmq.messages.body import Body
from fedmq.messages.envelope import Envelope, Header
from fedmq.messages.screen import PairOpen, ScreenOpen
from fedmq.party.configuration.job import ScreenJob
from fedmq.party.consent.policy_consent import correlates
from fedmq.party.consent.terms import RequestedTerms
from fedmq.party.data.loading import Aligned
from fedmq.party.data.screening import (
    LabelledColumns,
    Pair,
    add_pairs,
    load_labelled_columns,
    load_shown_columns,
    made_screen,
    own_columns,
    pair_opening,
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
from fedmq.protocol.screen.active import ActiveScreen, Shown, ShownCorrelations
from fedmq.protocol.screen.active_pair import ActivePair
from fedmq.protocol.screen.passive import PassiveScreen, ScreenTerms
from fedmq.protocol.screen.passive_pair import PassivePair

__all__ = ["ScreenService"]

log = logging.getLogger(__name__)


class ScreenService(Service):
    """Asks each passive party separately: a refusal does not hold up the others."""

    @property
    def opened_sessions(self) -> Mapping[type[Body], Opening]:
        return {ScreenOpen: self._join, PairOpen: self._join_pair}

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

        correlations: dict[str, ShownCorrelations] = {}

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
            if shown.correlations is not None:
                correlations[party] = shown.correlations
            return shown_columns(party, shown, own, job.least_steps), attempts.bytes_sent

        found = await asyncio.gather(*(looked_at(party) for party in partners))
        parties = {
            context.party: own_columns(own.columns, own.alike, own.label),
            **{party: told for party, (told, _) in zip(partners, found, strict=True)},
        }
        pairs, sent_of_pairs = await self._pairs(job, own, salt, correlations, on_progress)
        add_pairs(parties, own, correlations, pairs)
        sent = sent_of_pairs + sum(sent for _, sent in found)
        seconds = round(asyncio.get_running_loop().time() - begun, 3)
        screen = screen_found(job, own.label, own.rows, parties, sent) | {"seconds": seconds}
        await asyncio.to_thread(self._keep, made_screen(screen, own.numbered, sessions))
        return screen

    async def _pairs(
        self,
        job: ScreenJob,
        own: LabelledColumns,
        salt: str,
        correlations: Mapping[str, ShownCorrelations],
        on_progress: OnProgress,
    ) -> tuple[list[Pair], int]:
        """The coefficients of columns of each two passive parties that both allow it."""

        async def paired(asks: str, answers: str) -> tuple[Pair, int]:
            opening = pair_opening(job, own, salt, (asks, answers), correlations[asks])

            async def attempt(number: int, on_change: OnChange) -> RunningSession:
                machine = ActivePair(opening, len(correlations[answers].columns))
                return context.sessions.open(
                    session, number, "screen", job.name, machine, on_change=on_change
                )

            session = secrets.token_hex(8)
            attempts = context.sessions.drive(AttemptLoop(attempt))
            await on_progress({"event": "opened", "session": session, "screen": job.name})
            try:
                told = await attempts.followed(on_progress)
            except FedmqError as error:
                return Pair((asks, answers), None, str(error)), attempts.bytes_sent
            return Pair((asks, answers), told), attempts.bytes_sent

        context = self.context
        willing = [party for party, told in correlations.items() if told.among]
        ordered = [party for party in context.federation.parties if party in willing]
        both = list(itertools.combinations(ordered, 2))
        found = await asyncio.gather(*(paired(*names) for names in both))
        return [pair for pair, _ in found], sum(sent for _, sent in found)

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

    async def _join_pair(self, envelope: Envelope) -> RunningSession:
        context, header, opening = self.context, envelope.header, envelope.body
        assert isinstance(opening, PairOpen)
        pair = opening.asks, opening.answers
        known = context.federation.are_members((context.federation.active, *pair))
        if not known or context.party not in pair or pair[0] == pair[1]:
            raise Refused(f"{context.party} knows no such pair of passive parties")
        agreed = await answered(self._agree(header, opening))
        machine = PassivePair(
            header.sender,
            opening.answers if context.party == opening.asks else opening.asks,
            await self._read(header, opening),
            agreed.result,
            await self._secret(),
            fresh_seed(),
            consent_within=0 if agreed.exception() else agreed.result()[1],
        )
        journal = PeopleJournal(
            context.session_store.database, header.session, self._smallest_difference
        )
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
            None
            if isinstance(opening, PairOpen)
            else partial(keep_shown_screen, context.config.state, header.session),
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
        return ScreenTerms(
            policy.column_names == "shared", measured, correlating, policy.correlation == "all"
        ), seconds
