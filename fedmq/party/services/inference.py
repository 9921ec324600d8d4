"""Batch predictions: asked for by the label holder's owner, answered by the others."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedmq.errors import DataError
from fedmq.messages.body import Body
from fedmq.messages.envelope import Envelope
from fedmq.messages.inference import InferenceOpen
from fedmq.party.configuration.data import DataSection
from fedmq.party.data.id_column import check_lengths, comparable
from fedmq.party.data.loading import LoadActiveRows, LoadPassiveRows
from fedmq.party.services.service import Command, Opening, Service
from fedmq.party.sessions.attempts import AttemptLoop, OnChange
from fedmq.party.sessions.progress import OnProgress
from fedmq.party.sessions.running import RunningSession
from fedmq.protocol.inference.active import ActiveInference
from fedmq.protocol.inference.computations import Scores
from fedmq.protocol.inference.passive import PassiveInference

__all__ = ["InferenceService"]


class InferenceService(Service):
    """Scores people with finished models."""

    @property
    def opened_sessions(self) -> Mapping[type[Body], Opening]:
        return {InferenceOpen: self._join}

    @property
    def commands(self) -> Mapping[str, Command]:
        return {"predict": self._predict, "models": self._models}

    @property
    def _serving(self) -> DataSection:
        return self.at.config.serving or self.at.config.data

    async def _join(self, envelope: Envelope) -> RunningSession:
        header, terms = envelope.header, envelope.body
        assert isinstance(terms, InferenceOpen)
        load = LoadPassiveRows(self.at.party, self._serving, self.at.store, terms.model)
        consent = self.at.consent
        machine = PassiveInference(
            header.sender, load, lambda asked: consent.inference(header, asked)
        )
        running = self.at.sessions.open(
            header.session, header.attempt, "inference", terms.model, machine
        )
        consent.follow(header, running.runner.outcome, running.traffic)
        return running

    async def _predict(self, request: Mapping[str, Any], say: OnProgress) -> dict[str, Any]:
        self.at.only_active("predict")
        known = self.at.store.ids()
        if not known:
            raise DataError("there is no model yet; train one with: fedmq train JOB.toml")
        model = request.get("model") or known[-1]
        share = self.at.store.active(model)
        ids = tuple(comparable(request["ids"], self._serving))
        check_lengths(ids, lambda place: f"ids, row {place + 1}")
        values = await self.at.pool.run(LoadActiveRows(self.at.party, self._serving, share, ids))
        session = secrets.token_hex(8)

        async def attempt(number: int, on_change: OnChange) -> RunningSession:
            machine = ActiveInference(share, values, ids)
            return self.at.sessions.open(
                session, number, "inference", model, machine, on_change=on_change
            )

        scores: Scores = await self.at.sessions.drive(AttemptLoop(attempt)).followed(say)
        chosen = scores.margins if request.get("output_margin") else scores.predictions
        return {"model": model, "scores": chosen.astype(np.float64).tolist()}

    async def _models(self, _: Mapping[str, Any], __: OnProgress) -> list[dict[str, Any]]:
        return [self._described(model) for model in self.at.store.ids()]

    def _described(self, model: str) -> dict[str, Any]:
        if not self.at.is_active:
            return {"model": model, "records": len(self.at.store.passive(model).lookup_table)}
        share = self.at.store.active(model)
        return {
            "model": model,
            "objective": share.params.objective,
            "trees": len(share.used_trees),
            "parties": list(share.parties),
            "metrics": {name: values[-1] for name, values in share.history.items()},
        }
