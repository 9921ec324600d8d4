"""Trainings: asked for by the label holder's owner, joined by the others."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from fedmq.boosting.model import ActiveShare
from fedmq.errors import ConfigError, Refused
from fedmq.messages.body import Body
from fedmq.messages.envelope import Envelope
from fedmq.messages.training import TrainingOpen
from fedmq.party.alignment_store import AlignmentStore
from fedmq.party.configuration.job import TrainingJob
from fedmq.party.control import Command, Say
from fedmq.party.desks.desk import Desk, Opening, followed
from fedmq.party.sessions import RunningSession
from fedmq.party.tables import Aligned, LoadActiveTable, LoadPassiveTable
from fedmq.party.trace import Trace
from fedmq.privacy.registry import ENGINES, engine_named
from fedmq.protocol.training_active import ActiveTraining
from fedmq.protocol.training_passive import PassiveTraining

__all__ = ["TrainingDesk"]


class TrainingDesk(Desk):
    """Trains models; keeps this party's share of each."""

    @property
    def openings(self) -> Mapping[type[Body], Opening]:
        return {TrainingOpen: self._join}

    @property
    def commands(self) -> Mapping[str, Command]:
        return {"train": self._train}

    def _join(self, envelope: Envelope) -> RunningSession:
        header, terms = envelope.header, envelope.body
        assert isinstance(terms, TrainingOpen)
        config, consent = self.at.config, self.at.consent
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
            smallest_node=config.policy.smallest_node,
        )
        running = self.at.sessions.open(
            header.session, header.attempt, "training", terms.model, machine, self.at.store.save
        )
        consent.follow(header, running.runner.outcome, running.traffic)
        return running

    def _aligned(self, name: str | None) -> Aligned | None:
        return None if name is None else Aligned(AlignmentStore(self.at.config.state), name)

    async def _train(self, request: Mapping[str, Any], say: Say) -> dict[str, Any]:
        self.at.only_active("train")
        job = TrainingJob.model_validate(request["job"])
        model = job.model or f"model-{datetime.now():%Y%m%d-%H%M%S}"
        if model in self.at.store.ids():
            raise ConfigError(f"model {model!r} exists already; choose another name")
        if ENGINES[job.engine].known_leak:  # some leak towards either side
            refusal = self.at.config.policy.refusal(self.at.party, job.engine)
            if refusal is not None:
                raise Refused(refusal)
        session = secrets.token_hex(8)
        load = LoadActiveTable(
            self.at.party,
            self.at.config.data,
            job.params,
            job.evaluation,
            salt=session,
            aligned=self._aligned(job.alignment),
        )
        engine = engine_named(job.engine, job.engine_options, "job")
        machine = ActiveTraining(
            model,
            self.at.party,
            self.at.federation.passive,
            await self.at.pool.run(load),
            job.params,
            engine,
            self.at.pool.parallelism,
        )
        trace = Trace() if request.get("trace") else None
        begun = asyncio.get_running_loop().time()
        changes: asyncio.Queue[RunningSession] = asyncio.Queue()
        running = self.at.sessions.open(
            session, 1, "training", model, machine, self.at.store.save, changes.put_nowait, trace
        )
        await say({"event": "opened", "session": session, "model": model})
        share: ActiveShare = await followed(running, changes, say)
        broadcast = max(0, len(share.trees) - job.params.active_only_trees)
        return {
            "model": model,
            "trees": len(share.trees),
            "best_iteration": share.best_iteration,
            "metrics": {name: values[-1] for name, values in share.history.items()},
            "seconds": round(asyncio.get_running_loop().time() - begun, 3),
            "bytes_sent": running.traffic.total.bytes,
            **({"trace": trace.document()} if trace else {}),
            "epsilon_spent": engine.epsilon_spent(broadcast),
        }
