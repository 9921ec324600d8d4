"""Changed keys and a changed policy, taken over without a restart."""

from __future__ import annotations

import asyncio
import logging

from fedmq.errors import FedmqError
from fedmq.party.identity.party_files import PartyFiles
from fedmq.party.services.service import PartyContext

__all__ = ["FileReload"]

log = logging.getLogger(__name__)


class FileReload:
    """Reads a party's ``files`` again, and has its daemon go by what they say now."""

    def __init__(self, files: PartyFiles, context: PartyContext) -> None:
        self._files = files
        self._context = context
        self._reading = asyncio.Lock()

    async def reload(self) -> list[str]:
        """Read the files; what has changed in them that only a restart takes up.

        Raises:
            ConfigError: naming file and key; nothing has changed then.
        """
        async with self._reading:
            newer = await asyncio.to_thread(self._files.read_again)
            needs_restart = self._files.needs_restart(newer)
            self._files = self._files.reloaded(newer)
        self._context.config = self._files.config
        self._context.consent.reload(self._files.config.policy)
        party = self._context.party
        log.info("%s: keys and policy are taken up", party)
        if needs_restart:
            log.warning(
                "%s: restart to take up what changed in %s", party, ", ".join(needs_restart)
            )
        return needs_restart

    async def reload_or_log(self) -> None:
        """The same for somebody who only reads the log."""
        try:
            await self.reload()
        except FedmqError as error:
            log.error("%s: nothing is taken up: %s", self._context.party, error)
