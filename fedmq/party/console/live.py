"""Parts of a page that follow what happens: pushed at most once a second, while a browser looks.

All browsers share one look at the daemon; each browser gets the parts that changed since its last
update. Without a browser no work is done.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

from starlette.responses import Response, StreamingResponse

from fedmq.errors import Overloaded
from fedmq.party.console.sign_in import SignIn
from fedmq.transport.background_tasks import BackgroundTasks

__all__ = ["Live", "Parts"]

log = logging.getLogger(__name__)

Parts = Mapping[str, str]
"""HTML by the id of the element that it fills; ``data:ID`` is its data for a script instead."""

_SECONDS = 1.0
_SILENT_ROUNDS = 15
"""Rounds without news after which a line keeps the connection alive."""
_MOST_STREAMS = 32
_MOST_OF_ONE = 12
"""Streams of one sign-in: it leaves places to others."""


class Live:
    """Streams of ``parts``."""

    def __init__(self, parts: Callable[[], Awaitable[Parts]], seconds: float = _SECONDS) -> None:
        self._parts = parts
        self._seconds = seconds
        self._now: Parts = {}
        self._round = asyncio.Event()
        self._tasks = BackgroundTasks()
        self._open: Counter[str] = Counter()
        """Streams by sign-in."""
        self._looks = False
        self._closed = False

    @property
    def looking(self) -> int:
        """The number of open streams."""
        return self._open.total()

    def response(self, sign_in: SignIn) -> Response:
        """A stream for one browser, until the sign-in ends; Overloaded if there are too many."""
        if self._is_full(sign_in):
            raise Overloaded(f"{self.looking} pages are open already; close some")
        return StreamingResponse(self._events(sign_in), media_type="text/event-stream")

    def _is_full(self, sign_in: SignIn) -> bool:
        return self.looking >= _MOST_STREAMS or self._open[sign_in.id] >= _MOST_OF_ONE

    async def close(self) -> None:
        """End all streams."""
        self._closed = True
        self._round.set()  # and none follows, so that no stream waits for one
        await self._tasks.close()

    async def _events(self, sign_in: SignIn) -> AsyncIterator[str]:
        if self._is_full(sign_in):  # others have begun since this one was answered
            return
        sent: dict[str, str] = {}
        silent = 0
        self._open[sign_in.id] += 1
        try:
            if not self._looks:
                self._looks = True
                self._tasks.spawn(self._look())
            while not (self._closed or sign_in.ended):
                changed = {name: text for name, text in self._now.items() if sent.get(name) != text}
                sent.update(changed)
                silent = 0 if changed else silent + 1
                if changed:
                    yield f"event: parts\ndata: {json.dumps(changed)}\n\n"
                elif silent % _SILENT_ROUNDS == 0:
                    yield ": still here\n\n"
                for name in sent.keys() - self._now.keys():
                    del sent[name]
                await self._round.wait()
        finally:
            self._open[sign_in.id] -= 1
            self._open += Counter()  # drops sign-ins without streams

    async def _look(self) -> None:
        """Make the parts anew each second while a browser looks."""
        while self.looking and not self._closed:
            try:
                self._now = await self._parts()
            except Exception:  # a stale page is better than none
                log.exception("console: cannot show live figures")
            if not self._closed:
                self._round.set()
                self._round = asyncio.Event()
            await asyncio.sleep(self._seconds)
        self._now, self._looks = {}, False
