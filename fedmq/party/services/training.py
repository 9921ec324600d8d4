"""Trainings: asked for by the active party's owner, joined by the others; they outlive crashes."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import secrets
import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from fedmq.boosting.model.cross_validated import CrossValidated
from fedmq.boosting.model.fallbacks import check_fallback_names, fallback_names
from fedmq.boosting.model.share import ActiveShare
from fedmq.errors import (
    Aborted,
    ConfigError,
    DaemonError,
    DataError,
    FedmqError,
    ProtocolError,
    Refused,
)
from fedmq.messages.body import Body
from fedmq.messages.envelope import Envelope, Header
from fedmq.messages.training import TrainingOpen
from fedmq.party.card.model_card import Worth
from fedmq.party.configuration.job import FallbackJob, TrainingJob
from fedmq.party.consent.terms import RequestedTerms
from fedmq.party.data.loading import (
    Aligned,
    LoadActiveTable,
    load_passive_share,
    load_passive_table,
)
from fedmq.party.data.screening import selection_of
from fedmq.party.services.service import Command, PartyContext, Service, answered
from fedmq.party.sessions.recovery import (
    NOTHING_SAVED,
    Opening,
    Resume,
    SavedProgress,
    check_same_table,
    saved_progress,
)
from fedmq.party.sessions.sessions import (
    AttemptLoop,
    OnChange,
    OnProgress,
    RunningSession,
    attempt_after_restart,
)
from fedmq.party.store.alignments import AlignmentStore
from fedmq.party.store.answered_people import AnsweredPeopleStore, compare_people
from fedmq.party.store.documents import (
    Deployments,
    ModelStore,
    cross_validations,
    keep_result,
    keep_share,
    made_screens,
    selections,
    shown_screen,
)
from fedmq.party.store.journal import AnsweredSumsStore, StoredSession, StoreJournal
from fedmq.party.store.screens import ColumnSelection, OwnChoice
from fedmq.party.store.transcripts import TranscriptWriter
from fedmq.party.telemetry.timeline import Timeline
from fedmq.privacy.engine import Engine
from fedmq.privacy.registry import ENGINES, engine_named
from fedmq.protocol.machine import UNLOADED
from fedmq.protocol.session_records import ActiveTree, EarlierSums, PassiveTree, Signing
from fedmq.protocol.training.active import ActiveTraining
from fedmq.protocol.training.active_growth import check_decoys
from fedmq.protocol.training.passive import ComparePeople, PassiveTraining
from fedmq.protocol.training.terms import ActiveTable, MainModel, opening_of_main, terms_digest

__all__ = ["TrainingService", "check_fallback", "result_of"]

log = logging.getLogger(__name__)

_RELOAD_SECONDS = 0.2
_ENDED = 100  # sessions among which those of fallback models are found again


class TrainingService(Service):
    """Trains models; keeps this party's share of each."""

    def __init__(self, context: PartyContext) -> None:
        super().__init__(context)
        self._driven: dict[str, AttemptLoop] = {}
        """By session."""
        self._begins = asyncio.Lock()

    @property
    def opened_sessions(self) -> Mapping[type[Body], Opening]:
        return {TrainingOpen: self._join}

    @property
    def commands(self) -> Mapping[str, Command]:
        return {
            "train": self._train,
            "follow": self._follow,
            "pause": partial(self._rest, True),
            "resume": partial(self._rest, False),
        }

    def _transcript(
        self, session: StoredSession, attempt: int, most_bytes: int | None = None
    ) -> TranscriptWriter:
        config = self.context.config
        return TranscriptWriter(
            config.state,
            session.id,
            attempt,
            most_bytes,
            required=config.policy.transcripts == "required",
            on_trouble=self.context.session_store.database.troubles.another(),
        )

    # A passive party joins

    async def _join(self, envelope: Envelope) -> RunningSession:
        header, terms = envelope.header, envelope.body
        assert isinstance(terms, TrainingOpen)
        config, consent = self.context.config, self.context.consent
        before = await self.context.session_store.find(header.session)
        chosen = await answered(_chosen(self.context, terms))
        agreed = await answered(self._agree(header, terms, before, chosen))
        selection = None if agreed.exception() else chosen.result()
        main = terms.fallback_of
        saved = await self.context.session_store.checkpoints(header.session)
        most_bytes = config.policy.transcript_bytes
        machine = PassiveTraining(
            self.context.party,
            header.sender,
            load_passive_table.bind(
                self.context.party,
                config.data,
                # The ids of the main training: the terms that were agreed to say which they are.
                salt=header.session if main is None else main.session,
                aligned=self._aligned(terms.alignment_name or None),
                permitted=config.policy.features,
                category_sets=config.policy.category_sets,
                chosen=None if selection is None else selection.own,
            ),
            lambda _: agreed.result()[0],
            secrets.randbits(128),
            self.context.pool.parallelism,
            [tree for tree in saved if isinstance(tree, PassiveTree)],
            smallest_node=config.policy.smallest_node,
            smallest_cell=config.policy.smallest_cell,
            returning=header.attempt > 1,
            finished=before is not None and before.state == "finished",
            most_sums_bytes=config.policy.most_sums_bytes,
            earlier_sums=EarlierSums.of(
                header.session,
                header.attempt,
                config.policy.sums_bound,
                await AnsweredSumsStore(self.context.session_store.database).trainings(),
            ),
            signing=self._signing(header.session, header.attempt) if most_bytes else None,
            find_share=partial(load_passive_share.bind, self.context.model_store),
            consent_within=0 if agreed.exception() else agreed.result()[1],
            others=self._others(terms),
            compare=await self._comparison(terms),
        )
        session = StoredSession(
            header.session, terms.model, header.attempt, terms=terms_digest(terms)
        )
        journal = StoreJournal(
            self.context.session_store,
            session,
            partial(
                keep_share,
                config.state,
                lambda: machine.table,
                main.model if main else "",
                session.id,
                selection,
            )
            if terms.folds == 1
            else lambda _: None,
            partial(consent.budgeted_sums, header),
            transcript=self._transcript(session, session.attempt, most_bytes)
            if most_bytes
            else None,
            smallest_difference=config.policy.smallest_difference,
        )
        return self.context.host(header, "training", session.model, machine, journal)

    async def _agree(
        self,
        header: Header,
        terms: TrainingOpen,
        before: StoredSession | None,
        chosen: asyncio.Future[ColumnSelection | None],
    ) -> tuple[Engine, int]:
        """The engine, and the seconds that the owner has to agree; 0: no consent needed.

        Raises:
            Refused: the policy or the owner refuses.
        """
        context = self.context
        engine = await context.consent.training(
            header,
            terms,
            begins=before is None,
            terms_before="" if before is None else before.terms,
        )
        selection = chosen.result()
        own = None if selection is None else selection.own
        if terms.fallback_of is not None:
            await check_fallback(context, header, terms, engine, own, anew=before is None)
            return engine, 0
        requested = RequestedTerms.of_training(header.sender, terms, engine, own)
        return engine, await context.owner_consent.seconds_left(header, requested)

    async def _comparison(self, terms: TrainingOpen) -> ComparePeople | None:
        """How the people of a training are compared at its opening; the journal does it again."""
        smallest = self.context.config.policy.smallest_difference
        if not smallest:
            return None
        learning = int((~terms.evaluation.numpy()).sum())
        store = AnsweredPeopleStore(self.context.session_store.database)
        return partial(compare_people.bind, await store.earlier(learning, smallest))

    def _others(self, terms: TrainingOpen) -> tuple[str, ...]:
        """The passive parties with which this one finds winners; only those that it knows."""
        federation = self.context.federation
        if not federation.are_members((federation.active, *terms.chain)):
            return ()
        return tuple(party for party in terms.chain if party != self.context.party)

    def _signing(self, session: str, attempt: int) -> Signing:
        sealer = self.context.sealer
        return Signing(
            session, attempt, sealer.sign_later, sealer.verifies, secrets.token_bytes(16)
        )

    def _aligned(self, name: str | None) -> Aligned | None:
        return None if name is None else Aligned(AlignmentStore(self.context.config.state), name)

    # The active party drives

    async def _train(self, request: Mapping[str, Any], on_progress: OnProgress) -> dict[str, Any]:
        self.context.require_active("train")
        job = TrainingJob.model_validate(request["job"])
        if job.refresh is not None:
            job = job.of_refreshed(self.context.model_store.active(job.refresh))
        job = job.of_labels(self.context.config.data.labels)
        self.context.federation.partners(job.parties)
        if job.fallback and job.nfold is not None:
            raise ConfigError(
                "fallback: fedmq cv trains no fallback models, each would take another "
                "cross-validation; leave them out with --set fallback=false, and see what a party "
                "is worth with --set 'parties=[...]' of the others"
            )
        if job.continue_from is not None:
            self.context.model_store.active(job.continue_from)
        if ENGINES[job.engine].known_leak:  # it may be towards the active party or away from it
            refusal = self.context.config.policy.refusal(self.context.party, job.engine)
            if refusal is not None:
                raise Refused(refusal)
        job = await asyncio.to_thread(_by_last_screen, self.context.config.state, job)
        engine = engine_named(job.engine, job.engine_options, "job")
        if job.decoys:
            check_decoys(engine)
        self._functions(job)
        drawn = engine.drawn()
        timeline = Timeline() if request.get("trace") else None
        async with self._begins:  # of two equal requests, the later finds the session of the first
            running = await self.context.session_store.running()
            session = next(
                (session for session in running if session.model == job.session_model), None
            )
            if session is not None:
                attempts = self._same_job(session, job, drawn)
            else:
                session, *later = await self._begun(
                    job.model_copy(update={"engine_options": {**job.engine_options, **drawn}}),
                    {session.model for session in running},
                )
                attempts = self._drive(session, None, timeline)
                for fallback in later:
                    self._drive(fallback, None)
        # After the session is driven, because this raises if the owner has disconnected.
        await on_progress({"event": "opened", "session": session.id, "model": session.model})
        made = await self._watched(session, attempts, on_progress)
        result = await self._with_fallbacks(session, made, on_progress)
        return {**result, **({"trace": timeline.document()} if timeline else {})}

    async def _begun(self, job: TrainingJob, growing: Set[str]) -> list[StoredSession]:
        """Begin a session, and those of fallback models, in their order.

        They are on disk before any data are read: a crash does not lose them.
        """
        served = (await asyncio.to_thread(Deployments.read, self.context.config.state)).names()
        if job.model in served:
            raise ConfigError(
                f"model {job.model!r} is a name under which {served[job.model].model} is "
                "activated; choose another name"
            )
        kept: Set[str] = frozenset() if job.nfold else set(self.context.model_store.ids())
        model = _name(job.session_model, growing | kept, "cv" if job.nfold else "model")
        session = StoredSession(secrets.token_hex(8), model, 1, job=_text(job))
        begun = [session]
        if job.fallback:
            passive = self.context.federation.partners(job.parties)
            check_fallback_names(model, passive)
            for absent, name in fallback_names(model, passive).items():
                if name in growing | kept:
                    raise ConfigError(f"model {name!r} exists already; choose another name")
                of = job.of_fallback(model, passive, absent)
                after = of.model_copy(update={"main": session.id, "after": begun[-1].id})
                begun.append(StoredSession(secrets.token_hex(8), name, 1, job=_text(after)))
        await asyncio.to_thread(_select, self.context, job, begun)
        for stored in reversed(begun):  # a fallback model without its model ends by itself
            await self.context.session_store.begin(stored)
        return begun

    def _same_job(
        self, session: StoredSession, job: TrainingJob, drawn: Mapping[str, Any]
    ) -> AttemptLoop:
        """The attempts at ``session`` if its job equals ``job``; ``drawn`` may differ."""
        stored = TrainingJob.of_stored(session.job)
        kept = {name: stored.engine_options.get(name) for name in drawn}
        options = {**job.engine_options, **kept}
        if stored != job.model_copy(update={"engine_options": options}):
            raise ConfigError(
                f"model {session.model!r} is already in training by another job; choose "
                "another name"
            )
        attempts = self._driven.get(session.id)
        if attempts is None:
            raise DaemonError(
                f"session {session.id} of model {session.model!r} waits for this party's data; "
                "see: fedmq status"
            )
        return attempts

    # Fallback models follow, one after the other

    async def _turn(self, job: FallbackJob) -> None:
        """Wait until the training before has ended; Refused if the model itself has failed."""
        while await self.context.session_store.is_running(job.after):
            attempts = self._driven.get(job.after)
            if attempts is None:  # it is being read again after a restart
                await asyncio.sleep(_RELOAD_SECONDS)
            else:
                await asyncio.wait([attempts.ended])
        if not self.context.model_store.path(job.fallback_of).exists():
            raise Refused(f"model {job.fallback_of} was not trained")

    async def _with_fallbacks(
        self, session: StoredSession, result: dict[str, Any], on_progress: OnProgress
    ) -> dict[str, Any]:
        """The ``result`` of ``session`` with those of its fallback models, watched to their end."""
        if not _job_of(session).fallback or "model" not in result:
            return result
        store, models = self.context.session_store, self.context.model_store
        main = models.active(session.model)
        found = []
        known = [*(stored for stored, _ in await store.ended(_ENDED)), *await store.running()]
        by_model = {stored.model: stored for stored in known}
        for absent, name in fallback_names(session.model, main.parties[1:]).items():
            stored, sent = by_model.get(name), 0
            while stored is not None and stored.state == "running":
                attempts = self._driven.get(stored.id)
                if attempts is None:
                    await asyncio.sleep(_RELOAD_SECONDS)
                else:
                    opened = {"event": "opened", "session": stored.id, "model": name}
                    await on_progress(opened)
                    with contextlib.suppress(FedmqError):
                        await attempts.followed(on_progress)
                    await asyncio.wait([attempts.ended])
                    sent = attempts.bytes_sent
                stored = await store.find(stored.id)
            found.append(_fallback_result(models, main, sorted(absent), name, stored, sent))
        return {**result, "fallbacks": found}

    # Going on after a crash

    def drives(self, session: str) -> bool:
        return session in self._driven

    async def reload(self, session: StoredSession) -> Resume:
        job, table = _job_of(session), None
        if not isinstance(job, FallbackJob) or not await self.context.session_store.is_running(
            job.after
        ):
            table = await self._table(session, job)
        attempt = attempt_after_restart(session.attempt, time.time() - session.begun)
        return partial(self._drive, replace(session, attempt=attempt), table)

    async def _table(self, session: StoredSession, job: TrainingJob) -> ActiveTable:
        kept = selections(self.context.config.state)
        load = LoadActiveTable(
            self.context.party,
            self.context.config.data,
            job.params,
            job.evaluation,
            salt=job.main if isinstance(job, FallbackJob) else session.id,
            split=job.split,
            nfold=job.nfold,
            aligned=self._aligned(job.alignment),
            selection=None
            if job.select is None
            else await asyncio.to_thread(kept.read, session.model),
            **self._functions(job),
        )
        table: ActiveTable = await self.context.pool.run(load)
        trees = await self.context.session_store.checkpoints(session.id)
        check_same_table(self.context.party, session.id, table, trees)
        return table

    def _functions(self, job: TrainingJob) -> dict[str, Any]:
        """The active party's own functions that ``job`` names, as `LoadActiveTable` takes them."""
        named = self.context.config.functions.named
        return {
            "obj": named("obj", job.obj),
            "custom_metric": named("custom_metric", job.custom_metric),
            "maximize": job.maximize,
        }

    def _drive(
        self,
        session: StoredSession,
        table: ActiveTable | None,
        timeline: Timeline | None = None,
    ) -> AttemptLoop:
        """Open attempts from that of ``session`` on, until it has ended.

        The first attempt reads the table if ``table`` is None.
        """
        store, job = self.context.session_store, _job_of(session)

        async def attempt(number: int, on_change: OnChange) -> RunningSession:
            nonlocal table
            try:
                if isinstance(job, FallbackJob):
                    await self._turn(job)
                if table is None:
                    table = await self._table(session, job)
                progress = await saved_progress(store, self.context.sessions, session.id)
                current = replace(session, attempt=number)
                machine = self._machine(current, job, table, progress)
            except Aborted:  # its owner has ended it meanwhile
                raise
            except FedmqError as error:
                log.warning("session %s cannot go on: %s", session.id, error)
                await store.end(session.id, "failed", UNLOADED, str(error))
                raise
            running = self.context.sessions.open(
                session.id,
                number,
                "training",
                session.model,
                machine,
                on_change=on_change,
                timeline=timeline,
                journal=StoreJournal(
                    store,
                    current,
                    partial(
                        keep_result,
                        self.context.config.state,
                        current,
                        job,
                        table,
                        lambda: machine.margins,
                        lambda: _all_name_trainings(self.context.sealer.releases, machine.peers),
                    ),
                    transcript=self._transcript(session, number),
                ),
            )
            self.context.consent.audit.accuse(
                session.id, number, session.model, running.runner.outcome
            )
            return running

        attempts = AttemptLoop(attempt, session.attempt, everywhere=True)
        self._driven[session.id] = attempts
        attempts.ended.add_done_callback(lambda _: self._driven.pop(session.id, None))
        return self.context.sessions.drive(attempts)

    def _machine(
        self,
        session: StoredSession,
        job: TrainingJob,
        table: ActiveTable,
        progress: SavedProgress = NOTHING_SAVED,
    ) -> ActiveTraining:
        earlier, main = job.refresh or job.continue_from, None
        if isinstance(job, FallbackJob):
            passive = self.context.model_store.active(job.fallback_of).parties[1:]
            main = MainModel(job.fallback_of, job.main, passive)
        return ActiveTraining(
            session.model,
            self.context.party,
            self.context.federation.partners(job.parties),
            table,
            job.params,
            engine_named(job.engine, job.engine_options, "job"),
            self.context.pool.parallelism,
            [tree for tree in progress.trees if isinstance(tree, ActiveTree)],
            paused=progress.paused,
            signing=self._signing(session.id, session.attempt),
            earlier=None if earlier is None else self.context.model_store.active(earlier),
            category_sets=job.category_sets,
            decoys=job.decoys,
            fallbacks=job.fallback,
            fallback_of=main,
            refreshes=job.refresh is not None,
            refreshes_leaves=job.refresh_leaf,
        )

    # The owner's commands

    async def _follow(self, request: Mapping[str, Any], on_progress: OnProgress) -> dict[str, Any]:
        wanted, again = str(request["session"]), bool(request.get("again"))
        session = await self.context.session_store.find(wanted)
        while again and session is not None and session.state == "running":
            # Watched before a restart of this daemon; the session may be about to go on.
            if session.id in self._driven:
                break
            await asyncio.sleep(_RELOAD_SECONDS)
            session = await self.context.session_store.find(wanted)
        attempts = self._driven.get(wanted)
        if self.context.is_active and session is not None and attempts is None:
            if session.state == "finished" and again:
                kept = result_of(session, self._kept(session), 0)
                return await self._with_fallbacks(session, kept, on_progress)
            if session.state == "finished":
                raise DaemonError(f"session {session.id} has finished: model {session.model}")
            if session.state == "failed":
                raise DaemonError(f"session {session.id} has ended: {session.why}")
        if session is None or attempts is None:
            raise DaemonError(
                f"session {wanted} is not a training of this party; see: fedmq status"
            )
        made = await self._watched(session, attempts, on_progress)
        return await self._with_fallbacks(session, made, on_progress)

    async def _watched(
        self, session: StoredSession, attempts: AttemptLoop, on_progress: OnProgress
    ) -> dict[str, Any]:
        made: ActiveShare | CrossValidated = await attempts.followed(on_progress)
        return result_of(session, made, attempts.bytes_sent)

    def _kept(self, session: StoredSession) -> ActiveShare | CrossValidated:
        """The result of a session that has finished."""
        if _job_of(session).nfold is not None:
            return cross_validations(self.context.config.state).read(session.model)
        return self.context.model_store.active(session.model)

    async def _rest(
        self, paused: bool, request: Mapping[str, Any], _: OnProgress
    ) -> dict[str, Any]:
        session = str(request["session"])
        self.context.require_active("pause" if paused else "resume")
        self.context.sessions.live(session)
        await self.context.session_store.pause(session, paused)
        running = self.context.sessions.live(session)  # perhaps a newer attempt
        try:
            running.runner.pause(paused)
        except ProtocolError:
            # Between two attempts: the next one reads the paused flag from the store.
            if not running.runner.interrupted.done():
                raise DaemonError(f"session {session} is not a training that can pause") from None
        return {"session": session, "paused": paused}


