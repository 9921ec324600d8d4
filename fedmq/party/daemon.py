"""The long-running daemon of one party: what starts and stops, in which order."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

from fedmq.party.assembly import assemble
from fedmq.party.compute.freed_memory import keep_freed_memory
from fedmq.party.identity.party_files import PartyFiles
from fedmq.transport.background_tasks import BackgroundTasks
from fedmq.transport.link import LinkState

__all__ = ["Daemon"]

log = logging.getLogger(__name__)


class Daemon:
    """One party of a federation. ``run`` returns when ``stop`` is called.

    ``traces``: a folder for the timeline of each session.
    """

    def __init__(self, files: PartyFiles, traces: Path | None = None) -> None:
        self._party = files.config.party
        self.parts = assemble(files, traces, self._on_link_state)
        self._stopping = asyncio.Event()
        self._reloads = BackgroundTasks()

    def stop(self) -> None:
        """Make ``run`` return."""
        self._stopping.set()

    def reload(self) -> None:
        """Reload changed keys and a changed policy soon; the log reports the result."""
        self._reloads.spawn(self.parts.reload.reload_or_log())

    async def run(self, on_ready: Callable[[], None] = lambda: None) -> None:
        """Serve until ``stop``.

        Raises:
            ConfigError: the state folder cannot be used.
            LinkError: the broker cannot be reached, or refuses.
        """
        parts, closing = self.parts, AsyncExitStack()
        keep_freed_memory()
        try:
            await parts.control.start()
            await parts.context.pool.start()
            await parts.database.open()
            await parts.context.session_store.prune()
            await parts.online.start()
            await parts.link.open(parts.inbox.on_delivery)
            # Tables may be missing for now: the daemon serves the rest, and logs it.
            self._reloads.spawn(parts.file_check.look())
            self._reloads.spawn(parts.reload.record_keys_or_log())
            parts.sealer.greet(parts.context.federation.name)
            parts.resumption.start()
            parts.expiry.start()
            parts.retention.start()
            parts.context.owner_consent.start()
            if parts.http is not None:
                await parts.http.start()
                closing.push_async_callback(parts.http.close)
                log.info("%s serves %s", self._party, parts.http.url)
            on_ready()
            await self._stopping.wait()
        finally:
            self._reloads.cancel()
            parts.resumption.cancel()
            parts.expiry.cancel()
            parts.retention.cancel()
            parts.context.owner_consent.cancel()
            await closing.aclose()
            await parts.control.close()
            await parts.online.close()
            await parts.deployment.close()
            await parts.context.sessions.close(f"{self._party} is shutting down")
            await parts.context.consent.audit.close()
            await parts.sealer.close()
            await parts.link.close()
            await parts.context.pool.close()
            await parts.database.close()
            await parts.control.hang_up()
            if parts.telemetry is not None:
                await asyncio.to_thread(parts.telemetry.close)

    def _on_link_state(self, state: LinkState) -> None:
        log.info("%s: %s", self._party, state.reason)
        self.parts.online.scorer.link_changed(state.connected)
        if state.connected:
            self.parts.sealer.reconnected()
