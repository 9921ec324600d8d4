"""Reloading of parties, keys, certificate and policy without a restart."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import os
import ssl
from pathlib import Path

from fedmq.errors import FedmqError
from fedmq.party.configuration.federation import Federation
from fedmq.party.configuration.party import PartyFile
from fedmq.party.configuration.policy import PolicySection
from fedmq.party.consent.audit_log import AuditLog, AuditSearch
from fedmq.party.identity.party_files import PartyFiles
from fedmq.party.online.scoring import Scorer
from fedmq.party.operations.broker import BrokerAccess
from fedmq.party.services.service import PartyContext

__all__ = ["FileReload"]

log = logging.getLogger(__name__)


class FileReload:
    """Reads a party's ``files`` again, and applies them to its daemon."""

    def __init__(
        self,
        files: PartyFiles,
        context: PartyContext,
        scorer: Scorer,
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        self._files = files
        self._context = context
        self._scorer = scorer
        self._ssl_context = ssl_context
        self._reading = asyncio.Lock()
        self._recording = asyncio.Lock()

    @property
    def path(self) -> Path:
        """The party's own file."""
        return self._files.path

    def stale(self) -> tuple[str, ...]:
        """Warnings for the owner if the party's files are newer than what holds."""
        path, config, federation = self._files.path, self._files.config, self._files.federation
        try:
            newer, members = PartyFile.read(path)
        except FedmqError as error:
            return (f"{error}; the daemon keeps the file that it started with",)
        changed = config.changed_keys(newer)
        policy = [
            f"policy.{name}"
            for name in type(config.policy).model_fields
            if getattr(config.policy, name) != getattr(newer.policy, name)
        ]
        before = "changed, and what was there before holds; apply this with: kill -HUP"
        lines = [
            f"{path}: {', '.join(changed)} changed; restart the daemon to apply this",
            f"{path}: {', '.join(policy)} {before} {os.getpid()}",
            f"{config.federation}: it {before} {os.getpid()}",
        ]
        holds = (changed, policy, federation != members)
        return tuple(line for line, new in zip(lines, holds, strict=True) if new)

    async def reload(self) -> list[str]:
        """Read the files; returns the changes that need a restart.

        Raises:
            ConfigError: naming file and key; nothing has changed then.
        """
        async with self._reading:
            newer = await asyncio.to_thread(self._files.read_again)
            await asyncio.to_thread(self._check_certificate)
            needs_restart = self._files.needs_restart(newer)
            self._files = self._files.reloaded(newer)
        left = set(self._context.federation.parties) - set(self._files.federation.parties)
        self._context.config = self._files.config
        self._context.federation = self._files.federation
        self._scorer.members = self._files.federation.parties
        for party in left:
            self._context.sessions.cancel_with(party, f"{party} has left the federation")
        self._renew_certificate()
        self._context.consent.reload(self._files.config.policy)
        await self._context.owner_consent.reconsider()
        party = self._context.party
        log.info("%s: new parties, keys and policy apply", party)
        if needs_restart:
            log.warning("%s: restart to apply the changes of %s", party, ", ".join(needs_restart))
        await self.record_keys()
        return needs_restart

    async def record_keys(self) -> None:
        """Record the pinned keys and the policy in the audit log, unless they were recorded last.

        Raises:
            ConfigError: the disk refuses.
            DataError: the log was tampered with.
        """
        async with self._recording:
            audit_log = self._context.consent.audit.log
            await asyncio.to_thread(_record_keys, audit_log, self._files.federation)
            await asyncio.to_thread(_record_policy, audit_log, self._files.config.policy)

    def _check_certificate(self) -> None:
        """Raise ConfigError if the present files would not allow the next connection."""
        config = self._files.config
        BrokerAccess.of(config).check_owner(config)

    def _renew_certificate(self) -> None:
        """Use the present certificate from the next connection on."""
        tls = self._files.config.tls
        if tls is None or tls.certificate is None or self._ssl_context is None:
            return
        try:
            self._ssl_context.load_cert_chain(tls.certificate, tls.key)
        except (OSError, ssl.SSLError) as error:
            log.error("tls: %s and its key cannot be used: %s", tls.certificate, error)

    async def record_keys_or_log(self) -> None:
        """As `record_keys`, but log an error instead of raising it."""
        try:
            await self.record_keys()
        except FedmqError as error:
            log.error("%s: pinned keys are not recorded: %s", self._context.party, error)

    async def reload_or_log(self) -> None:
        """As `reload`, but log an error instead of raising it."""
        try:
            await self.reload()
        except FedmqError as error:
            log.error("%s: no change applies: %s", self._context.party, error)


_KEYS_PINNED = "keys pinned"


def _record_keys(audit_log: AuditLog, federation: Federation) -> None:
    pinned = {
        party: [key.fingerprint for key in federation.pinned(party)]
        for party in federation.parties
        if federation.keys
    }
    last = AuditSearch(event=_KEYS_PINNED).entries(audit_log, 1)
    before = last[0]["pinned"] if last else {}
    if pinned == before:
        return
    changed = {
        party: {"before": before.get(party, []), "now": pinned.get(party, [])}
        for party in {**before, **pinned}
        if last and before.get(party) != pinned.get(party)
    }
    audit_log.record(_KEYS_PINNED, pinned=pinned, **({"changed": changed} if changed else {}))


_POLICY_HOLDS = "policy holds"


def _record_policy(audit_log: AuditLog, policy: PolicySection) -> None:
    """By key, its hash: what the owner writes there is seen to change, and not shown."""
    now = {
        key: hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
        for key, value in policy.model_dump(mode="json").items()
    }
    last = AuditSearch(event=_POLICY_HOLDS).entries(audit_log, 1)
    before = last[0]["hashes"] if last else {}
    if now != before:
        changed = [key for key in {**before, **now} if before.get(key) != now.get(key)]
        audit_log.record(_POLICY_HOLDS, hashes=now, **({"changed": changed} if last else {}))
