"""The long-running daemon of one party: a link, its sessions, its desks, and a control socket."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedmq.errors import ConfigError, DaemonError, LinkError, Replayed
from fedmq.messages.body import Abort, Acknowledge
from fedmq.messages.envelope import Envelope, Header
from fedmq.party.audit_log import AuditLog
from fedmq.party.broker_access import BrokerAccess
from fedmq.party.compute import ProcessPool
from fedmq.party.configuration.federation import Federation
from fedmq.party.configuration.party import PartyFile
from fedmq.party.consent import Consent
from fedmq.party.control import Command, ControlServer, Say
from fedmq.party.dask_pool import DaskPool
from fedmq.party.dead_letters import DeadLetterNotes, Redelivery
from fedmq.party.desks.alignment import AlignmentDesk
from fedmq.party.desks.desk import Opening, Premises
from fedmq.party.desks.inference import InferenceDesk
from fedmq.party.desks.serving import ServingDesk
from fedmq.party.desks.training import TrainingDesk
from fedmq.party.meters import Meters, Standing
from fedmq.party.model_store import ModelStore
from fedmq.party.openings import Openings
from fedmq.party.runner import SessionRunner
from fedmq.party.sealer import Sealer, sealer_of
from fedmq.party.sessions import Sessions
from fedmq.party.switchboard import Switchboard
from fedmq.privacy.large_array import limit_memory
from fedmq.transport.link import LinkState
from fedmq.transport.rabbitmq import RabbitMQLink

if TYPE_CHECKING:
    from fedmq.party.http.server import HttpServer

__all__ = ["Daemon"]

log = logging.getLogger(__name__)


class Daemon:
    """One party of a federation. ``run`` returns when ``stop`` is called.

    ``traces``: a folder for the timeline of each session. ``sealer``: made from the party's files
    when left out; ConfigError if it cannot be.
    """

    def __init__(
        self,
        config: PartyFile,
        federation: Federation,
        traces: Path | None = None,
        sealer: Sealer | None = None,
    ) -> None:
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
        )
        limit_memory(config.compute.memory_bytes, config.state)
        compute = config.compute
        pool = DaskPool(compute.dask) if compute.dask else ProcessPool(compute.workers)
        self._sealer = sealer or sealer_of(config, federation)
        self._opened = Openings(config.state)
        notes = DeadLetterNotes(config.state)
        self._meters = Meters()
        self._switchboard = Switchboard(
            federation.name,
            config.party,
            self._on_unknown,
            self._on_online,
            self._sealer,
            notes.add,
            self._meters,
        )
        sessions = Sessions(
            federation.name,
            self._link,
            self._switchboard,
            pool,
            config.retry,
            traces,
            self._sealer,
            self._meters,
            config.recordings,
        )
        store = ModelStore(config.state)
        consent = Consent(config.party, config.policy, AuditLog(config.state))
        self._premises = Premises(config, federation, store, pool, sessions, consent)
        self._serving = ServingDesk(self._premises, self._link, self._sealer)
        desks = (
            AlignmentDesk(self._premises),
            TrainingDesk(self._premises),
            InferenceDesk(self._premises),
            self._serving,
        )
        self._openings: dict[type, Opening] = {}
        self._commands: dict[str, Command] = {
            "status": self._status,
            "cancel": self._cancel,
            "redeliver": self._redeliver,
            "health": self._health,
        }
        for desk in desks:
            self._openings |= desk.openings
            self._commands |= desk.commands
        self._replies: set[asyncio.Task[None]] = set()

    def stop(self) -> None:
        """Let ``run`` come to its end."""
        self._stopping.set()

    async def run(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """Serve until ``stop``.

        Raises:
            ConfigError: the state folder cannot be used.
            LinkError: the broker cannot be reached, or refuses.
        """
        control = ControlServer(self._premises.config.state, self._commands)
        closing = AsyncExitStack()
        try:
            await control.start()
            await self._premises.pool.start()
            await self._serving.start()
            await self._link.open(self._switchboard.on_delivery)
            http = self._http_server()
            if http is not None:
                await http.start()
                closing.push_async_callback(http.close)
                log.info("%s serves %s", self._party, http.url)
            on_ready()
            await self._stopping.wait()
        finally:
            await closing.aclose()
            await control.close()
            await self._serving.close()
            await self._premises.sessions.close(f"{self._party} is shutting down")
            await self._link.close()
            await self._premises.pool.close()

    def _http_server(self) -> HttpServer | None:
        section = self._premises.config.http
        if section is None:
            return None
        try:
            from fedmq.party.http.health import health_router
            from fedmq.party.http.metrics import metrics_router
            from fedmq.party.http.predict import predict_router
            from fedmq.party.http.server import HttpServer
        except ImportError:
            raise ConfigError(
                "[http] needs more packages; run: pip install 'fedmq[http]'"
            ) from None
        routers = [health_router(self._troubles), metrics_router(self._meters, self._standing)]
        if self._premises.is_active:
            routers.append(predict_router(self._serving.counter))
        return HttpServer(section, routers)

    def _troubles(self) -> list[str]:
        """Why no session can be served now, in a line each."""
        link = self._link_state
        return [] if link.connected else [f"the broker is not connected: {link.reason}"]

    def _standing(self) -> Standing:
        running = self._premises.sessions.running.values()
        live = [each for each in running if not each.runner.session.over]
        return Standing(
            self._link_state.connected,
            self._link.dead_lettered,
            Counter((each.purpose, each.status()["state"]) for each in live),
            sum(len(each.waiting) for each in live),
        )

    def _on_link_state(self, state: LinkState) -> None:
        self._link_state = state
        log.info("%s: %s", self._party, state.reason)

    def _on_unknown(self, envelope: Envelope) -> SessionRunner | None:
        header, body = envelope.header, envelope.body
        opening = self._openings.get(type(body))
        joins = opening and header.sender == self._premises.federation.active != self._party
        if opening and joins and self._opened.is_first(header):
            return opening(envelope).runner
        if not isinstance(body, Abort | Acknowledge):
            task = asyncio.create_task(self._disown(header))
            self._replies.add(task)
            task.add_done_callback(self._replies.discard)
        if joins:
            raise Replayed(f"{header.sender} opened session {header.session} here before")
        return None

    def _on_online(self, envelope: Envelope) -> None:
        self._serving.on_online(envelope)

    async def _disown(self, header: Header) -> None:
        """Tell a peer that its session is unknown here, so that it does not wait in vain."""
        body = Abort(reason=f"{self._party} does not know this session; it may have been restarted")
        reply = header.model_copy(
            update={
                "id": f"{header.session}/{header.attempt}/{self._party}/{header.sender}/unknown",
                "sender": self._party,
                "recipient": header.sender,
                "sequence": 0,
                "acknowledged": 0,
                "kind": body.kind,
            }
        )
        data = self._sealer.seal(Envelope(reply, body))
        try:
            await self._link.publish(header.sender, "training", data, message_id=reply.id)
        except LinkError as error:
            log.warning("%s: could not answer %s: %s", self._party, header.sender, error)

    async def _status(self, _: Mapping[str, Any], __: Say) -> dict[str, Any]:
        at = self._premises
        return {
            "party": self._party,
            "role": "active" if at.is_active else "passive",
            "federation": at.federation.name,
            "parties": list(at.federation.parties),
            "connected": self._link_state.connected,
            "broker": self._link_state.reason,
            "models": len(at.store.ids()),
            "sessions": [each.status() for each in at.sessions.running.values()],
            "dead_letters": self._link.dead_lettered,
            "dropped": self._meters.dropped,
            "refused": dict(self._meters.refused),
            "sealed": self._sealer.sealed,
        }

    async def _cancel(self, request: Mapping[str, Any], _: Say) -> dict[str, Any]:
        running = self._premises.sessions.running.get(str(request["session"]))
        if running is None or running.runner.session.over:
            raise DaemonError(f"session {request['session']} does not run here; see: fedmq status")
        running.runner.cancel(f"{self._party} cancelled the session")
        return {"session": running.id}

    async def _health(self, _: Mapping[str, Any], __: Say) -> dict[str, Any]:
        reasons = self._troubles()
        return {"ready": not reasons, "reasons": reasons}

    async def _redeliver(self, request: Mapping[str, Any], _: Say) -> dict[str, Any]:
        """Take a dead letter as if it had just come."""
        letter = Redelivery.from_request(request)
        await self._switchboard.on_delivery(letter.delivery())
        return {"taken": letter.refusal is None, "reason": letter.refusal or ""}
