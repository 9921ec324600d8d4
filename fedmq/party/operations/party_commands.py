"""What the owner asks about the parties of the federation: who they are, and who may join."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from fedmq.errors import ConfigError
from fedmq.party.configuration.membership import add_party
from fedmq.party.identity.join_request import JoinRequest
from fedmq.party.operations.reload import FileReload
from fedmq.party.services.service import Command, PartyContext, Service
from fedmq.party.sessions.sessions import OnProgress
from fedmq.party.telemetry.metrics import Counters

__all__ = ["PartyCommands"]


class PartyCommands(Service):
    """Lists the parties, and lets newcomers in. ``counters`` know when each was heard."""

    def __init__(self, context: PartyContext, reload: FileReload, counters: Counters) -> None:
        super().__init__(context)
        self._reload = reload
        self._counters = counters

    @property
    def commands(self) -> Mapping[str, Command]:
        return {"parties": self._parties, "admit": self._admit}

    async def _parties(self, _: Mapping[str, Any], __: OnProgress) -> list[dict[str, Any]]:
        """All parties, the label holder first."""
        federation, refusals = self.context.federation, self.context.sealer.refusals
        return [
            {
                "party": name,
                "role": "active" if name == federation.active else "passive",
                "own": name == self.context.party,
                "fingerprints": [keys.fingerprint for keys in federation.pinned(name)],
                "heard": self._heard(name),
                "refusal": refusals.get(name, ""),
            }
            for name in federation.parties
        ]

    def _heard(self, party: str) -> str | None:
        at = self._counters.heard.get(party)
        if at is None:
            return None
        return datetime.fromtimestamp(at).astimezone().isoformat(timespec="seconds")

    async def _admit(self, request: Mapping[str, Any], _: OnProgress) -> dict[str, Any]:
        """Let the newcomer take part that made a join request, if ``fingerprint`` is its own."""
        asked = JoinRequest.parse(str(request.get("text") or ""), "the join request")
        federation = self.context.federation
        asked.check(federation.name, str(request.get("fingerprint") or ""), "the join request")
        path = self.context.config.federation
        await asyncio.to_thread(add_party, path, asked.party, asked.public)
        await self._reload.reload()
        if asked.party not in self.context.federation.parties:
            raise ConfigError(f"{path}: {asked.party} is written into it, and not taken up")
        return {"party": asked.party}
