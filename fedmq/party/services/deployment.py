"""Which model answers under which name: activated, rolled back, verified, and hosted for others."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any, Self

from fedmq.boosting.model.fallbacks import chosen_fallback, fallback_names
from fedmq.boosting.model.share import ActiveShare
from fedmq.boosting.model.tree import Agreed
from fedmq.errors import (
    ConfigError,
    DaemonError,
    FedmqError,
    PeerSilent,
    Refused,
    error_of_status,
)
from fedmq.messages.body import Body
from fedmq.messages.envelope import Envelope, Header
from fedmq.messages.fields import NAME_OF_MODEL
from fedmq.messages.online import ModelDeploy, ModelReady
from fedmq.party.consent.terms import RequestedTerms
from fedmq.party.online.answering import LoadedShare
from fedmq.party.online.lane import OnlineLane
from fedmq.party.online.requests import PredictRequest, RequestError
from fedmq.party.services.service import Command, PartyContext, Service, person_of
from fedmq.party.sessions.recovery import Opening
from fedmq.party.sessions.sessions import OnProgress, RunningSession
from fedmq.party.store.database import until_taken
from fedmq.party.store.documents import Deployment, only_name, sealed_terms
from fedmq.party.store.journal import ConsentRequest, NullJournal
from fedmq.protocol.deployment.active import ActiveDeployment
from fedmq.protocol.deployment.passive import PassiveDeployment
from fedmq.protocol.online.options import Mode
from fedmq.protocol.record_columns import record_columns
from fedmq.transport.background_tasks import BackgroundTasks

__all__ = ["PRODUCTION", "DeploymentService"]

log = logging.getLogger(__name__)

PRODUCTION = "production"
"""The name under which a model is activated by default."""

LONGEST_WAIT = 600.0
"""Seconds for which a switch waits for a party where nothing else is said."""


@dataclass(frozen=True, slots=True)
class _Limit:
    """All sessions of a command are over ``until`` then, ``seconds`` after it was given."""

    seconds: float
    until: float

    @classmethod
    def of(cls, request: Mapping[str, Any]) -> Self:
        seconds = float(request.get("seconds") or LONGEST_WAIT)
        return cls(seconds, asyncio.get_running_loop().time() + seconds)


@contextlib.contextmanager
def _ended_after(
    running: RunningSession, machine: ActiveDeployment, limit: _Limit
) -> Iterator[list[str]]:
    """End the session if it is not over at its ``limit``; why is then in the list."""
    late: list[str] = []

    def end() -> None:
        missing = " and ".join(machine.awaited)
        late.append(f"not done within {limit.seconds:g} s: no answer from {missing}")
        log.warning("%s: %s %s", running.model, running.purpose, late[0])
        running.runner.cancel(f"it was not done within {limit.seconds:g} s")

    timer = asyncio.get_running_loop().call_at(limit.until, end)
    try:
        yield late
    finally:
        timer.cancel()


class _Hosting(NullJournal):
    """Gives the loaded model to ``serve`` after the session has finished."""

    def __init__(self, serve: Callable[[Any], Awaitable[None]]) -> None:
        self._serve = serve

    async def finish(self, result: Any) -> None:
        await self._serve(result)


class DeploymentService(Service):
    """Makes all parties serve a model together; ``online`` serves it here."""

    def __init__(self, context: PartyContext, online: OnlineLane) -> None:
        super().__init__(context)
        self._online = online
        self._loader = online.loader
        self._deployments = online.deployments
        self._switching = asyncio.Lock()
        self._reminders = BackgroundTasks()
        self._unwatched = BackgroundTasks()
        """Switches that wait for another person, and whose command has its answer already."""
        self._reminded: set[str] = set()
        """Models that a party is currently asked to serve again."""
        online.on_not_served = self._on_not_served

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
            "score": self._score,
        }

    async def close(self) -> None:
        """Stop reminding other parties, and waiting for people."""
        await self._unwatched.close()
        await self._reminders.close()

    # The active party's side

    async def _activate(
        self, request: Mapping[str, Any], on_progress: OnProgress
    ) -> dict[str, Any]:
        self.context.require_active("activate a model")
        model = request.get("model") or self.context.model_store.newest()
        mode: Mode = request.get("mode") or self.context.config.online.mode
        name = request.get("name") or PRODUCTION
        return await self._switch(request, name, lambda: (model, mode), on_progress)

    async def _rollback(
        self, request: Mapping[str, Any], on_progress: OnProgress
    ) -> dict[str, Any]:
        self.context.require_active("go back to an earlier model")
        name = request.get("name") or PRODUCTION

        def former() -> tuple[str, Mode]:
            before = self._deployments.before(name)
            return before.model, before.mode

        return await self._switch(request, name, former, on_progress)

    async def _switch(
        self,
        request: Mapping[str, Any],
        name: str,
        wanted: Callable[[], tuple[str, Mode]],
        on_progress: OnProgress,
    ) -> dict[str, Any]:
        """Switch, once another person agrees where the policy wants that.

        A command that does not ``watch`` has its answer as soon as that person is asked.
        """
        if request.get("watch", True):
            return await self._switch_together(request, name, wanted, on_progress)
        asked: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

        async def tell(event: Mapping[str, Any]) -> None:
            if event["event"] == "asked" and not asked.done():
                asked.set_result({"name": name, "waits": dict(event)})

        async def switch() -> None:
            try:
                done = await self._switch_together(request, name, wanted, tell)
            except FedmqError as error:
                if not asked.done():
                    asked.set_exception(error)
                log.warning("%s keeps its meaning: %s", name, error)
            else:
                if not asked.done():
                    asked.set_result(done)

        self._unwatched.spawn(switch())
        return await asked

    async def _agreed(
        self,
        request: Mapping[str, Any],
        name: str,
        wanted: tuple[str, Mode],
        on_progress: OnProgress,
    ) -> None:
        """Wait until another person agrees that ``name`` stands for what is ``wanted``.

        Raises:
            Refused: somebody declines, or nobody agrees in time; it says how things are.
        """
        (model, mode), context = wanted, self.context
        now = self._deployments.names().get(name)
        terms = RequestedTerms.of_switch(
            context.party, person_of(request), name, model, mode, now.model if now else ""
        )

        async def tell(asked: ConsentRequest) -> None:
            until = datetime.fromtimestamp(asked.until).astimezone().isoformat(timespec="seconds")
            with contextlib.suppress(ConnectionError):  # it waits on without its watcher
                await on_progress({"event": "asked", "request": asked.id, "until": until})

        seconds = float(request.get("seconds") or LONGEST_WAIT)
        try:
            await context.owner_consent.another_agrees(terms, seconds, tell)
        except Refused as error:
            raise Refused(f"{error}; {self._as_it_is(name)}") from None

    def _as_it_is(self, name: str) -> str:
        now = self._deployments.names().get(name)
        return f"{name} is still {now.model}" if now else f"{name} stands for no model yet"

    async def _switch_together(
        self,
        request: Mapping[str, Any],
        name: str,
        wanted: Callable[[], tuple[str, Mode]],
        on_progress: OnProgress,
    ) -> dict[str, Any]:
        if name in self.context.model_store.ids():
            raise ConfigError(f"{name} is the id of a model; choose another name")
        if not re.fullmatch(NAME_OF_MODEL, name):
            raise ConfigError(
                f"--name {name!r}: write up to 64 letters, digits, '.', '_' or '-', the first a "
                "letter or digit"
            )
        agreed_to = wanted()
        self.context.model_store.active(agreed_to[0])  # nobody is asked about a model that is none
        await self._agreed(request, name, agreed_to, on_progress)
        limit = _Limit.of(request)
        if self._switching.locked():
            raise DaemonError(
                "another activation is under way and waits for a party; see: fedmq status; end it "
                "with: fedmq cancel, or wait"
            )
        async with self._switching:
            model, mode = wanted()
            if (model, mode) != agreed_to:
                raise DaemonError(f"{name} has changed meanwhile; give the command again")
            store = self.context.model_store
            share = store.active(model)
            fallbacks = await asyncio.to_thread(store.fallbacks, share)
            gone = self._gone(share, fallbacks)
            before = self._deployments.names().get(name)
            serve = partial(
                self._serve,
                mode=mode,
                now=self._as_it_is(name),
                limit=limit,
                on_progress=on_progress,
            )
            # The model last: whoever asks for the name meanwhile gets the one before, and its own.
            names = fallback_names(name, share.parties[1:])
            for absent, fallback in fallbacks.items():
                if set(fallback.asked) <= set(self.context.federation.parties):
                    await serve(names[absent], fallback.model_id)
            await serve(name, model, without=gone)
            log.info("%s is model %s from now on", name, model)
            return {
                "name": name,
                "model": model,
                "mode": mode,
                "before": before and before.model,
                "fallbacks": sorted(fallback.model_id for fallback in fallbacks.values()),
            }

    def _gone(
        self, share: ActiveShare, fallbacks: Mapping[frozenset[str], ActiveShare]
    ) -> frozenset[str]:
        """The parties of the model that have left.

        Raises:
            PartyLeft: no fallback model without them may stand in for it.
        """
        gone = frozenset(share.asked) - set(self.context.federation.parties)
        wanted = self.context.config.online.unknown == "fallback"
        if gone and not (wanted and chosen_fallback(fallbacks, gone) is not None):
            self.context.require_parties(share)
        return gone

    async def _serve(
        self,
        name: str,
        model: str,
        *,
        mode: Mode,
        now: str,
        limit: _Limit,
        on_progress: OnProgress,
        without: frozenset[str] = frozenset(),
    ) -> None:
        """Serve ``model`` under ``name``, at all parties that it asks.

        ``now`` says what is served if that fails. ``without``: parties that have left; then
        fallback models stand in for it, and nobody is asked.
        """
        read, agreed = await self._loader.read(model, mode), Agreed()
        if not without:
            machine = ActiveDeployment(name, read.served.forest, mode, sealed=read.served.sealed)
            agreed = await self._agree(model, machine, limit, now, on_progress)
        deployment = Deployment(model=model, mode=mode, agreed=agreed)
        read = await self._loader.explained(read, agreed)
        await asyncio.to_thread(self._deployments.put, name, deployment)
        self._loader.serve(name, read)

    async def _verify(self, request: Mapping[str, Any], on_progress: OnProgress) -> dict[str, Any]:
        """Check that every party could serve the model: all of activation except the switch."""
        self.context.require_active("verify a model at all parties")
        model, mode = str(request["model"]), self.context.config.online.mode
        self.context.require_parties(self.context.model_store.active(model))
        served = (await self._loader.read(model, mode)).served
        forest = served.forest
        machine = ActiveDeployment(PRODUCTION, forest, mode, only_asks=True, sealed=served.sealed)
        await self._agree(model, machine, _Limit.of(request), "nothing was changed", on_progress)
        records = {party: len(forest.chains(owner)) for owner, party in forest.asked.items()}
        return {"model": model, "records": records}

    async def _agree(
        self,
        model: str,
        machine: ActiveDeployment,
        limit: _Limit,
        now: str,
        on_progress: OnProgress,
    ) -> Any:
        """The session's result, at its end; ``on_progress`` gets its progress.

        Raises:
            PeerSilent: a party has not answered in time; it says how things are ``now``.
        """
        changes: asyncio.Queue[RunningSession] = asyncio.Queue()
        running = self._open(model, machine, changes.put_nowait)
        outcome = running.runner.outcome
        running.runner.start()
        with _ended_after(running, machine, limit) as late:
            await self._followed(running, changes, on_progress)
        if late and outcome.exception() is not None:
            raise PeerSilent(f"{late[0]}; {now}; repeat the command, and wait longer with --for")
        return await outcome

    async def _followed(
        self,
        running: RunningSession,
        changes: asyncio.Queue[RunningSession],
        on_progress: OnProgress,
    ) -> None:
        """Tell ``on_progress`` of the session until its end."""
        outcome = running.runner.outcome
        while not outcome.done():
            change = asyncio.ensure_future(changes.get())
            try:
                await asyncio.wait({change, outcome}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                unchanged = change.cancel()
            if not unchanged:
                # A switch must not stop halfway when its owner disconnects: parties would differ.
                with contextlib.suppress(ConnectionError):
                    await on_progress({"event": "progress", **running.status()})

    def _open(
        self,
        model: str,
        machine: ActiveDeployment,
        on_change: Callable[[RunningSession], None] = lambda _: None,
    ) -> RunningSession:
        running = self.context.sessions.open(
            secrets.token_hex(8), 1, "activation", model, machine, on_change=on_change
        )
        if machine.only_asks:
            running.purpose = "check"  # a failed one must not read as an activation that failed
        return running

    def _on_not_served(self, party: str, model: str) -> None:
        """Make a party serve a model again that it once agreed to serve."""
        names = self._deployments.now_of(model)
        if names and model not in self._reminded:
            log.warning("%s no longer serves %s; asking it to load the model again", party, model)
            self._reminded.add(model)
            self._reminders.spawn(self._remind(names[0], model))

    async def _remind(self, name: str, model: str) -> None:
        served = self._online.scorer.models[model]
        machine = ActiveDeployment(name, served.forest, served.mode, sealed=served.sealed)
        try:
            async with self._switching:
                running = self._open(model, machine)
                running.runner.start()
                with _ended_after(running, machine, _Limit.of({})):
                    await running.runner.outcome
        except FedmqError as error:
            log.warning("%s cannot be served: %s", model, error)
            await asyncio.sleep(1)
        finally:
            self._reminded.discard(model)

    async def _score(self, request: Mapping[str, Any], _: OnProgress) -> dict[str, Any]:
        """One score as callers get it, and the time that each party took."""
        self.context.require_active("ask for a score")
        predictions, begun = self._online.predictions, time.perf_counter()
        served = {name: now.model for name, now in self._deployments.names().items()}
        name = request.get("name") or only_name(served)
        fields = {name: request.get(name) for name in ("ids", "features", "explain")}
        given = {name: value for name, value in fields.items() if value is not None}
        try:
            with predictions.counters.request():
                asked = PredictRequest.read(json.dumps(given).encode())
                answer = await predictions.answer(str(name), asked)
        except RequestError as error:
            raise error_of_status(error.http_status)(str(error)) from None
        seconds = time.perf_counter() - begun
        named = name if name in served else None
        waited = dict(answer.waited)
        return {**answer.json(), "name": named, "seconds": seconds, "waited": waited}

    # A passive party's side

    async def _host(self, envelope: Envelope) -> RunningSession:
        header, terms = envelope.header, envelope.body
        assert isinstance(terms, ModelDeploy)
        asked = _asked(terms)
        load = self._loader.computation(asked.model, asked.left, asked.right, terms.sealed)
        stamp = await self._loader.stamp()
        explain = self.context.consent.policy.explain

        def ready(loaded: LoadedShare) -> ModelReady:
            if terms.mode != "bitmap" or explain != "column":
                return ModelReady(explain=explain != "none")
            columns = loaded.columns(self.context.config.data.reasons)
            return ModelReady(columns=record_columns(columns))

        refusal, within = await self._consent(header, terms)
        machine = PassiveDeployment(header.sender, load, refusal, ready, within)

        async def keep(loaded: LoadedShare | None) -> None:
            if loaded is None:
                return
            if (sealed := terms.sealed) is not None:
                kept = sealed_terms(self.context.config.state)
                await until_taken(lambda: asyncio.to_thread(kept.keep, terms.model, sealed))
            await until_taken(lambda: asyncio.to_thread(self._deployments.put, terms.alias, asked))
            self._loader.host(terms.model, loaded, stamp)

        return self.context.host(header, "activation", terms.model, machine, _Hosting(keep))

    async def _consent(self, header: Header, terms: ModelDeploy) -> tuple[str, int]:
        """The refusal, or empty; and the seconds that the owner has to agree, 0 if not asked."""
        if refusal := await self._refusal(header, terms):
            return refusal, 0
        served = self._deployments.names().get(terms.alias)
        if terms.sealed is None and served == _asked(terms):  # a sealed one has a key of its own
            return "", 0
        requested = RequestedTerms.of_serving(header.sender, terms)
        try:
            return "", await self.context.owner_consent.seconds_left(header, requested)
        except Refused as error:
            return str(error), 0

    async def _refusal(self, header: Header, terms: ModelDeploy) -> str:
        try:
            await self.context.consent.serving(header, terms.model, terms.mode)
        except Refused as error:
            return str(error)
        if not self.context.model_store.path(terms.model).exists():
            return f"{self.context.party} has no share of model {terms.model}"
        if terms.mode not in self.context.config.online.modes:
            return f"{self.context.party} does not answer in mode {terms.mode}"
        if terms.sealed is not None:
            federation = self.context.federation
            passive = set(federation.parties) - {federation.active}
            if not set(terms.sealed.chain) <= passive:
                return "sealed scores go from one passive party to the next; another is named"
        return ""

    # Both

    def _scored(self, name: str) -> dict[str, Any]:
        """The fields of a request to the model that ``name`` stands for, as plain data."""
        model = self._online.scorer.models.get(name)
        if model is None:
            return {"columns": [], "unexplained": "it is not loaded"}
        table = model.forest.share.lookup_table
        return {"columns": list(table.columns), "unexplained": model.unexplained}

    async def _status(self, _: Mapping[str, Any], __: OnProgress) -> dict[str, Any]:
        online, party = self._online, self.context.party
        source = {
            "party": party,
            "source_trouble": online.source.trouble,
            "troubles": list(online.troubles),
        }
        if self.context.is_active:
            recent = online.predictions.counters.recent.described()
            scored = {name: self._scored(name) for name in online.deployments.names()}
            return {**source, **online.scorer.status(), "recent": recent, "scored": scored}
        return {
            **source,
            "models": sorted(online.answering.shares),
            "questions": online.answering.questions,
            "turned_away": online.answering.rate_limits.turned_away,
        }


def _asked(terms: ModelDeploy) -> Deployment:
    """How the active party asks this party to serve a model."""
    left, right = tuple(terms.left.numpy().tolist()), tuple(terms.right.numpy().tolist())
    return Deployment(model=terms.model, mode=terms.mode, left=left, right=right)
