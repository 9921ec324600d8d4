"""What the owner asks of a daemon as a whole: its status and health, an end, files read again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedmq.party.consent.spent_limits import spent_sums
from fedmq.party.identity.sealer import Sealer
from fedmq.party.online.drift import DriftWatch
from fedmq.party.operations.certificate_expiry import certificate_expiry
from fedmq.party.operations.dead_letters import Redelivery
from fedmq.party.operations.ended_sessions import ended_sessions
from fedmq.party.operations.file_check import FileCheck
from fedmq.party.operations.health import Probe
from fedmq.party.operations.reload import FileReload
from fedmq.party.services.service import Command, PartyContext, Service
from fedmq.party.sessions.recovery import Resumption, StrayMessages
from fedmq.party.sessions.runner import Inbox
from fedmq.party.sessions.sessions import OnProgress
from fedmq.transport.link import Link

__all__ = ["OwnerCommands"]

_ENDED_SHOWN = 10


class OwnerCommands(Service):
    """Answers the commands that are of no session kind."""

    def __init__(
        self,
        context: PartyContext,
        *,
        link: Link,
        inbox: Inbox,
        sealer: Sealer,
        resumption: Resumption,
        stray_messages: StrayMessages,
        probe: Probe,
        reload: FileReload,
        file_check: FileCheck,
        drift: DriftWatch,
    ) -> None:
        super().__init__(context)
        self._link = link
        self._inbox = inbox
        self._sealer = sealer
        self._resumption = resumption
        self._stray_messages = stray_messages
        self._probe = probe
        self._files = reload
        self._file_check = file_check
        self._drift = drift

    @property
    def commands(self) -> Mapping[str, Command]:
        return {
            "status": self._status,
            "sessions": self._sessions,
            "cancel": self._cancel,
            "redeliver": self._redeliver,
            "health": self._health,
            "reload": self._reload,
        }

    async def _status(self, _: Mapping[str, Any], __: OnProgress) -> dict[str, Any]:
        context, counters = self.context, self._inbox.counters
        await self._file_check.look()
        until = certificate_expiry(context.config)
        active = context.federation.active
        trouble = context.session_store.database.trouble or self._stray_messages.disk_trouble
        return {
            "party": context.party,
            "role": "active" if context.is_active else "passive",
            "federation": context.federation.name,
            "parties": list(context.federation.parties),
            "certificate_until": None if until is None else until.isoformat(timespec="seconds"),
            "connected": self._link.state.connected,
            "broker": self._link.state.reason,
            "models": len(context.model_store.ids()),
            "sessions": [session.status() for session in context.sessions.running.values()],
            "ended": await ended_sessions(context, _ENDED_SHOWN),
            "idle": [
                f"{session.id} of model {session.model} waits for {active} to go on"
                for session in await self._resumption.idle()
            ],
            "asked": sum(
                request.state == "waiting" for request in await context.owner_consent.requests()
            ),
            "dead_letters": self._link.dead_lettered,
            "dropped": counters.dropped,
            "refused": dict(counters.refused),
            "sealed": self._sealer.sealed,
            "refusals": dict(self._sealer.refusals),
            "store": trouble,
            "warnings": list(self._probe.health().warnings),
            "answered": None if context.is_active else await self._answered(),
            "drift": self._drift.status(),
        }

    async def _sessions(self, request: Mapping[str, Any], _: OnProgress) -> list[dict[str, Any]]:
        """All that is known of the sessions that run, or have just ended; or of one of them."""
        wanted = request.get("session")
        return [
            session.details()
            for session in self.context.sessions.running.values()
            if wanted in (None, session.id)
        ]

    async def _answered(self) -> dict[str, Any] | None:
        context = self.context
        most = context.config.policy.most_equations_per_row
        return await spent_sums(context.session_store.database, most)

    async def _cancel(self, request: Mapping[str, Any], _: OnProgress) -> dict[str, Any]:
        session = str(request["session"])
        reason = f"{self.context.party} cancelled the session"
        if not await self._resumption.end_idle(session, reason):
            runner = self.context.sessions.live(session).runner
            runner.cancel(reason)
            await runner.written()
        return {"session": session}

    async def _health(self, _: Mapping[str, Any], __: OnProgress) -> dict[str, Any]:
        await self._file_check.look()
        return self._probe.health().described()

    async def _reload(self, _: Mapping[str, Any], __: OnProgress) -> dict[str, Any]:
        return {"needs_restart": await self._files.reload()}

    async def _redeliver(self, request: Mapping[str, Any], _: OnProgress) -> dict[str, Any]:
        """Take a dead letter as if it had just come."""
        reason = await self._inbox.take(Redelivery.from_request(request).delivery())
        return {"taken": not reason, "reason": reason}