# Selected columns


def _by_last_screen(state: Path, job: TrainingJob) -> TrainingJob:
    """The ``job``; if it selects columns anew, it names the screen by which it does."""
    if job.select is None or job.select.screen is not None or job.select.model is not None:
        return job
    names = made_screens(state).names()
    if not names:
        raise ConfigError("select: there is no screen yet; make one with: fedmq screen")
    return job.model_copy(update={"select": job.select.model_copy(update={"screen": names[-1]})})


def _select(context: PartyContext, job: TrainingJob, begun: Sequence[StoredSession]) -> None:
    """Select columns for the sessions that have ``begun``, once and for all their attempts."""
    rule, state = job.select, context.config.state
    if rule is None:
        return
    partners = context.federation.partners(job.parties)
    if rule.model is not None:
        earlier = selections(state).find(rule.model)
        if earlier is None:
            raise ConfigError(
                f"select: {context.party} knows of no columns that were selected for a model "
                f"{rule.model!r}"
            )
        selection = earlier.among(partners)
    else:
        screen = made_screens(state).read(rule.screen or "")
        selection = selection_of(screen, context.party, partners, rule)
    for session in begun:
        selections(state).keep(session.model, selection)


async def _chosen(context: PartyContext, terms: TrainingOpen) -> ColumnSelection | None:
    """Which columns the party of ``context`` is to train with; None: all that it permits.

    Raises:
        Refused: it knows nothing of the screen, or would train with too few.
    """
    asked = terms.selected
    if asked is None:
        return None
    try:
        shown = await asyncio.to_thread(
            shown_screen, context.config.state, asked.screen, asked.session
        )
    except DataError as error:  # it names a file of this party
        log.warning("%s", error)
        shown = None
    numbers = tuple(sorted({*asked.numbers}))
    if shown is None or numbers[-1] > len(shown.numbered):
        raise Refused(
            f"{context.party} knows nothing of these columns of screen {asked.screen!r}; make "
            "it anew with: fedmq screen"
        )
    fewest = min(context.config.policy.smallest_selection, len(shown.numbered))
    if len(numbers) < fewest:
        raise Refused(
            f"{context.party} trains with {fewest} of its columns or more, and "
            f"{len(numbers)} are selected (smallest_selection of its [policy])"
        )
    own = OwnChoice(screen=shown.name, numbered=shown.numbered, numbers=numbers)
    return ColumnSelection(screen=shown.name, made=shown.made, own=own)


