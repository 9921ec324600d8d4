"""The owner's general commands: status, parties, own data, shutdown."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from fedmq.errors import ConfigError
from fedmq.party.configuration.federation import add_party
from fedmq.party.configuration.job import FallbackJob, TrainingJob
from fedmq.party.consent.terms import spent_sums
from fedmq.party.data.descriptions import describe_table
from fedmq.party.identity.joining import JoinRequest, waiting_requests
from fedmq.party.identity.sealer import RELEASE, Sealer
from fedmq.party.online.drift import DriftWatch
from fedmq.party.operations.dead_letters import Redelivery
from fedmq.party.operations.health import FileCheck, Probe, certificate_expiry
from fedmq.party.operations.record_commands import ended_sessions
from fedmq.party.operations.reload import FileReload
from fedmq.party.services.service import Command, PartyContext, Service
from fedmq.party.sessions.recovery import Resumption, UnexpectedMessages
from fedmq.party.sessions.runner import Inbox
from fedmq.party.sessions.sessions import OnProgress
from fedmq.party.store.alignments import AlignmentStore
from fedmq.party.store.documents import made_screens
from fedmq.party.store.journal import StoredSession
from fedmq.party.telemetry.metrics import Counters
from fedmq.transport.link import Link

__all__ = ["DataCommands", "OwnerCommands", "PartyCommands"]

_ENDED_SHOWN = 10
_MAX_BIN = 256
_FEWEST_BINS, _MOST_BINS = 2, 65535


class OwnerCommands(Service):
    """Answers the commands that belong to no session kind."""

    def __init__(
        self,
        context: PartyContext,
        *,
        link: Link,
        inbox: Inbox,
        sealer: Sealer,
        resumption: Resumption,
        unexpected_messages: UnexpectedMessages,
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
        self._unexpected_messages = unexpected_messages
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
            "noted": self._noted,
        }

    async def _status(self, _: Mapping[str, Any], __: OnProgress) -> dict[str, Any]:
        context, counters = self.context, self._inbox.counters
        await self._file_check.look()
        until = certificate_expiry(context.config)
        active = context.federation.active
        trouble = context.session_store.database.trouble or self._unexpected_messages.disk_trouble
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
                f"{session.id} of model {session.model} waits for {_awaited(session, active)}"
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
            "retention": context.config.policy.retention.periods,
        }

    async def _sessions(self, request: Mapping[str, Any], _: OnProgress) -> list[dict[str, Any]]:
        """The state of all running and recently ended sessions, or of one session."""
        wanted = request.get("session")
        return [
            session.details()
            for session in self.context.sessions.running.values()
            if wanted in (None, session.id)
        ]

    async def _answered(self) -> dict[str, Any] | None:
        context = self.context
        limit = context.config.policy.sums_bound
        return await spent_sums(context.session_store.database, limit)

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

    async def _noted(self, _: Mapping[str, Any], __: OnProgress) -> dict[str, Any]:
        """Nothing: the command line has done it, and the control socket has audited it."""
        return {}

    async def _redeliver(self, request: Mapping[str, Any], _: OnProgress) -> dict[str, Any]:
        """Process a dead letter as a new delivery."""
        reason = await self._inbox.take(Redelivery.from_request(request).delivery())
        return {"taken": not reason, "reason": reason}


class PartyCommands(Service):
    """Lists and admits parties. ``counters`` know when each party was last heard."""

    def __init__(self, context: PartyContext, reload: FileReload, counters: Counters) -> None:
        super().__init__(context)
        self._reload = reload
        self._counters = counters

    @property
    def commands(self) -> Mapping[str, Command]:
        return {
            "parties": self._parties,
            "join_requests": self._join_requests,
            "admit": self._admit,
        }

    async def _join_requests(self, _: Mapping[str, Any], __: OnProgress) -> list[dict[str, str]]:
        """What waits in the folder of join requests."""
        federation = self.context.federation
        members = {party: federation.pinned(party) for party in federation.parties}
        folder = self.context.config.requests
        return [asdict(each) for each in await asyncio.to_thread(waiting_requests, folder, members)]

    async def _parties(self, _: Mapping[str, Any], __: OnProgress) -> list[dict[str, Any]]:
        """All parties, the active party first."""
        federation, refusals = self.context.federation, self.context.sealer.refusals
        releases = {**self.context.sealer.releases, self.context.party: RELEASE}
        return [
            {
                "party": name,
                "role": "active" if name == federation.active else "passive",
                "own": name == self.context.party,
                "fingerprints": [keys.fingerprint for keys in federation.pinned(name)],
                "heard": self._heard(name),
                "refusal": refusals.get(name, ""),
                "release": releases.get(name, ""),
            }
            for name in federation.parties
        ]

    def _heard(self, party: str) -> str | None:
        at = self._counters.heard.get(party)
        if at is None:
            return None
        return datetime.fromtimestamp(at).astimezone().isoformat(timespec="seconds")

    async def _admit(self, request: Mapping[str, Any], _: OnProgress) -> dict[str, Any]:
        """Admit the party of a join request if ``fingerprint`` matches.

        The request is the ``text``, or that of the ``file`` in the folder of join requests.
        """
        name = str(request.get("file") or "")
        if name:
            waiting = self.context.config.requests / Path(name).name
            asked = await asyncio.to_thread(JoinRequest.read, waiting)
        else:
            asked = JoinRequest.parse(str(request.get("text") or ""), "the join request")
        federation = self.context.federation
        asked.check(federation.name, str(request.get("fingerprint") or ""), "the join request")
        path = self.context.config.federation
        await asyncio.to_thread(add_party, path, asked.party, asked.public)
        await self._reload.reload()
        if asked.party not in self.context.federation.parties:
            raise ConfigError(f"{path}: {asked.party} is written into it, and not taken up")
        return {"party": asked.party}


class DataCommands(Service):
    """Describes the table, which it reads on request and caches, and the alignments."""

    def __init__(self, context: PartyContext) -> None:
        super().__init__(context)
        self._reading = asyncio.Lock()
        self._described: dict[str, Any] | None = None
        self._alignments: dict[tuple[str, int], dict[str, Any]] = {}
        """By name and time of the file: a file may hold millions of ids."""

    @property
    def commands(self) -> Mapping[str, Command]:
        return {
            "data": self._data,
            "alignments": self._list_alignments,
            "last_screen": self._last_screen,
        }

    async def _data(self, request: Mapping[str, Any], _: OnProgress) -> dict[str, Any]:
        """The table as last read; with ``again`` it is read anew."""
        max_bin = int(request.get("max_bin") or _MAX_BIN)
        if not _FEWEST_BINS <= max_bin <= _MOST_BINS:
            raise ConfigError(f"max_bin: write a number from {_FEWEST_BINS} to {_MOST_BINS}")
        async with self._reading:
            known = self._described
            if known is None or request.get("again") or known["max_bin"] != max_bin:
                context = self.context
                describe = describe_table.bind(context.party, context.config.data, max_bin)
                read = datetime.now().astimezone().isoformat(timespec="seconds")
                found: dict[str, Any] = await context.pool.run(describe)
                self._described = known = {**found, "read": read}
        return known

    async def _list_alignments(self, _: Mapping[str, Any], __: OnProgress) -> list[dict[str, Any]]:
        """The stored alignments, the oldest first."""
        return await asyncio.to_thread(self._read_alignments)

    async def _last_screen(self, _: Mapping[str, Any], __: OnProgress) -> dict[str, Any] | None:
        """The screen that this party made last; None if there is none."""
        return await asyncio.to_thread(self._read_last_screen)

    def _read_last_screen(self) -> dict[str, Any] | None:
        screens = made_screens(self.context.config.state)
        names = screens.names()
        return screens.read(names[-1]).model_dump() if names else None

    def _read_alignments(self) -> list[dict[str, Any]]:
        store = AlignmentStore(self.context.config.state)
        found = {}
        for name in store.names():
            key = name, store.path(name).stat().st_mtime_ns
            found[key] = self._alignments.get(key) or store.described(name)
        self._alignments = found
        return list(found.values())


def _awaited(session: StoredSession, active: str) -> str:
    """For what a session waits that has no attempt here."""
    job = TrainingJob.of_stored(session.job) if session.job else None
    return "the training before it" if isinstance(job, FallbackJob) else f"{active} to go on"
