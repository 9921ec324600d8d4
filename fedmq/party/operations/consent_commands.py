"""What the owner asks about sessions that wait for its consent, and answers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from fedmq.errors import ConfigError, DaemonError
from fedmq.party.consent.owner_consent import terms_of
from fedmq.party.consent.standing import standing_consent
from fedmq.party.operations.policy_file import PolicyChange
from fedmq.party.operations.reload import FileReload
from fedmq.party.services.service import Command, PartyContext, Service
from fedmq.party.sessions.sessions import OnProgress
from fedmq.party.store.journal import ConsentRequest

__all__ = ["ConsentCommands"]


class ConsentCommands(Service):
    """Lists requests, and takes the owner's answers; ``by`` of a request is who gives it."""

    def __init__(self, context: PartyContext, reload: FileReload) -> None:
        super().__init__(context)
        self._reload = reload
        self._changing = asyncio.Lock()

    @property
    def commands(self) -> Mapping[str, Command]:
        return {
            "inbox": self._inbox,
            "approve": self._approve,
            "refuse": self._refuse,
            "alike": self._alike,
        }

    async def _inbox(self, _: Mapping[str, Any], __: OnProgress) -> list[dict[str, Any]]:
        """All requests that are remembered, the oldest first."""
        return [_described(request) for request in await self.context.owner_consent.requests()]

    async def _alike(self, request: Mapping[str, Any], _: OnProgress) -> dict[str, Any]:
        """How the party file would change so that alike requests are not asked about."""
        change = await self._change(str(request["request"]))
        return {"file": str(change.path), "diff": change.diff}

    async def _approve(self, request: Mapping[str, Any], _: OnProgress) -> dict[str, Any]:
        """Agree; with the ``diff`` of ``alike`` also to all that is alike."""
        asked, by = str(request["request"]), str(request["by"])
        consent = self.context.owner_consent
        if diff := request.get("diff"):
            async with self._changing:
                change = await self._change(asked)
                if change.diff != diff:
                    raise DaemonError(
                        f"{change.path} has changed since it was shown; look at the change again"
                    )
                await consent.approve(asked, by)
                try:
                    await asyncio.to_thread(change.write)
                except ConfigError as error:
                    raise ConfigError(f"request {asked} is approved, but {error}") from None
                await self._reload.reload()
        else:
            await consent.approve(asked, by)
        return {"request": asked, "state": "approved"}

    async def _refuse(self, request: Mapping[str, Any], _: OnProgress) -> dict[str, Any]:
        asked, by = str(request["request"]), str(request["by"])
        await self.context.owner_consent.refuse(asked, str(request.get("reason") or ""), by)
        return {"request": asked, "state": "refused"}

    async def _change(self, request: str) -> PolicyChange:
        asked = await self.context.owner_consent.waiting(request)
        standing = standing_consent(terms_of(asked))
        return await asyncio.to_thread(PolicyChange.adding, self._reload.path, standing)


def _described(request: ConsentRequest) -> dict[str, Any]:
    return {
        "request": request.id,
        "session": request.session,
        "kind": request.kind,
        "peer": request.peer,
        "name": request.name,
        "asked": _at(request.asked),
        "until": _at(request.until),
        "state": request.state,
        "reason": request.reason,
        "decided_by": request.decided_by,
        "decided": _at(request.decided) if request.decided else None,
        "terms": dict(request.terms),
    }


def _at(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="seconds")
