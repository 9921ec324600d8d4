"""Trainings: asked for by the label holder's owner, joined by the others; they outlive crashes."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import secrets
import time
from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from datetime import datetime
from random import Random
from typing import Any

from fedmq.boosting.model.share import ActiveShare
from fedmq.errors import (
    Aborted,
    ConfigError,
    DaemonError,
    DataError,
    FedmqError,
    ProtocolError,
    Refused,
    SourceAway,
)
from fedmq.messages.body import Body
from fedmq.messages.envelope import Envelope
from fedmq.messages.training import TrainingOpen
from fedmq.party.configuration.job import TrainingJob
from fedmq.party.data.loading import Aligned, LoadActiveTable, LoadPassiveTable
from fedmq.party.services.service import Command, Opening, PartyContext, Service
from fedmq.party.sessions.attempts import AttemptLoop, OnChange
from fedmq.party.sessions.checkpointing import StoreCheckpointer
from fedmq.party.sessions.progress import OnProgress
from fedmq.party.sessions.running import RunningSession
from fedmq.party.store.alignments import AlignmentStore
from fedmq.party.store.sessions import StoredSession
from fedmq.party.telemetry.timeline import Timeline
from fedmq.privacy.registry import ENGINES, engine_named
from fedmq.protocol.checkpoint import ActiveTree, Checkpoint, PassiveTree
from fedmq.protocol.machine import UNLOADED
from fedmq.protocol.training.active import ActiveTraining
from fedmq.protocol.training.passive import PassiveTraining
from fedmq.protocol.training.tables import ActiveTable
from fedmq.transport.backoff import Backoff

__all__ = ["TrainingService"]

log = logging.getLogger(__name__)

_UNTIL_IN_REACH = Backoff(first=1.0, limit=60.0)


class TrainingService(Service):
    """Trains models; keeps this party's share of each."""

    def __init__(self, context: PartyContext) -> None:
        super().__init__(context)
        self._courses: dict[str, AttemptLoop] = {}
        self._beginning: set[str] = set()
        """Models whose table is being read, before their session is in the store."""
        self._returning: set[str] = set()
        """Sessions whose table is read anew, before a new attempt."""

    @property
    def opened_sessions(self) -> Mapping[type[Body], Opening]:
        return {TrainingOpen: self._join}

    @property
    def commands(self) -> Mapping[str, Command]:
        return {
            "train": self._train,
            "follow": self._follow,
            "pause": self._pause,
            "resume": self._resume,
        }

    # A feature holder joins

    async def _join(self, envelope: Envelope) -> RunningSession:
        header, terms = envelope.header, envelope.body
        assert isinstance(terms, TrainingOpen)
        config, consent = self.at.config, self.at.consent
        saved = await self.at.kept.steps(header.session)
        machine = PassiveTraining(
            self.at.party,
            header.sender,
            LoadPassiveTable(
                self.at.party,
                config.data,
                salt=header.session,
                aligned=self._aligned(terms.alignment_name or None),
                permitted=config.policy.features,
            ),
            lambda _: consent.training(header, terms),
            secrets.randbits(128),
            self.at.pool.parallelism,
            [step for step in saved if isinstance(step, PassiveTree)],
            smallest_node=config.policy.smallest_node,
            returning=header.attempt > 1,
        )
        session = StoredSession(header.session, terms.model, header.attempt)
        running = self.at.sessions.open(
            session.id,
            session.attempt,
            "training",
            session.model,
            machine,
            checkpointer=StoreCheckpointer(self.at.kept, session, self.at.store.save),
        )
        consent.follow(header, running.runner.outcome, running.traffic)
        return running

    def _aligned(self, name: str | None) -> Aligned | None:
        return None if name is None else Aligned(AlignmentStore(self.at.config.state), name)

    # The label holder drives

    async def _train(self, request: Mapping[str, Any], say: OnProgress) -> dict[str, Any]:
        self.at.only_active("train")
        job = TrainingJob.model_validate(request["job"])
        if ENGINES[job.engine].known_leak:  # some leak towards either side
            refusal = self.at.config.policy.refusal(self.at.party, job.engine)
            if refusal is not None:
                raise Refused(refusal)
        drawn = engine_named(job.engine, job.engine_options, "job").drawn()
        job = job.model_copy(update={"engine_options": {**job.engine_options, **drawn}})
        growing = {session.model for session in await self.at.kept.running()}
        model = self._name(job.model, growing | self._beginning | set(self.at.store.ids()))
        session = StoredSession(
            secrets.token_hex(8), model, 1, job=json.dumps(job.model_dump(mode="json"))
        )
        self._beginning.add(model)
        try:
            table = await self._table(session, job)
            self._machine(session, job, table)  # raises where the job and the table do not fit
            await self.at.kept.begin(session)
        finally:
            self._beginning.discard(model)
        trace = Timeline() if request.get("trace") else None
        course = self._course(session, job, table, trace)
        # Only now: whoever asked may be gone.
        await say({"event": "opened", "session": session.id, "model": model})
        result = await self._watched(session, course, say)
        return {**result, **({"trace": trace.document()} if trace else {})}

    def _name(self, wanted: str | None, taken: Set[str]) -> str:
        if wanted in taken:
            raise ConfigError(f"model {wanted!r} exists already; choose another name")
        now = f"model-{datetime.now():%Y%m%d-%H%M%S}"
        later = (f"{now}-{number}" for number in itertools.count(2))
        return wanted or next(each for each in itertools.chain([now], later) if each not in taken)

    async def take_up(self, session: StoredSession) -> None:
        """Go on with a session from the store, in a new attempt."""
        if session.id in self._courses or session.id in self._returning:
            return
        job = TrainingJob.model_validate(json.loads(session.job))
        again = replace(session, attempt=session.attempt + 1)
        self._returning.add(session.id)
        try:
            table = await self._table_at_last(session, job)
            if table is not None and await self._goes_on(session):
                self._course(again, job, table)
        except Refused as error:
            await self.at.kept.end(session.id, "failed", str(error))
            raise
        except DataError:
            await self.at.kept.end(session.id, "failed", UNLOADED)
            raise
        finally:
            self._returning.discard(session.id)

    async def _goes_on(self, session: StoredSession) -> bool:
        """Whether nobody has cancelled it meanwhile."""
        stored = await self.at.kept.find(session.id)
        return stored is not None and stored.state != "failed"

    async def _table_at_last(self, session: StoredSession, job: TrainingJob) -> ActiveTable | None:
        """The table, in reach at last after a restart; None if somebody cancelled before."""
        for delay in _UNTIL_IN_REACH.delays(Random()):
            try:
                return await self._table(session, job)
            except SourceAway as error:
                log.warning("session %s waits for this party's data: %s", session.id, error)
            await asyncio.sleep(delay)
            if not await self._goes_on(session):
                break
        return None

    async def _table(self, session: StoredSession, job: TrainingJob) -> ActiveTable:
        load = LoadActiveTable(
            self.at.party,
            self.at.config.data,
            job.params,
            job.evaluation,
            salt=session.id,
            aligned=self._aligned(job.alignment),
        )
        table: ActiveTable = await self.at.pool.run(load)
        for step in await self.at.kept.steps(session.id):
            assert isinstance(step, ActiveTree)
            grown_on = step.records.feature_names
            rows = len(table.label) if step.margin is None else len(step.margin)
            same = grown_on == table.features and rows == len(table.label)
            if not same or step.table not in ("", table.digest):
                what = "values" if same else "rows or columns"
                raise Refused(
                    f"the table of {self.at.party} has other {what} than when session {session.id} "
                    "began, so the session has ended; train anew with: fedmq train"
                )
        return table

    def _course(
        self,
        session: StoredSession,
        job: TrainingJob,
        table: ActiveTable,
        trace: Timeline | None = None,
    ) -> AttemptLoop:
        async def attempt(number: int, on_change: OnChange) -> RunningSession:
            saved = await self.at.kept.steps(session.id)
            # Last: from what its owner wants now to its beginning nothing comes between.
            kept = await self.at.kept.find(session.id)
            self._check_not_cancelled(session.id, kept)
            try:
                machine = self._machine(session, job, table, saved, kept)
            except FedmqError as error:
                log.warning("session %s cannot go on: %s", session.id, error)
                await self.at.kept.end(session.id, "failed", UNLOADED)
                raise
            current = replace(session, attempt=number)
            return self.at.sessions.open(
                session.id,
                number,
                "training",
                session.model,
                machine,
                on_change=on_change,
                timeline=trace,
                checkpointer=StoreCheckpointer(self.at.kept, current, self.at.store.save),
            )

        course = self._courses[session.id] = AttemptLoop(attempt, session.attempt, everywhere=True)
        self.at.sessions.drive(course)
        course.ended.add_done_callback(lambda _: self._courses.pop(session.id, None))
        return course

    def _machine(
        self,
        session: StoredSession,
        job: TrainingJob,
        table: ActiveTable,
        saved: Sequence[Checkpoint] = (),
        kept: StoredSession | None = None,
    ) -> ActiveTraining:
        return ActiveTraining(
            session.model,
            self.at.party,
            self.at.federation.passive,
            table,
            job.params,
            engine_named(job.engine, job.engine_options, "job"),
            self.at.pool.parallelism,
            [step for step in saved if isinstance(step, ActiveTree)],
            paused=kept is not None and kept.paused,
        )

    def _check_not_cancelled(self, session: str, kept: StoredSession | None) -> None:
        """Raise Aborted where the owner has ended it since the last attempt."""
        if kept is not None and kept.state == "failed":
            raise Aborted(kept.reason)
        last = self.at.sessions.running.get(session)
        outcome = None if last is None else last.runner.outcome
        if outcome is None or not outcome.done() or outcome.cancelled():
            return
        if outcome.exception() is not None:
            raise Aborted(str(outcome.exception()))

    # What its owner may ask

    async def _follow(self, request: Mapping[str, Any], say: OnProgress) -> dict[str, Any]:
        session = await self.at.kept.find(str(request["session"]))
        course = self._courses.get(str(request["session"]))
        if self.at.is_active and session is not None and course is None:
            if session.state == "finished":
                raise DaemonError(f"session {session.id} has finished: model {session.model}")
            if session.state == "failed":
                raise DaemonError(f"session {session.id} has ended: {session.reason}")
        if session is None or course is None:
            raise DaemonError(
                f"session {request['session']} is no training that this party drives; see: "
                "fedmq status"
            )
        return await self._watched(session, course, say)

    async def _watched(
        self, session: StoredSession, course: AttemptLoop, say: OnProgress
    ) -> dict[str, Any]:
        share: ActiveShare = await course.followed(say)
        job = TrainingJob.model_validate(json.loads(session.job))
        engine = engine_named(job.engine, job.engine_options, "job")
        broadcast = max(0, len(share.trees) - job.params.active_only_trees)
        return {
            "model": session.model,
            "trees": len(share.trees),
            "best_iteration": share.best_iteration,
            "metrics": {name: values[-1] for name, values in share.history.items()},
            "seconds": round(max(0.0, time.time() - session.begun), 3),
            "bytes_sent": course.bytes_sent,
            "epsilon_spent": engine.epsilon_spent(broadcast),
        }

    async def _pause(self, request: Mapping[str, Any], _: OnProgress) -> dict[str, Any]:
        return await self._rest(str(request["session"]), True)

    async def _resume(self, request: Mapping[str, Any], _: OnProgress) -> dict[str, Any]:
        return await self._rest(str(request["session"]), False)

    async def _rest(self, session: str, paused: bool) -> dict[str, Any]:
        self.at.only_active("pause" if paused else "resume")
        self.at.sessions.live(session)
        await self.at.kept.pause(session, paused)
        running = self.at.sessions.live(session)  # perhaps a newer attempt
        try:
            running.runner.pause(paused)
        except ProtocolError:
            # Between two attempts: the next one begins as the store says.
            if not running.runner.interrupted.done():
                raise DaemonError(f"session {session} is no training that can rest") from None
        return {"session": session, "paused": paused}