def _text(job: TrainingJob) -> str:
    return json.dumps(job.model_dump(mode="json"))


def _job_of(session: StoredSession) -> TrainingJob:
    """The owner's request."""
    return TrainingJob.of_stored(session.job)


def result_of(
    session: StoredSession, share: ActiveShare | CrossValidated, sent: int
) -> dict[str, Any]:
    """The result of ``session`` for its owner; this party has sent ``sent`` bytes."""
    job = TrainingJob.of_stored(session.job)
    engine = engine_named(job.engine, job.engine_options, "job")
    seconds = round(max(0.0, time.time() - session.begun), 3)
    selected: dict[str, Any] = {}
    if job.select is not None:
        of_model = job.select.model
        selected = {"selected_as": of_model} if of_model else {"selected_by": job.select.screen}
    if isinstance(share, CrossValidated):
        asked = max(0, share.rounds * share.params.trees_per_round - job.params.trees_alone)
        return {
            "cross_validation": share.name,
            "folds": share.folds,
            "rounds": share.rounds,
            "best_iteration": share.best_iteration,
            "figures": {name: list(values) for name, values in share.figures.items()},
            "seconds": seconds,
            "bytes_sent": sent,
            "epsilon_spent": engine.epsilon_spent(share.folds * asked),
            **selected,
        }
    broadcast = max(0, len(share.trees) - share.earlier_trees - job.params.trees_alone)
    if share.refreshes:
        broadcast = 0  # no gradient left the party
    return {
        "model": session.model,
        "trees": len(share.trees),
        "best_iteration": share.best_iteration,
        "metrics": share.metrics,
        "seconds": seconds,
        "bytes_sent": sent,
        "epsilon_spent": engine.epsilon_spent(broadcast),
        "departures": list(share.departures),
        **selected,
    }


