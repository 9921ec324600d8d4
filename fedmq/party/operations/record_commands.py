"""The owner's commands about records: audit log, ended sessions and dead letters."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from fedmq.errors import DaemonError, FedmqError
from fedmq.party.consent.audit_log import AuditSearch
from fedmq.party.operations.dead_letters import DeadLetterBox, Redelivery
from fedmq.party.services.service import Command, PartyContext, Service
from fedmq.party.sessions.runner import Inbox
from fedmq.party.sessions.sessions import OnProgress
from fedmq.party.store.alignments import AlignmentStore

__all__ = ["RecordCommands", "ended_sessions"]

_MOST_ENTRIES = 1000
_HISTORY = 50


class RecordCommands(Service):
    """Answers the commands about records. Letters are redelivered to ``inbox``."""

    def __init__(self, context: PartyContext, inbox: Inbox) -> None:
        super().__init__(context)
        self._inbox = inbox
        self._letters = asyncio.Lock()
        """One look at a time: a look holds the letters, and a second one would find none."""

    @property
    def commands(self) -> Mapping[str, Command]:
        return {
            "audit_log": self._audit_log,
            "verify_audit_log": self._verify,
            "history": self._history,
            "dead_letters": self._dead_letters,
            "requeue": self._requeue,
            "drop": self._drop,
        }

    async def _audit_log(self, request: Mapping[str, Any], _: OnProgress) -> list[dict[str, Any]]:
        """The newest entries that match the search."""
        before = request.get("before")
        search = AuditSearch(
            str(request.get("event") or ""),
            str(request.get("peer") or ""),
            str(request.get("text") or ""),
            None if before is None else int(before),
        )
        limit = min(int(request.get("most") or _MOST_ENTRIES), _MOST_ENTRIES)
        return await asyncio.to_thread(search.entries, self.context.consent.audit.log, limit)

    async def _verify(self, _: Mapping[str, Any], __: OnProgress) -> dict[str, Any]:
        """The number of chained entries; a broken chain is reported, not raised."""
        try:
            entries, last = await asyncio.to_thread(self.context.consent.audit.log.verified)
        except FedmqError as error:
            return {"unbroken": False, "reason": str(error)}
        return {"unbroken": True, "entries": entries, "hash": last}

    async def _history(self, _: Mapping[str, Any], __: OnProgress) -> list[dict[str, Any]]:
        """The remembered ended sessions, the oldest first."""
        return await ended_sessions(self.context, _HISTORY)

    async def _dead_letters(self, _: Mapping[str, Any], __: OnProgress) -> list[dict[str, Any]]:
        """The letters, the oldest first."""
        context = self.context
        async with self._letters, DeadLetterBox.opened(context.config, context.federation) as box:
            return [letter.described() for letter in await box.letters()]

    async def _requeue(self, request: Mapping[str, Any], _: OnProgress) -> dict[str, Any]:
        """Process a letter again; it stays a dead letter if it is refused again."""
        wanted, context = _letter(request), self.context
        async with self._letters, DeadLetterBox.opened(context.config, context.federation) as box:
            letter = (await box.letters(frozenset({wanted})))[0]
            delivery = Redelivery.from_request(letter.request()).delivery()
            reason = await self._inbox.take(delivery)
            if not reason:
                await box.drop(letter)
        return {"letter": wanted, "taken": not reason, "reason": reason}

    async def _drop(self, request: Mapping[str, Any], _: OnProgress) -> dict[str, Any]:
        """Remove a letter for good."""
        wanted, context = _letter(request), self.context
        async with self._letters, DeadLetterBox.opened(context.config, context.federation) as box:
            for letter in await box.letters(frozenset({wanted})):
                await box.drop(letter)
        return {"letter": wanted}


def _letter(request: Mapping[str, Any]) -> str:
    letter = str(request.get("letter") or "")
    if not letter:
        raise DaemonError("name a letter; see: fedmq dead list")
    return letter


async def ended_sessions(context: PartyContext, limit: int) -> list[dict[str, Any]]:
    """The last ``limit``, the oldest first, as plain data; ``reason`` is empty where one finished.

    Of those before the start only trainings and finished alignments are remembered.
    """
    recent = context.sessions.ended
    known = {session.id for session in recent}
    before = [
        {
            "session": made["session"],
            "purpose": "alignment",
            "model": made["name"],
            "ended": made["made"],
            "reason": "",
        }
        for made in await asyncio.to_thread(AlignmentStore(context.config.state).made)
        if made["session"] not in known
    ]
    before += [
        {
            "session": session.id,
            "purpose": "training",
            "model": session.model,
            "ended": datetime.fromtimestamp(at).astimezone().isoformat(timespec="seconds"),
            "reason": session.why,
        }
        for session, at in await context.session_store.ended(limit)
        if session.id not in known
    ]
    # Within a second an alignment comes first: it may be that of the training.
    before.sort(key=lambda ended: datetime.fromisoformat(ended["ended"]).replace(microsecond=0))
    after = [
        {
            "session": session.id,
            "purpose": session.purpose,
            "model": session.model,
            "ended": session.ended.isoformat(timespec="seconds"),
            "reason": session.reason,
        }
        for session in recent
    ]
    return [*before, *after][-limit:]
