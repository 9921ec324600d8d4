"""The long-running daemon of one party: a link, its sessions, its desks, and a control socket."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedmq.errors import ConfigError, FedmqError, LinkError, Replayed
from fedmq.large_array import limit_memory
from fedmq.messages.body import Abort, Body, SessionUnknown
from fedmq.messages.envelope import Envelope, Header
from fedmq.party.compute.dask_pool import DaskPool
from fedmq.party.compute.process_pool import ProcessPool
from fedmq.party.configuration.federation import Federation
from fedmq.party.configuration.party import PartyFile
from fedmq.party.consent.audit_log import AuditLog
from fedmq.party.consent.consent import Consent
from fedmq.party.identity.party_files import PartyFiles
from fedmq.party.operations.broker_access import BrokerAccess
from fedmq.party.operations.control import ControlServer
from fedmq.party.operations.dead_letters import DeadLetterNotes, Redelivery
from fedmq.party.operations.health import Health
from fedmq.party.services.alignment import AlignmentService
from fedmq.party.services.deployment import DeploymentService
from fedmq.party.services.inference import InferenceService
from fedmq.party.services.service import Command, Opening, PartyContext
from fedmq.party.services.training import TrainingService
from fedmq.party.sessions.inbox import Inbox
from fedmq.party.sessions.observer import Observation
from fedmq.party.sessions.open_sessions import Sessions
from fedmq.party.sessions.progress import OnProgress
from fedmq.party.sessions.restart_notice import RestartNotice
from fedmq.party.sessions.runner import SessionRunner
from fedmq.party.store.database import Database
from fedmq.party.store.disk import until_taken
from fedmq.party.store.models import ModelStore
from fedmq.party.store.opened_sessions import OpenedSessions
from fedmq.party.store.sessions import SessionStore, StoredSession
from fedmq.party.telemetry.counters import Counters, Gauges
from fedmq.protocol.stale_message import Decision, StoredState, decide
from fedmq.transport.link import LinkState
from fedmq.transport.rabbitmq.link import RabbitMQLink

if TYPE_CHECKING:
    from fedmq.party.http.server import HttpServer
    from fedmq.party.telemetry.serving_spans import OnlineSpans
    from fedmq.party.telemetry.spans import Telemetry

__all__ = ["Daemon"]

log = logging.getLogger(__name__)


class Daemon:
    """One party of a federation. ``run`` returns when ``stop`` is called.

    ``traces``: a folder for the timeline of each session.
    """

    def __init__(self, files: PartyFiles, traces: Path | None = None) -> None:
        config, federation = files.config, files.federation
        self._files = files
        self._reading = asyncio.Lock()
        self._party = config.party
        self._stopping = asyncio.Event()
        self._link_state = LinkState(False, "not connected yet")
        access = BrokerAccess.of(config)
        self._link = RabbitMQLink(
            access.url,
            federation.name,
            config.party,
            on_state=self._on_link_state,
            ssl_context=access.ssl_context,
            wait=config.wait_for_broker,
        )
        limit_memory(config.compute.memory_bytes, config.state)
        compute = config.compute
        pool = DaskPool(compute.dask) if compute.dask else ProcessPool(compute.workers)
        self._sealer = files.sealer
        self._opened = OpenedSessions(config.state)
        self._disk_trouble = ""
        notes = DeadLetterNotes(config.state)
        self._counters = Counters()
        self._inbox = Inbox(
            federation.name,
            config.party,
            self._on_unknown,
            self._on_online,
            self._sealer,
            notes.add,
            self._counters,
        )
        self._telemetry = _telemetry_of(config)
        sessions = Sessions(
            federation=federation.name,
            link=self._link,
            inbox=self._inbox,
            pool=pool,
            retry=config.retry,
            sealer=self._sealer,
            observation=Observation(
                counters=self._counters,
                traces=traces,
                recordings=config.recordings,
                telemetry=self._telemetry,
            ),
            on_idle=self._on_idle,
        )
        store = ModelStore(config.state)
        self._database = Database(config.state / "fedmq.sqlite")
        self._kept = SessionStore(self._database)
        consent = Consent(config.party, config.policy, AuditLog(config.state))
        self._context = PartyContext(config, federation, store, pool, sessions, consent, self._kept)
        self._training = TrainingService(self._context)
        self._reminder = RestartNotice(self._remind)
        spans = _online_spans_of(config, federation, self._telemetry)
        self._serving = DeploymentService(self._context, self._link, self._sealer, spans)
        desks = (
            AlignmentService(self._context),
            self._training,
            InferenceService(self._context),
            self._serving,
        )
        self._opened_sessions: dict[type, Opening] = {}
        self._commands: dict[str, Command] = {
            "status": self._status,
            "cancel": self._cancel,
            "redeliver": self._redeliver,
            "health": self._health,
            "reload": self._reload,
        }
        for desk in desks:
            self._opened_sessions |= desk.opened_sessions
            self._commands |= desk.commands
        self._tasks: set[asyncio.Task[None]] = set()

    def stop(self) -> None:
        """Let ``run`` come to its end."""
        self._stopping.set()

    def reload(self) -> None:
        """Take up changed keys and a changed policy soon; the log says what came of it."""
        self._spawn(self._reread())

    async def run(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """Serve until ``stop``.

        Raises:
            ConfigError: the state folder cannot be used.
            LinkError: the broker cannot be reached, or refuses.
        """
        control = ControlServer(self._context.config.state, self._commands)
        closing = AsyncExitStack()
        try:
            await control.start()
            await self._context.pool.start()
            await self._database.open()
            await self._kept.prune()
            await self._serving.start()
            await self._link.open(self._inbox.on_delivery)
            self._spawn(self._reminder.run())
            self._spawn(self._take_up())
            http = self._http_server()
            if http is not None:
                await http.start()
                closing.push_async_callback(http.close)
                log.info("%s serves %s", self._party, http.url)
            on_ready()
            await self._stopping.wait()
        finally:
            for task in self._tasks:
                task.cancel()
            await closing.aclose()
            await control.close()
            await self._serving.close()
            await self._context.sessions.close(f"{self._party} is shutting down")
            await self._link.close()
            await self._context.pool.close()
            await self._database.close()
            if self._telemetry is not None:
                await asyncio.to_thread(self._telemetry.close)

    async def _take_up(self) -> None:
        """Go on with what was under way when this party stopped."""
        for session in await self._kept.running():
            if self._context.is_active:
                self._spawn(self._go_on(session))
            elif session.id not in self._context.sessions.running:
                self._reminder.add(session.id)

    async def _go_on(self, session: StoredSession) -> None:
        try:
            await self._training.take_up(session)
        except FedmqError as error:
            log.warning("session %s cannot go on: %s", session.id, error)

    def _on_idle(self, session: str, idle: bool) -> None:
        """A session of another party waits for a new attempt, or has got one."""
        if not idle:
            self._reminder.discard(session)
        elif not self._context.is_active:
            self._reminder.add(session)

    async def _remind(self, session: str) -> None:
        stored = await self._kept.find(session)
        if stored is None or stored.state != "running":
            self._reminder.discard(session)
            return
        await self._say(self._context.federation.active, session, stored.attempt, SessionUnknown())

    def _http_server(self) -> HttpServer | None:
        section = self._context.config.http
        if section is None:
            return None
        try:
            from fedmq.party.http.health import health_router
            from fedmq.party.http.metrics import metrics_router
            from fedmq.party.http.predict import predict_router
            from fedmq.party.http.score_metrics import (
                AnsweringCollector,
                LookupCollector,
                ScoreCollector,
            )
            from fedmq.party.http.server import HttpServer
        except ImportError:
            raise ConfigError(
                "[http] needs more packages; run: pip install 'fedmq[http]'"
            ) from None
        serving, is_active = self._serving, self._context.is_active
        scores = (
            ScoreCollector(serving.predictions)
            if is_active
            else AnsweringCollector(serving.answering)
        )
        routers = [
            health_router(self._condition),
            metrics_router(
                self._counters, self._gauges, scores, LookupCollector(serving.source.counters)
            ),
        ]
        if is_active:
            routers.append(predict_router(serving.predictions))
        return HttpServer(section, routers)

    def _condition(self) -> Health:
        link = self._link_state
        reasons = () if link.connected else (f"the broker is not connected: {link.reason}",)
        return Health(reasons, tuple(self._serving.scorer.away))

    def _gauges(self) -> Gauges:
        running = self._context.sessions.running.values()
        live = [each for each in running if not each.runner.session.over]
        return Gauges(
            self._link_state.connected,
            self._link.dead_lettered,
            Counter((each.purpose, each.status()["state"]) for each in live),
            sum(len(each.waiting) for each in live),
        )

    def _on_link_state(self, state: LinkState) -> None:
        self._link_state = state
        log.info("%s: %s", self._party, state.reason)

    async def _on_unknown(self, envelope: Envelope) -> SessionRunner | None:
        """What to do about a message of an attempt that does not run here."""
        header, body = envelope.header, envelope.body
        active = self._context.federation.active
        opening = self._opened_sessions.get(type(body))
        stored = await self._kept.find(header.session)
        standing = None if stored is None else StoredState(stored.attempt, stored.state == "failed")
        match decide(
            header,
            body,
            standing,
            opens=opening is not None and header.sender == active != self._party,
            drives=self._context.is_active,
        ):
            case Decision.JOIN:
                assert opening is not None
                if not await self._is_first(header):
                    await self._reply(header, SessionUnknown())
                    raise Replayed(f"{header.sender} opened session {header.session} here before")
                joined = await opening(envelope)
                # Last of all: from here to the record of what was asked nothing comes between.
                await self._context.consent.until_recordable(self._on_disk_trouble)
                return joined.runner
            case Decision.GO_ON:
                assert stored is not None
                self._spawn(self._go_on(stored))
            case Decision.END:
                assert isinstance(body, Abort)
                reason = f"{header.sender} gave up: {body.reason}"
                await self._kept.end(header.session, "failed", reason[:2000])
                self._reminder.discard(header.session)
                earlier = self._context.sessions.running.get(header.session)
                if earlier is not None:
                    earlier.runner.cancel(reason)
                    earlier.runner.silence(header.sender)
            case Decision.REFUSE:
                earlier = self._context.sessions.running.get(header.session)
                if earlier is not None:
                    earlier.runner.silence(header.sender)
                unknown = f"{self._party} has no such session"
                await self._reply(header, Abort(reason=stored.reason if stored else unknown))
            case Decision.REPLY_UNKNOWN:
                await self._reply(header, SessionUnknown())
            case Decision.DROP:
                pass
        return None

    async def _is_first(self, header: Header) -> bool:
        async def noted() -> bool:
            return self._opened.is_first(header)

        return await until_taken(noted, on_trouble=self._on_disk_trouble)

    def _on_disk_trouble(self, trouble: str) -> None:
        self._disk_trouble = trouble

    def _on_online(self, envelope: Envelope) -> None:
        self._serving.on_online(envelope)

    async def _reply(self, header: Header, body: Body) -> None:
        try:
            await self._say(header.sender, header.session, header.attempt, body)
        except LinkError as error:
            log.warning("%s: could not answer %s: %s", self._party, header.sender, error)

    async def _say(self, recipient: str, session: str, attempt: int, body: Body) -> None:
        """Say something outside of any running session; LinkError if it cannot be said now."""
        header = Header(
            id=f"{session}/{attempt}/{self._party}/{recipient}/{body.kind}",
            federation=self._context.federation.name,
            session=session,
            attempt=attempt,
            sender=self._party,
            recipient=recipient,
            sequence=0,
            acknowledged=0,
            kind=body.kind,
        )
        data = self._sealer.seal(Envelope(header, body))
        await self._link.publish(recipient, "training", data, message_id=header.id)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _status(self, _: Mapping[str, Any], __: OnProgress) -> dict[str, Any]:
        at = self._context
        return {
            "party": self._party,
            "role": "active" if at.is_active else "passive",
            "federation": at.federation.name,
            "parties": list(at.federation.parties),
            "connected": self._link_state.connected,
            "broker": self._link_state.reason,
            "models": len(at.store.ids()),
            "sessions": [each.status() for each in at.sessions.running.values()],
            "idle": [
                f"{each.id} of model {each.model} waits for {at.federation.active} to go on"
                for each in await self._kept.running()
                if each.id not in at.sessions.running
            ],
            "dead_letters": self._link.dead_lettered,
            "dropped": self._counters.dropped,
            "refused": dict(self._counters.refused),
            "sealed": self._sealer.sealed,
            "store": self._database.trouble or self._disk_trouble,
        }

    async def _cancel(self, request: Mapping[str, Any], _: OnProgress) -> dict[str, Any]:
        session, reason = str(request["session"]), f"{self._party} cancelled the session"
        stored = await self._kept.find(session)
        idle = stored is not None and stored.state == "running"
        if idle and session not in self._context.sessions.running:
            await self._kept.end(session, "failed", reason)
            self._reminder.discard(session)
            if session not in self._context.sessions.running:  # nor was it opened meanwhile
                return {"session": session}
        runner = self._context.sessions.live(session).runner
        runner.cancel(reason)
        await runner.written()
        return {"session": session}

    async def _health(self, _: Mapping[str, Any], __: OnProgress) -> dict[str, Any]:
        return self._condition().told()

    async def _reread(self) -> None:
        try:
            await self._take_up_files()
        except FedmqError as error:
            log.error("%s: nothing is taken up: %s", self._party, error)

    async def _take_up_files(self) -> list[str]:
        """Read the party's files anew; what has changed in them that only a restart takes up."""
        async with self._reading:
            newer = await asyncio.to_thread(self._files.read_again)
            fixed = self._files.fixed(newer)
            self._files = self._files.taken_up(newer)
        policy = self._files.config.policy
        self._context.config = self._files.config
        self._context.consent.take_up(policy)
        log.info("%s: keys and policy are taken up", self._party)
        if fixed:
            log.warning("%s: restart to take up what changed in %s", self._party, ", ".join(fixed))
        return fixed

    async def _reload(self, _: Mapping[str, Any], __: OnProgress) -> dict[str, Any]:
        return {"needs_restart": await self._take_up_files()}

    async def _redeliver(self, request: Mapping[str, Any], _: OnProgress) -> dict[str, Any]:
        """Take a dead letter as if it had just come."""
        reason = await self._inbox.take(Redelivery.from_request(request).delivery())
        return {"taken": not reason, "reason": reason}


def _telemetry_of(config: PartyFile) -> Telemetry | None:
    if config.telemetry is None:
        return None
    from fedmq.party.telemetry.spans import Telemetry

    return Telemetry.to(config.telemetry.endpoint, config.party)


def _online_spans_of(
    config: PartyFile, federation: Federation, telemetry: Telemetry | None
) -> OnlineSpans | None:
    if telemetry is None or config.telemetry is None:
        return None
    from fedmq.party.telemetry.serving_spans import OnlineSpans

    return OnlineSpans(telemetry, federation.name, config.party, config.telemetry.scores)
