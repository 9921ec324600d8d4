"""Scores that somebody waits for: which models are served here, and who asks and answers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedmq.boosting.chains import Chains
from fedmq.boosting.served_forest import ServedForest
from fedmq.errors import ConfigError, DaemonError, DataError, FedmqError, Refused
from fedmq.messages.body import Body
from fedmq.messages.envelope import Envelope, Header
from fedmq.messages.online import ModelDeploy, OnlineHop, OnlineRows
from fedmq.party.configuration.data import DataSection
from fedmq.party.control import Command, Say
from fedmq.party.desks.desk import Desk, Opening, Premises, followed
from fedmq.party.id_column import comparable
from fedmq.party.model_store import ModelStore
from fedmq.party.sealer import Sealer
from fedmq.party.serving.answering import Answering
from fedmq.party.serving.audit import OnlineAudit
from fedmq.party.serving.deployments import Deployment, Deployments
from fedmq.party.serving.post import OnlinePost
from fedmq.party.serving.request import Counter
from fedmq.party.serving.request_queue import RequestQueue
from fedmq.party.serving.rows import LoadServedRows, source_stamp
from fedmq.party.serving.scorer import Scorer, ServedModel
from fedmq.party.sessions import RunningSession
from fedmq.protocol.deployment import Deploying, Hosting
from fedmq.protocol.online_passive import AnsweringShare
from fedmq.protocol.online_terms import Mode
from fedmq.transport.link import Link

__all__ = ["PRODUCTION", "ServingDesk"]

log = logging.getLogger(__name__)

_GRACE = 120.0  # seconds: longer than any deadline

PRODUCTION = "production"
"""The name under which a model is activated unless another one is given."""


class ServingDesk(Desk):
    """At the label holder a :class:`Scorer`, at the others an :class:`Answering`."""

    def __init__(self, premises: Premises, link: Link, sealer: Sealer) -> None:
        super().__init__(premises)
        section = premises.config.online
        self._post = OnlinePost(premises.federation.name, link, sealer.seal)
        self.scorer = Scorer(premises.party, section, self._post.say, self._on_not_served)
        self.counter = Counter(
            self.scorer,
            premises.party,
            section.degrade != "fail",
            lambda ids: comparable(ids, self._data),
        )
        asked = section.requests if premises.is_active else None
        self._requests = RequestQueue(asked, self.counter) if asked is not None else None
        self._audit = (
            OnlineAudit(premises.config.state) if section.audit and not premises.is_active else None
        )
        self.answering = Answering(section, self._audit)
        self._deployments = Deployments.read(premises.config.state)
        self._switching = asyncio.Lock()
        self._telling: dict[str, asyncio.Task[None]] = {}
        self._refreshing: asyncio.Task[None] | None = None

    @property
    def openings(self) -> Mapping[type[Body], Opening]:
        return {ModelDeploy: self._host}

    @property
    def commands(self) -> Mapping[str, Command]:
        return {
            "activate": self._activate,
            "rollback": self._rollback,
            "verify": self._verify,
            "serving": self._status,
        }

    async def start(self) -> None:
        """Load what was served before; what cannot be loaded is logged and left out."""
        for deployment in self._deployments.kept():
            await self._load(deployment)
        for name, deployment in self._deployments.names().items():
            if deployment.model in self.scorer.models:
                self.scorer.models[name] = self.scorer.models[deployment.model]
        self._refreshing = asyncio.create_task(self._refresh())
        if self._requests is not None:
            self._requests.start()

    async def close(self) -> None:
        """Finish what is under way, within two seconds."""
        if self._requests is not None:
            await self._requests.close()
        await self.scorer.close()
        for task in (self._refreshing, *self._telling.values()):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        if self._audit is not None:
            await self._audit.close()

    def on_online(self, envelope: Envelope) -> None:
        """Take what came on the online lane: at the label holder answers, elsewhere questions."""
        header, body = envelope.header, envelope.body
        if self.at.is_active:
            self.scorer.receive(envelope)
        elif header.sender == self.at.federation.active:
            said = self.answering.answer(header, body)
            if said is not None:
                seconds = body.budget if isinstance(body, OnlineHop | OnlineRows) else 1.0
                self._post.say(header.sender, said, header.session, seconds)

    # The label holder's side.

    async def _activate(self, request: Mapping[str, Any], say: Say) -> dict[str, Any]:
        self.at.only_active("activate a model")
        known = self.at.store.ids()
        if not known:
            raise DataError("there is no model yet; train one with: fedmq train JOB.toml")
        model = request.get("model") or known[-1]
        mode: Mode = request.get("mode") or self.at.config.online.mode
        return await self._switch(request.get("name") or PRODUCTION, model, mode, say)

    async def _rollback(self, request: Mapping[str, Any], say: Say) -> dict[str, Any]:
        self.at.only_active("go back to an earlier model")
        name = request.get("name") or PRODUCTION
        before = self._deployments.before(name)
        return await self._switch(name, before.model, before.mode, say)

    async def _switch(self, name: str, model: str, mode: Mode, say: Say) -> dict[str, Any]:
        if name in self.at.store.ids():
            raise ConfigError(f"{name} is the id of a model; choose another name")
        async with self._switching:
            served = await self._served(model, mode)
            await self._agreed(model, Deploying(name, served.forest, mode), say)
            before = self._deployments.names().get(name)
            self._deployments.put(name, Deployment(model=model, mode=mode))
            # One assignment: a request sees the former model or the new one, and keeps it.
            self.scorer.models[name] = self.scorer.models[model] = served
            log.info("%s is model %s from now on", name, model)
            return {"name": name, "model": model, "mode": mode, "before": before and before.model}

    async def _verify(self, request: Mapping[str, Any], say: Say) -> dict[str, Any]:
        """Whether every party could serve the model: all that activation does but the switch."""
        self.at.only_active("verify a model at all parties")
        model, mode = str(request["model"]), self.at.config.online.mode
        forest = (await self._served(model, mode)).forest
        await self._agreed(model, Deploying(PRODUCTION, forest, mode, only_asks=True), say)
        records = {party: len(forest.chains(owner)) for owner, party in forest.asked.items()}
        return {"model": model, "records": records}

    async def _agreed(self, model: str, machine: Deploying, say: Say) -> None:
        changes: asyncio.Queue[RunningSession] = asyncio.Queue()
        running = self.at.sessions.open(
            secrets.token_hex(8), 1, "inference", model, machine, on_change=changes.put_nowait
        )
        await followed(running, changes, say)

    async def _served(self, model: str, mode: Mode) -> ServedModel:
        share = await asyncio.to_thread(self.at.store.active, model)
        forest = await asyncio.to_thread(ServedForest.of, share)
        load = LoadServedRows(self.at.party, self._data, share.lookup_table.feature_names, model)
        return ServedModel(forest, await self.at.pool.run(load), mode)

    def _on_not_served(self, peer: str, model: str) -> None:
        """A party does not serve what it once agreed to: tell it anew."""
        named = [name for name, each in self._deployments.names().items() if each.model == model]
        if named and model not in self._telling:
            log.warning("%s does not serve %s any more; it is told again", peer, model)
            self._telling[model] = asyncio.create_task(self._tell_again(named[0], model))

    async def _tell_again(self, name: str, model: str) -> None:
        served = self.scorer.models[model]
        machine = Deploying(name, served.forest, served.mode)
        try:
            async with self._switching:
                running = self.at.sessions.open(
                    secrets.token_hex(8), 1, "inference", model, machine
                )
                running.runner.start()
                await running.runner.outcome
        except FedmqError as error:
            log.warning("%s cannot be served: %s", model, error)
            await asyncio.sleep(1)
        finally:
            self._telling.pop(model, None)

    # A feature holder's side.

    async def _host(self, envelope: Envelope) -> RunningSession:
        header, terms = envelope.header, envelope.body
        assert isinstance(terms, ModelDeploy)
        machine = Hosting(header.sender, self._loading(terms), self._refusal(header, terms))

        def keep(share: AnsweringShare | None) -> None:
            if share is None:
                return
            chains = share.chains
            deployment = Deployment(
                model=terms.model,
                mode=terms.mode,
                left=tuple(chains.left.tolist()),
                right=tuple(chains.right.tolist()),
            )
            self._deployments.put(terms.alias, deployment)
            self.answering.shares[terms.model] = share
            # Rows that are under way may still ask for what no name stands for any more.
            asyncio.get_running_loop().call_later(_GRACE, self._forget)

        return self.at.sessions.open(
            header.session, header.attempt, "inference", terms.model, machine, on_result=keep
        )

    def _forget(self) -> None:
        kept = {each.model for each in self._deployments.kept()}
        for model in set(self.answering.shares) - kept:
            del self.answering.shares[model]

    def _refusal(self, header: Header, terms: ModelDeploy) -> str:
        try:
            self.at.consent.serving(header, terms.model, terms.mode)
        except Refused as error:
            return str(error)
        if not self.at.store.path(terms.model).exists():
            return f"{self.at.party} has no share of model {terms.model}"
        if terms.mode not in self.at.config.online.modes:
            return f"{self.at.party} does not answer in mode {terms.mode}"
        return ""

    def _loading(self, terms: ModelDeploy) -> _LoadAnsweringShare:
        left, right = terms.left.numpy(), terms.right.numpy()
        chains = tuple(left.tolist()), tuple(right.tolist())
        return _LoadAnsweringShare(self.at.party, self._data, self.at.store, terms.model, *chains)

    # Both.

    @property
    def _data(self) -> DataSection:
        return self.at.config.serving or self.at.config.data

    async def _load(self, deployment: Deployment) -> None:
        try:
            if self.at.is_active:
                served = await self._served(deployment.model, deployment.mode)
                for name, each in list(self.scorer.models.items()):
                    if each.id == deployment.model:
                        self.scorer.models[name] = served
                self.scorer.models[deployment.model] = served
            else:
                load = _LoadAnsweringShare(
                    self.at.party,
                    self._data,
                    self.at.store,
                    deployment.model,
                    deployment.left,
                    deployment.right,
                )
                self.answering.shares[deployment.model] = await self.at.pool.run(load)
        except FedmqError as error:
            log.error("model %s is not served: %s", deployment.model, error)

    async def _refresh(self) -> None:
        """Read the rows again every ``max_age`` seconds if their file has changed, or is none."""
        seen = source_stamp(self._data)
        while True:
            await asyncio.sleep(self.at.config.online.max_age)
            now = await asyncio.to_thread(source_stamp, self._data)
            if self._data.path is None or (now is not None and now != seen):
                seen = now
                for deployment in self._deployments.kept():
                    await self._load(deployment)

    async def _status(self, _: Mapping[str, Any], __: Say) -> dict[str, Any]:
        if self.at.is_active:
            return {"party": self.at.party, **self.scorer.status()}
        return {
            "party": self.at.party,
            "models": sorted(self.answering.shares),
            "questions": self.answering.questions,
            "turned_away": self.answering.guard.turned_away,
        }


@dataclass(frozen=True, slots=True, eq=False)
class _LoadAnsweringShare:
    party: str
    data: DataSection
    store: ModelStore
    model: str
    left: tuple[int, ...]
    right: tuple[int, ...]

    def run(self) -> AnsweringShare:
        share = self.store.passive(self.model)
        try:
            chains = Chains.of(self.left, self.right)
        except ValueError as error:
            raise DaemonError(f"model {self.model}: {error}") from None
        if len(chains) > len(share.lookup_table):
            raise DaemonError(
                f"model {self.model} has {len(share.lookup_table)} records here, "
                f"not {len(chains)}; the parties hold shares of different models"
            )
        features = share.lookup_table.feature_names
        rows = LoadServedRows(self.party, self.data, features, self.model).run()
        return AnsweringShare(share, chains, rows.values, rows.row_of)
