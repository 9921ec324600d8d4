"""Scores that somebody waits for: which models are served here, and who asks and answers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import secrets
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from fedmq.boosting.model.served_forest import ServedForest
from fedmq.errors import ConfigError, DaemonError, DataError, FedmqError, Refused
from fedmq.messages.body import NAME_OF_MODEL, Body
from fedmq.messages.envelope import Envelope, Header
from fedmq.messages.online import ModelDeploy, OnlineHop, OnlineRows
from fedmq.party.consent.question_log import QuestionLog
from fedmq.party.data.id_column import comparable
from fedmq.party.identity.sealer import Sealer
from fedmq.party.online.answering.answering import Answering
from fedmq.party.online.answering.hosted_share import LoadedShare, LoadShare
from fedmq.party.online.rows.source import ServingSource
from fedmq.party.online.scoring.prediction_service import PredictionService
from fedmq.party.online.scoring.request_queue import RequestQueue
from fedmq.party.online.scoring.scorer import Scorer
from fedmq.party.online.scoring.sender import OnlineSender
from fedmq.party.online.scoring.served_model import ServedModel
from fedmq.party.services.service import Command, Opening, PartyContext, Service, followed
from fedmq.party.sessions.checkpointing import HostingCheckpointer
from fedmq.party.sessions.progress import OnProgress
from fedmq.party.sessions.running import RunningSession
from fedmq.party.store.deployments import Deployment, Deployments
from fedmq.party.store.disk import until_taken
from fedmq.protocol.deployment.active import ActiveDeployment
from fedmq.protocol.deployment.passive import PassiveDeployment
from fedmq.protocol.online.options import Mode
from fedmq.transport.background_tasks import end
from fedmq.transport.link import Link

if TYPE_CHECKING:
    from fedmq.party.telemetry.serving_spans import OnlineSpans

__all__ = ["PRODUCTION", "DeploymentService"]

log = logging.getLogger(__name__)

_GRACE = 120.0  # seconds: longer than any deadline

_SOON = 2.0  # seconds until what could not be loaded is tried again

PRODUCTION = "production"
"""The name under which a model is activated unless another one is given."""


class DeploymentService(Service):
    """At the label holder a :class:`Scorer`, at the others an :class:`Answering`."""

    def __init__(
        self, context: PartyContext, link: Link, sealer: Sealer, spans: OnlineSpans | None = None
    ) -> None:
        super().__init__(context)
        section = context.config.online
        data = context.config.serving or context.config.data
        self.source = ServingSource(context.party, data, section)
        self._post = OnlineSender(context.federation.name, link, sealer.seal)
        self._spans = spans
        self.scorer = Scorer(
            context.party,
            section,
            self._post.say,
            self._on_not_served,
            self._spans,
            link.priority_gate,
        )
        self._priority_gate = link.priority_gate
        self.predictions = PredictionService(
            self.scorer,
            context.party,
            section.degrade != "fail",
            lambda ids: comparable(ids, data),
        )
        asked = section.requests if context.is_active else None
        self._requests = RequestQueue(asked, self.predictions) if asked is not None else None
        self._audit = (
            QuestionLog(context.config.state) if section.audit and not context.is_active else None
        )
        consent = context.consent
        self.answering = Answering(
            section, self._audit, consent=consent.answering, agree=consent.scoring
        )
        self._deployments = Deployments.read(context.config.state)
        self._switching = asyncio.Lock()
        self._stamps: dict[str, Any] = {}
        """Of the source, when the rows of a served model were read."""
        self._telling: dict[str, asyncio.Task[None]] = {}
        self._answers: set[asyncio.Task[None]] = set()
        self._refreshing: asyncio.Task[None] | None = None

    @property
    def opened_sessions(self) -> Mapping[type[Body], Opening]:
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
        """Load what was served before; what cannot be loaded is logged and left out.

        Raises:
            ConfigError: the serving source is a database for which packages are missing.
        """
        await self.source.open()
        for deployment in self._deployments.kept():
            await self._load(deployment)
        self._refreshing = asyncio.create_task(self._refresh())
        if self._requests is not None:
            self._requests.start()

    async def close(self) -> None:
        """Finish what is under way, within two seconds."""
        if self._requests is not None:
            await self._requests.close()
        await self.scorer.close()
        tasks = (self._refreshing, *self._telling.values(), *self._answers)
        await end(task for task in tasks if task is not None)
        self.source.close()
        if self._audit is not None:
            await self._audit.close()

    def on_online(self, envelope: Envelope) -> None:
        """Take what came on the online lane: at the label holder answers, elsewhere questions."""
        header, body = envelope.header, envelope.body
        if self.at.is_active:
            self.scorer.receive(envelope)
        elif header.sender == self.at.federation.active:
            task = asyncio.create_task(self._answer(header, body))
            self._answers.add(task)
            task.add_done_callback(self._answers.discard)

    async def _answer(self, header: Header, body: Body) -> None:
        span = None if self._spans is None else self._spans.answer(header, body)
        with self._priority_gate.taken():
            said = await self.answering.answer(header, body)
        if span is not None:
            span.end(said)
        if said is not None:
            seconds = body.budget if isinstance(body, OnlineHop | OnlineRows) else 1.0
            self._post.say(header.sender, said, header.session, seconds)

    # The label holder's side.

    async def _activate(self, request: Mapping[str, Any], say: OnProgress) -> dict[str, Any]:
        self.at.only_active("activate a model")
        known = self.at.store.ids()
        if not known:
            raise DataError("there is no model yet; train one with: fedmq train JOB.toml")
        model = request.get("model") or known[-1]
        mode: Mode = request.get("mode") or self.at.config.online.mode
        name = request.get("name") or PRODUCTION
        return await self._switch(name, lambda: (model, mode), say)

    async def _rollback(self, request: Mapping[str, Any], say: OnProgress) -> dict[str, Any]:
        self.at.only_active("go back to an earlier model")
        name = request.get("name") or PRODUCTION

        def former() -> tuple[str, Mode]:
            before = self._deployments.before(name)
            return before.model, before.mode

        return await self._switch(name, former, say)

    async def _switch(
        self, name: str, wanted: Callable[[], tuple[str, Mode]], say: OnProgress
    ) -> dict[str, Any]:
        if name in self.at.store.ids():
            raise ConfigError(f"{name} is the id of a model; choose another name")
        if not re.fullmatch(NAME_OF_MODEL, name):
            raise ConfigError(
                f"--name {name!r}: write up to 64 letters, digits, '.', '_' or '-', the first a "
                "letter or digit"
            )
        if self._switching.locked():
            raise DaemonError(
                "another activation is under way and waits for a party; see: fedmq status; end it "
                "with: fedmq cancel, or wait"
            )
        async with self._switching:
            model, mode = wanted()
            served, stamp = await self._served(model, mode)
            await self._agreed(model, ActiveDeployment(name, served.forest, mode), say)
            before = self._deployments.names().get(name)
            self._deployments.put(name, Deployment(model=model, mode=mode))
            # One assignment: a request sees the former model or the new one, and keeps it.
            self.scorer.models[name] = self.scorer.models[model] = served
            self._stamps[model] = stamp
            self.at.pool.give_way(self._priority_gate)
            asyncio.get_running_loop().call_later(_GRACE, self._forget)
            log.info("%s is model %s from now on", name, model)
            return {"name": name, "model": model, "mode": mode, "before": before and before.model}

    async def _verify(self, request: Mapping[str, Any], say: OnProgress) -> dict[str, Any]:
        """Whether every party could serve the model: all that activation does but the switch."""
        self.at.only_active("verify a model at all parties")
        model, mode = str(request["model"]), self.at.config.online.mode
        forest = (await self._served(model, mode))[0].forest
        await self._agreed(model, ActiveDeployment(PRODUCTION, forest, mode, only_asks=True), say)
        records = {party: len(forest.chains(owner)) for owner, party in forest.asked.items()}
        return {"model": model, "records": records}

    async def _agreed(self, model: str, machine: ActiveDeployment, say: OnProgress) -> None:
        changes: asyncio.Queue[RunningSession] = asyncio.Queue()
        running = self.at.sessions.open(
            secrets.token_hex(8), 1, "activation", model, machine, on_change=changes.put_nowait
        )

        async def tell(event: Mapping[str, Any]) -> None:
            # Whoever asked may go away: half a switch would leave the parties apart.
            with contextlib.suppress(ConnectionError):
                await say(event)

        await followed(running, changes, tell)

    async def _served(self, model: str, mode: Mode) -> tuple[ServedModel, Any]:
        """The model with its rows, and the source's stamp before they were read."""
        stamp = await asyncio.to_thread(self.source.stamp)
        share = await asyncio.to_thread(self.at.store.active, model)
        forest = await asyncio.to_thread(ServedForest.of, share)
        load = self.source.reading.of(share.lookup_table.feature_names, model)
        served = self.source.served(await self.at.pool.run(load))
        return ServedModel(forest, served, mode), stamp

    def _on_not_served(self, peer: str, model: str) -> None:
        """A party does not serve what it once agreed to: tell it anew."""
        named = [name for name, each in self._deployments.names().items() if each.model == model]
        if named and model not in self._telling:
            log.warning("%s does not serve %s any more; it is told again", peer, model)
            self._telling[model] = asyncio.create_task(self._tell_again(named[0], model))

    async def _tell_again(self, name: str, model: str) -> None:
        served = self.scorer.models[model]
        machine = ActiveDeployment(name, served.forest, served.mode)
        try:
            async with self._switching:
                running = self.at.sessions.open(
                    secrets.token_hex(8), 1, "activation", model, machine
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
        left, right = tuple(terms.left.numpy().tolist()), tuple(terms.right.numpy().tolist())
        load = LoadShare(self.at.store, self.source.reading, terms.model, left, right)
        stamp = await asyncio.to_thread(self.source.stamp)
        machine = PassiveDeployment(header.sender, load, self._refusal(header, terms))

        async def keep(loaded: LoadedShare | None) -> None:
            if loaded is None:
                return
            chains = loaded.chains
            deployment = Deployment(
                model=terms.model,
                mode=terms.mode,
                left=tuple(chains.left.tolist()),
                right=tuple(chains.right.tolist()),
            )

            async def put() -> None:
                self._deployments.put(terms.alias, deployment)

            await until_taken(put)
            self.answering.shares[terms.model] = loaded.hosted(self.source)
            self._stamps[terms.model] = stamp
            self.at.pool.give_way(self._priority_gate)
            # Rows that are under way may still ask for what no name stands for any more.
            asyncio.get_running_loop().call_later(_GRACE, self._forget)

        return self.at.sessions.open(
            header.session,
            header.attempt,
            "activation",
            terms.model,
            machine,
            checkpointer=HostingCheckpointer(keep),
        )

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

    # Both.

    def _forget(self) -> None:
        """What no name stands for, or stood for just before, lies in memory no more."""
        kept = {each.model for each in self._deployments.kept()}
        self.answering.forget_all_but(kept)
        self.scorer.forget_all_but(kept)

    async def _load(self, deployment: Deployment, level: int = logging.ERROR) -> None:
        try:
            if self.at.is_active:
                served, stamp = await self._served(deployment.model, deployment.mode)
                self.scorer.models[deployment.model] = served
                for name, each in self._deployments.names().items():
                    if each == deployment:
                        self.scorer.models[name] = served
            else:
                stamp = await asyncio.to_thread(self.source.stamp)
                load = LoadShare(
                    self.at.store,
                    self.source.reading,
                    deployment.model,
                    deployment.left,
                    deployment.right,
                )
                loaded: LoadedShare = await self.at.pool.run(load)
                self.answering.shares[deployment.model] = loaded.hosted(self.source)
            self._stamps[deployment.model] = stamp
            self.at.pool.give_way(self._priority_gate)
        except FedmqError as error:
            log.log(level, "model %s is not served: %s", deployment.model, error)

    async def _refresh(self) -> None:
        """Read the rows again when they may be out of date, and what could not be read before."""
        tried: Any = None
        while True:
            served = self.scorer.models if self.at.is_active else self.answering.shares
            lacking = {each.model for each in self._deployments.kept()} - served.keys()
            max_age = self.at.config.online.max_age
            await asyncio.sleep(min(max_age, _SOON) if lacking else max_age)
            now = await asyncio.to_thread(self.source.stamp)
            level = logging.DEBUG if now == tried else logging.ERROR
            for deployment in self._deployments.kept():
                old = now is not None and self._stamps.get(deployment.model) != now
                if old or deployment.model in lacking:
                    await self._load(deployment, level)
            tried = now

    async def _status(self, _: Mapping[str, Any], __: OnProgress) -> dict[str, Any]:
        source = {"party": self.at.party, "source_trouble": self.source.trouble}
        if self.at.is_active:
            return {**source, **self.scorer.status()}
        return {
            **source,
            "models": sorted(self.answering.shares),
            "questions": self.answering.questions,
            "turned_away": self.answering.rate_limits.turned_away,
        }
