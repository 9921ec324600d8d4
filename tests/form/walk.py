"""How far does a reader walk? The calls between fedmq's files on three paths through it.

A *call* is a call of a function of fedmq; a *move* is a call into another file than the call before
it. All threads count as one sequence, as a reader follows them. Lambdas, comprehensions and bodies
of modules do not count. The paths begin and end at what is on the wire, so that they stay the same
when functions and files change:

* a *root split* goes from the callback of the event loop that makes the message "tree started" to
  the message "tree finished", in a tree of depth 1 that another party splits;
* an *HTTP score* goes from a request for one row to its answer, with one passive party asked.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, closing
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import fedmq

__all__ = ["http_scores", "root_splits"]

PACKAGE = str(Path(fedmq.__file__).parent)
EVENT_LOOP = str(Path(asyncio.__file__).with_name("events.py"))
NO_FUNCTIONS = {"<genexpr>", "<listcomp>", "<lambda>", "<dictcomp>", "<setcomp>", "<module>"}
TOKEN = "a-token-of-sixteen-characters"


class Call(NamedTuple):
    """A call of a function of fedmq."""

    file: str
    function: str
    outermost: bool
    """Whether no function of fedmq called it, but the event loop or a thread."""


class Tracer:
    """Notes the calls of all threads, and where among them a message's body was made."""

    def __init__(self) -> None:
        self._calls: list[Call] = []
        self._bodies: list[tuple[str, int]] = []
        self._noting = False

    def begin(self) -> None:
        """Note from now on, in threads that start from now on, too."""
        self._calls, self._bodies, self._noting = [], [], True
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def end(self) -> list[Call]:
        """Stop; all calls since the beginning."""
        self._noting = False
        sys.setprofile(None)
        threading.setprofile(None)
        return self._calls

    def kinds(self) -> tuple[str, ...]:
        """The kinds of the messages that were made or read."""
        return tuple(kind for kind, _ in self._bodies)

    def between(self, first: str, last: str) -> list[Call]:
        """The calls from the callback that makes the message ``first`` to the message ``last``."""
        made = next(place for kind, place in self._bodies if kind == first)
        end = next(place for kind, place in self._bodies if kind == last and place >= made)
        begin = max(0, made - 1)
        while begin > 0 and not self._calls[begin].outermost:
            begin -= 1
        return self._calls[begin:end]

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if event != "call" or not self._noting:
            return
        code = frame.f_code
        if code.co_filename.startswith(PACKAGE):
            if code.co_name not in NO_FUNCTIONS:
                file = code.co_filename.removeprefix(PACKAGE)
                self._calls.append(Call(file, code.co_name, _is_outermost(frame)))
        elif code.co_name == "__init__":
            kind = getattr(type(frame.f_locals.get("self")), "kind", None)
            if isinstance(kind, str):
                self._bodies.append((kind, len(self._calls)))


def _is_outermost(frame: FrameType) -> bool:
    before = frame.f_back
    while before is not None:
        code = before.f_code
        if code.co_filename.startswith(PACKAGE):
            return False
        if code.co_name == "_run" and code.co_filename == EVENT_LOOP:
            return True
        before = before.f_back
    return True


def walked(calls: list[Call]) -> dict[str, int]:
    """How many files a reader sees on the way, how often one is left, and how many calls pass."""
    return {
        "files": len({call.file for call in calls}),
        "moves": sum(before.file != call.file for before, call in pairwise(calls)),
        "calls": len(calls),
    }


def root_splits(engine: str) -> Iterator[dict[str, int]]:
    """Walks through a root split, without end; caches are filled before the first."""
    import numpy as np

    random = np.random.default_rng(0)
    active, passive = random.normal(size=(2, 200, 2)).astype(np.float32)
    options: dict[str, Any] = {}
    if engine != "plain":
        options = {"engine_options": {"key_bits": 2048}, "workers": 1}
    tracer = Tracer()

    def train() -> list[Call]:
        tracer.begin()
        try:
            fedmq.simulate(
                active=active,
                label=(passive[:, 0] > 0).astype(float),
                passive={"telco": passive},
                params={"max_depth": 1, "num_boost_round": 1},
                engine=engine,
                **options,
            )
        finally:
            tracer.end()
        return tracer.between("tree started", "tree finished")

    train()
    while True:
        yield walked(train())


def http_scores() -> Iterator[dict[str, int]]:
    """Walks through a score over HTTP, without end; daemons and model are made before the first."""
    with closing(asyncio.new_event_loop()) as loop:
        walks = _http_scores()
        try:
            while True:
                yield loop.run_until_complete(anext(walks))
        finally:
            loop.run_until_complete(walks.aclose())


async def _http_scores() -> AsyncGenerator[dict[str, int]]:
    tracer = Tracer()
    async with _predict() as predict:
        while True:
            seen: list[tuple[tuple[str, ...], list[Call]]] = []
            for row in range(20):
                await asyncio.sleep(0.05)  # what the score before left to do is done
                tracer.begin()
                await predict(f"p{row:02}")
                seen.append((tracer.kinds(), tracer.end()))
            usual, _ = Counter(kinds for kinds, _ in seen).most_common(1)[0]
            for kinds, calls in seen:
                if kinds == usual:  # others need no passive party, or both
                    yield walked(calls)


@asynccontextmanager
async def _predict() -> AsyncIterator[Callable[[str], Awaitable[None]]]:
    """A served model of three parties: asks for the score of an id over HTTP."""
    import httpx
    import pytest

    from tests.free_port import free_port
    from tests.party.daemons_in_memory import DaemonsInMemory

    port = free_port()
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        federation = DaemonsInMemory(Path(folder), patch)
        _serve_http(Path(folder, "bank", "party.toml"), port)
        await federation.start()
        try:
            await federation.train("m", 3)
            await federation.ask("bank", "activate", model="m", mode="hop", name="production")
            async with httpx.AsyncClient(
                base_url=f"http://127.0.0.1:{port}",
                headers={"Authorization": f"Bearer {TOKEN}"},
            ) as client:

                async def predict(row: str) -> None:
                    where = "/v1/models/production/predict"
                    (await client.post(where, json={"ids": [row]})).raise_for_status()

                await predict("p39")  # connections are made, caches filled
                yield predict
        finally:
            await federation.stop()


def _serve_http(config: Path, port: int) -> None:
    config.write_text(f'{config.read_text()}\n[http]\nport = {port}\ntokens = ["{TOKEN}"]\n')
