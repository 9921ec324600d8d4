"""The long-running daemon of one party: a link, its sessions, and a control socket."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import numpy as np

from fedmq.boosting.model import ActiveShare, PassiveShare
from fedmq.errors import ConfigError, DaemonError, LinkError, Refused
from fedmq.messages.body import Abort, Acknowledge
from fedmq.messages.codec import encode
from fedmq.messages.envelope import Envelope, Header
from fedmq.messages.inference import InferenceOpen
from fedmq.messages.training import TrainingOpen
from fedmq.party.compute import ProcessPool
from fedmq.party.configuration.federation import Federation
from fedmq.party.configuration.job import TrainingJob
from fedmq.party.configuration.party import PartyFile
from fedmq.party.control import ControlServer, Say
from fedmq.party.model_store import ModelStore
from fedmq.party.runner import SessionRunner
from fedmq.party.sessions import RunningSession, Sessions
from fedmq.party.switchboard import Switchboard
from fedmq.party.tables import LoadActiveRows, LoadActiveTable, LoadPassiveRows, LoadPassiveTable
from fedmq.privacy.engine import Engine
from fedmq.privacy.registry import ENGINES, engine_named
from fedmq.protocol.inference_active import ActiveInference
from fedmq.protocol.inference_passive import PassiveInference
from fedmq.protocol.inference_steps import Scores
from fedmq.protocol.training_active import ActiveTraining
from fedmq.protocol.training_passive import PassiveTraining
from fedmq.transport.link import LinkState
from fedmq.transport.rabbitmq import RabbitMQLink

__all__ = ["Daemon"]

log = logging.getLogger(__name__)


class Daemon:
    """One party of a federation. ``run`` returns when ``stop`` is called."""

    def __init__(self, config: PartyFile, federation: Federation) -> None:
        self._config = config
        self._federation = federation
        self._party = config.party
        self._store = ModelStore(config.state)
        self._stopping = asyncio.Event()
        self._link_state = LinkState(False, "not connected yet")
        self._link = RabbitMQLink(
            config.broker, federation.name, self._party, on_state=self._on_link_state
        )
        self._pool = ProcessPool(config.compute.workers)
        self._switchboard = Switchboard(federation.name, self._party, self._on_unknown)
        self._sessions = Sessions(
            federation.name, self._link, self._switchboard, self._pool, config.retry
        )
        self._replies: set[asyncio.Task[None]] = set()

    @property
    def is_active(self) -> bool:
        """Whether this party holds the label."""
        return self._party == self._federation.active

    def stop(self) -> None:
        """Let ``run`` come to its end."""
        self._stopping.set()

    async def run(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """Serve until ``stop``.

        Raises:
            ConfigError: the state folder cannot be used.
            LinkError: the broker cannot be reached, or refuses.
        """
        control = ControlServer(
            self._config.state,
            {
                "train": self._train,
                "predict": self._predict,
                "status": self._status,
                "models": self._models,
                "cancel": self._cancel,
            },
        )
        try:
            await control.start()
            await self._link.open(self._switchboard.on_delivery)
            on_ready()
            await self._stopping.wait()
        finally:
            await control.close()
            await self._sessions.close(f"{self._party} is shutting down")
            await self._link.close()
            await self._pool.close()

    def _on_link_state(self, state: LinkState) -> None:
        self._link_state = state
        log.info("%s: %s", self._party, state.reason)

    # What other parties ask for

    def _on_unknown(self, envelope: Envelope) -> SessionRunner | None:
        header, body = envelope.header, envelope.body
        if header.sender == self._federation.active and not self.is_active:
            if isinstance(body, TrainingOpen):
                return self._join_training(header, body).runner
            if isinstance(body, InferenceOpen):
                return self._join_inference(header, body).runner
        if not isinstance(body, Abort | Acknowledge):
            self._spawn_reply(header)
        return None

    def _join_training(self, header: Header, terms: TrainingOpen) -> RunningSession:
        data = self._config.data
        machine = PassiveTraining(
            self._party,
            header.sender,
            LoadPassiveTable(self._party, data, salt=header.session),
            self._accepted_engine,
            secrets.randbits(128),
            self._pool.parallelism,
        )

        def keep(share: PassiveShare) -> None:
            self._store.save(share)

        return self._sessions.open(
            header.session, header.attempt, "training", terms.model, machine, keep
        )

    def _join_inference(self, header: Header, terms: InferenceOpen) -> RunningSession:
        data = self._config.serving or self._config.data
        load = LoadPassiveRows(self._party, data, self._store, terms.model)
        machine = PassiveInference(header.sender, load)
        return self._sessions.open(
            header.session, header.attempt, "inference", terms.model, machine
        )

    def _accepted_engine(self, name: str) -> Engine:
        policy = self._config.policy
        if name not in policy.engines:
            allowed = ", ".join(policy.engines)
            raise Refused(f"{self._party} does not take part with engine {name!r}, only {allowed}")
        options = ENGINES[name].options()
        weak = {"allow_weak_keys": policy.allow_weak_keys} if "allow_weak_keys" in options else {}
        return engine_named(name, weak, self._party)

    def _spawn_reply(self, header: Header) -> None:
        """Tell a peer that its session is unknown here, so that it does not wait in vain."""
        reason = f"{self._party} does not know this session; it may have been restarted"
        body = Abort(reason=reason)
        reply = Header(
            id=f"{header.session}/{header.attempt}/{self._party}/{header.sender}/unknown",
            federation=header.federation,
            session=header.session,
            attempt=header.attempt,
            sender=self._party,
            recipient=header.sender,
            sequence=0,
            acknowledged=0,
            kind=body.kind,
        )
        task = asyncio.create_task(self._reply(Envelope(reply, body)))
        self._replies.add(task)
        task.add_done_callback(self._replies.discard)

    async def _reply(self, envelope: Envelope) -> None:
        header = envelope.header
        try:
            await self._link.publish(
                header.recipient, "training", encode(envelope), message_id=header.id
            )
        except LinkError as error:
            log.warning("%s: could not answer %s: %s", self._party, header.recipient, error)

    # What the owner of this party asks for

    async def _train(self, request: Mapping[str, Any], say: Say) -> dict[str, Any]:
        self._only_active("train")
        job = TrainingJob.model_validate(request["job"])
        model = job.model or f"model-{datetime.now():%Y%m%d-%H%M%S}"
        if model in self._store.ids():
            raise ConfigError(f"model {model!r} exists already; choose another name")
        session = secrets.token_hex(8)
        load = LoadActiveTable(
            self._party, self._config.data, job.params, job.evaluation, salt=session
        )
        machine = ActiveTraining(
            model,
            self._party,
            self._federation.passive,
            await self._pool.run(load),
            job.params,
            engine_named(job.engine, job.engine_options, "job"),
            self._pool.parallelism,
        )
        begun = asyncio.get_running_loop().time()
        events: asyncio.Queue[RunningSession] = asyncio.Queue()
        running = self._sessions.open(
            session, 1, "training", model, machine, self._store.save, events.put_nowait
        )
        await say({"event": "opened", "session": session, "model": model})
        share: ActiveShare = await self._followed(running, events, say)
        return {
            "model": model,
            "trees": len(share.trees),
            "best_iteration": share.best_iteration,
            "metrics": {name: values[-1] for name, values in share.history.items()},
            "seconds": round(asyncio.get_running_loop().time() - begun, 3),
            "bytes_sent": running.traffic.total.bytes,
        }

    async def _predict(self, request: Mapping[str, Any], say: Say) -> dict[str, Any]:
        self._only_active("predict")
        known = self._store.ids()
        model = request.get("model") or (known[-1] if known else "")
        share = self._store.active(model)
        ids = tuple(request["ids"])
        data = self._config.serving or self._config.data
        values = await self._pool.run(LoadActiveRows(self._party, data, share, ids))
        machine = ActiveInference(share, values, ids)
        events: asyncio.Queue[RunningSession] = asyncio.Queue()
        running = self._sessions.open(
            secrets.token_hex(8), 1, "inference", model, machine, on_change=events.put_nowait
        )
        scores: Scores = await self._followed(running, events, say)
        chosen = scores.margins if request.get("output_margin") else scores.predictions
        return {"model": model, "scores": chosen.astype(np.float64).tolist()}

    async def _followed(
        self, running: RunningSession, events: asyncio.Queue[RunningSession], say: Say
    ) -> Any:
        """The outcome of a session; its owner is told of the progress if still listening."""
        runner = running.runner
        runner.start()
        while not runner.outcome.done():
            change = asyncio.ensure_future(events.get())
            await asyncio.wait({change, runner.outcome}, return_when=asyncio.FIRST_COMPLETED)
            if not change.cancel():
                report = running.report
                await say(
                    {
                        "event": "progress",
                        "details": dict(report.details) if report else {},
                        **running.status(),
                    }
                )
        return await runner.outcome

    async def _status(self, _: Mapping[str, Any], __: Say) -> dict[str, Any]:
        return {
            "party": self._party,
            "role": "active" if self.is_active else "passive",
            "federation": self._federation.name,
            "parties": list(self._federation.parties),
            "connected": self._link_state.connected,
            "broker": self._link_state.reason,
            "models": len(self._store.ids()),
            "sessions": [each.status() for each in self._sessions.running.values()],
            "dead_letters": self._link.dead_lettered,
            "dropped": self._switchboard.dropped,
        }

    async def _models(self, _: Mapping[str, Any], __: Say) -> list[dict[str, Any]]:
        return [self._described(model) for model in self._store.ids()]

    def _described(self, model: str) -> dict[str, Any]:
        if not self.is_active:
            return {"model": model, "records": len(self._store.passive(model).lookup_table)}
        share = self._store.active(model)
        return {
            "model": model,
            "objective": share.params.objective,
            "trees": len(share.used_trees),
            "parties": list(share.parties),
            "metrics": {name: values[-1] for name, values in share.history.items()},
        }

    async def _cancel(self, request: Mapping[str, Any], _: Say) -> dict[str, Any]:
        running = self._sessions.running.get(str(request["session"]))
        if running is None or running.runner.session.over:
            raise DaemonError(f"session {request['session']} does not run here; see: fedmq status")
        running.runner.cancel(f"{self._party} cancelled the session")
        return {"session": running.id}

    def _only_active(self, what: str) -> None:
        if not self.is_active:
            raise DaemonError(
                f"{self._party} holds no label: ask the daemon of {self._federation.active} "
                f"to {what}"
            )
