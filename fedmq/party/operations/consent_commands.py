"""The owner's commands about sessions and activations that wait for consent.

A standing consent is written into the party file.
"""

from __future__ import annotations

import asyncio
import contextlib
import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from fedmq.errors import ConfigError, DaemonError
from fedmq.party.atomic_file import write_atomically
from fedmq.party.configuration.party import PartyFile
from fedmq.party.configuration.policy import StandingConsent
from fedmq.party.configuration.toml_file import parse_toml
from fedmq.party.consent.owner_consent import standing_consent, terms_of, toml_of
from fedmq.party.operations.reload import FileReload
from fedmq.party.services.service import Command, PartyContext, Service, person_of
from fedmq.party.sessions.sessions import OnProgress
from fedmq.party.store.journal import ConsentRequest

__all__ = ["ConsentCommands", "PolicyChange"]


class ConsentCommands(Service):
    """Lists requests, and takes the answers; ``person`` of a command is the one who answers."""

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
        """The change of the party file that would approve similar requests without asking."""
        change = await self._change(str(request["request"]))
        return {"file": str(change.path), "diff": change.diff}

    async def _approve(self, request: Mapping[str, Any], _: OnProgress) -> dict[str, Any]:
        """Approve; with the ``diff`` of ``alike`` also all similar requests."""
        asked, by = str(request["request"]), person_of(request)
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
        asked, by = str(request["request"]), person_of(request)
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


@dataclass(frozen=True, slots=True)
class PolicyChange:
    """The text ``before`` of the party file at ``path``, and the ``entry`` to append."""

    path: Path
    before: str
    entry: str

    @classmethod
    def adding(cls, path: Path, standing: StandingConsent) -> PolicyChange:
        """The change that adds ``standing``; comments and order of the file stay.

        Raises:
            ConfigError: the file cannot be read, or has no place for it.
        """
        try:
            before = path.read_text(encoding="utf-8-sig")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{path}: cannot be read: {error}") from None
        change = cls(path, before, toml_of(standing))
        change._check(standing)
        return change

    @property
    def after(self) -> str:
        """The text with the entry at its end."""
        return f"{self.before.rstrip()}\n\n{self.entry}"

    @property
    def diff(self) -> str:
        """The change in the format of ``diff -u``."""
        lines = difflib.unified_diff(
            self.before.splitlines(keepends=True),
            self.after.splitlines(keepends=True),
            self.path.name,
            self.path.name,
            n=0,  # surrounding lines may be secret, such as a password
        )
        return "".join(lines)

    def write(self) -> None:
        """Replace the file; ConfigError with what to write by hand if the daemon cannot."""
        try:
            mode = self.path.stat().st_mode & 0o777
            write_atomically(self.path, self.after, mode)
        except OSError as error:
            raise ConfigError(
                f"{self.path}: cannot be written by the daemon: {error.strerror}; write these "
                "lines at its end by hand, then send the daemon SIGHUP:\n"
                f"{self.entry.rstrip()}"
            ) from None

    def _check(self, standing: StandingConsent) -> None:
        """ConfigError unless the file reads as it did, with ``standing`` at the end."""
        kept = parse_toml(self.before, self.path, PartyFile)
        wanted = kept.policy.model_copy(update={"approved": (*kept.policy.approved, standing)})
        with contextlib.suppress(ConfigError):
            changed = parse_toml(self.after, self.path, PartyFile)
            if changed == kept.model_copy(update={"policy": wanted}):
                return
        raise ConfigError(
            f"{self.path}: has no place for [[policy.approved]]; write it by hand: "
            f"{' '.join(self.entry.split())}"
        )