def _fallback_result(
    store: ModelStore,
    main: ActiveShare,
    without: Sequence[str],
    name: str,
    stored: StoredSession | None,
    sent: int,
) -> dict[str, Any]:
    """What came of fallback model ``name`` of ``main`` in session ``stored``."""
    if not store.path(name).exists():
        why = "" if stored is None else stored.why
        return {"model": name, "without": without, "failed": why or "it was not trained"}
    share = store.active(name)
    worth = Worth.of(main, share).model_dump(mode="json") if main.metrics else None
    made = {"model": name} if stored is None else result_of(stored, share, sent)
    return {**made, "without": without, "worth": worth}


def _all_name_trainings(releases: Mapping[str, str], peers: Sequence[str]) -> bool:
    """Whether the shares of all ``peers`` say of which training they are.

    Those of the earlier versions that say nothing of their release do not.
    """
    return all(releases.get(peer) != "" for peer in peers)


async def check_fallback(
    context: PartyContext,
    header: Header,
    terms: TrainingOpen,
    engine: Engine,
    own: OwnChoice | None = None,
    *,
    anew: bool,
) -> None:
    """Raise Refused unless the consent to a model covers ``terms``, its fallback model's.

    That is so once, after the training of the model, on the same terms. ``own``: the columns that
    take part; None: all.
    """
    opening = opening_of_main(terms)
    assert terms.fallback_of is not None
    session = terms.fallback_of.session
    main = await context.session_store.find(session)
    if main is None or main.state != "finished" or main.terms != terms_digest(opening):
        raise Refused(
            f"{context.party} has trained no model {opening.model} on these terms, of which "
            f"{terms.model} would be a fallback model"
        )
    requested = RequestedTerms.of_training(header.sender, opening, engine, own)
    if not await context.owner_consent.has_agreed(session, requested):
        raise Refused(f"the owner of {context.party} did not agree to these terms")
    running = await context.session_store.running()
    begun = any(other.model == terms.model and other.id != header.session for other in running)
    if anew and (begun or context.model_store.path(terms.model).exists()):
        raise Refused(f"{context.party} has trained {terms.model} already")


def _name(wanted: str | None, taken: Set[str], kind: str) -> str:
    if wanted in taken:
        raise ConfigError(f"model {wanted!r} exists already; choose another name")
    now = f"{kind}-{datetime.now():%Y%m%d-%H%M%S}"
    later = (f"{now}-{number}" for number in itertools.count(2))
    return wanted or next(name for name in itertools.chain([now], later) if name not in taken)
