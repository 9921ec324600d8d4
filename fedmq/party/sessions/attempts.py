"""When a session begins anew, and when it is over: the attempts of the party that drives it."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from random import Random
from typing import TYPE_CHECKING, Any

from fedmq.errors import FedmqError, PeerSilent
from fedmq.transport.backoff import Backoff

if TYPE_CHECKING:
    from fedmq.party.sessions.runner import SessionRunner
    from fedmq.party.sessions.running import OnProgress, RunningSession
    from fedmq.party.telemetry.traffic import Traffic

__all__ = ["AttemptLoop", "attempt_after_restart", "first_of"]

log = logging.getLogger(__name__)

_BETWEEN = Backoff(first=0.05, limit=5.0)

OnChange = Callable[["RunningSession"], None]
OpenAttempt = Callable[[int, OnChange], Awaitable["RunningSession"]]


async def first_of(*futures: asyncio.Future[Any]) -> None:
    """Return when one of ``futures`` is done."""
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)


def attempt_after_restart(last: int, elapsed: float) -> int:
    """The number of the first attempt after a restart; ``last`` was the last one on disk.

    The disk may be an old copy of itself, and later numbers may have been used since. Attempts of
    one life are at least `_BETWEEN` apart, so none can have used a number beyond that of the time
    that has ``elapsed`` (seconds since the session began).
    """
    return max(last, math.ceil(elapsed / (_BETWEEN.first / 2))) + 1


class AttemptLoop:
    """Opens one attempt after the other until the session has ended and every party knows it.

    ``result`` resolves to the session's result or error: at once, or with ``everywhere`` when every
    party has written down its part of a result. ``open_attempt`` makes an attempt by its number. A
    new one is due whenever a party knows nothing of the last one any more.
    """

    def __init__(
        self, open_attempt: OpenAttempt, first: int = 1, *, everywhere: bool = False
    ) -> None:
        self.result: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        # Nobody may watch; asyncio need not complain, for log and store have the error.
        self.result.add_done_callback(lambda result: result.cancelled() or result.exception())
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Resolves when every party knows the end, and no attempt will follow."""
        self._open = open_attempt
        self._everywhere = everywhere
        self._attempt = first
        self._current: RunningSession | None = None
        self._traffic: list[Traffic] = []
        self._watchers: set[asyncio.Event] = set()

    async def run(self) -> None:
        """Open attempts until the session has ended. An attempt that cannot be opened ends it."""
        try:
            await self._run()
        except Exception as error:  # a bug must not leave the owner waiting
            log.exception("a session broke off")
            if not self.result.done():
                self.result.set_exception(FedmqError(f"internal error: {type(error).__name__}"))
        finally:
            self.ended.set_result(None)

    async def _run(self) -> None:
        delays = _BETWEEN.delays(Random())
        while True:
            try:
                running = await self._open(self._attempt, self._changed)
            except FedmqError as error:
                if not self.result.done():
                    self.result.set_exception(error)
                return
            self._current, runner = running, running.runner
            self._traffic.append(running.traffic)
            runner.start()
            await first_of(runner.outcome, runner.interrupted)
            await self._take(runner, everywhere=False)
            await first_of(runner.closed, runner.interrupted)
            if not runner.interrupted.done():
                await self._take(runner, everywhere=True)
                return
            if running.report is not None:
                delays = _BETWEEN.delays(Random())
            await asyncio.sleep(next(delays))
            if runner.outcome.done() and runner.outcome.exception() is not None:
                await self._take(runner, everywhere=False)  # cancelled meanwhile
                return
            self._attempt += 1

    async def followed(self, on_progress: OnProgress) -> Any:
        """The result; ``on_progress`` is given each change on the way."""
        change = asyncio.Event()
        change.set()  # begin with what is known already
        self._watchers.add(change)
        try:
            while not self.result.done():
                wake = asyncio.ensure_future(change.wait())
                try:
                    await first_of(wake, self.result)
                finally:
                    wake.cancel()
                change.clear()
                if self._current is not None and not self.result.done():
                    await on_progress({"event": "progress", **self._current.status()})
        finally:
            self._watchers.discard(change)
        return await asyncio.shield(self.result)

    @property
    def bytes_sent(self) -> int:
        """Bytes sent by this party in all attempts since its start."""
        return sum(traffic.total.bytes for traffic in self._traffic)

    def _changed(self, _: RunningSession) -> None:
        for watcher in self._watchers:
            watcher.set()

    async def _take(self, runner: SessionRunner, *, everywhere: bool) -> None:
        outcome = runner.outcome
        if not outcome.done() or outcome.cancelled() or self.result.done():
            return
        await runner.written()  # its owner may ask for the same again at once
        error = outcome.exception()
        if error is not None:
            self.result.set_exception(error)
        elif everywhere and runner.session.mailbox.lost:
            lost = ", ".join(sorted(runner.session.mailbox.lost))
            self.result.set_exception(
                PeerSilent(f"{lost} did not confirm the end; it will have it once it is back")
            )
        elif everywhere or not self._everywhere:
            self.result.set_result(outcome.result())
