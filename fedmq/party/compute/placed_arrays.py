"""Large arrays that lie on the workers of a cluster, and how computations refer to them.

A computation is pickled without its large arrays. A worker has these already, in place: they were
sent to it once, or it made them itself as the result of an earlier computation.
"""

from __future__ import annotations

import asyncio
import contextlib
import copyreg
import io
import itertools
import os
import pickle
import weakref
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.computation import Rows
from fedmq.party.compute.freed_memory import keep_freed_memory
from fedmq.party.compute.pool import run_timed
from fedmq.party.telemetry.timeline import Span

__all__ = [
    "ArrayGone",
    "Keeper",
    "Order",
    "PlacedArrays",
    "Result",
    "Token",
    "Wanted",
    "opened",
    "pickled",
]

_WORTH_PLACING = 256 * 1024  # bytes; below, an array travels inside the computation
_LET_GO_SECONDS = 1.0  # until a worker hears of arrays to let go, unless it computes before

Token = tuple[int, int]
"""The name of an array at the workers: of a sending, or of a result and its place there."""


@dataclass(frozen=True, slots=True, eq=False)
class Wanted:
    """An array that a computation reads, or its ``rows`` from a first to before a last."""

    array: NDArray[Any]
    rows: tuple[int, int] | None = None

    @property
    def key(self) -> tuple[int, tuple[int, int] | None]:
        """The same for the same rows of the same array, as long as that lives."""
        return id(self.array), self.rows

    @property
    def nbytes(self) -> int:
        """Its size."""
        return self.array.nbytes if self.rows is None else self.array[slice(*self.rows)].nbytes

    async def in_one_piece(self) -> NDArray[Any]:
        """The array, or a copy of the rows in the order of axes that the array has."""
        rows = self.array if self.rows is None else self.array[slice(*self.rows)]
        if rows.flags.forc:
            return rows
        return await asyncio.to_thread(rows.copy, "K")


@dataclass(frozen=True, eq=False)
class Result:
    """What a worker found: pickled without its large arrays, and these.

    They stay at the worker too, as ``token`` and their number.
    """

    packed: bytes
    arrays: list[NDArray[Any]]
    span: Span
    token: int


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """A computation of `pickled` with the arrays ``tokens``, of which ``sent`` come along.

    The arrays ``dropped`` are let go; those of the result are kept as ``kept`` and their number.
    """

    work: bytes
    tokens: Sequence[Token]
    sent: dict[Token, NDArray[Any]]
    dropped: Sequence[Token]
    kept: int


class ArrayGone(Exception):
    """A worker does not have an array that it was sent, or was to be sent."""


class Keeper:
    """Keeps arrays on a worker, and computes with them in as many threads as the worker has."""

    def __init__(self) -> None:
        from distributed import get_worker

        self._arrays: dict[Token, NDArray[Any]] = {}
        self._threads = ThreadPoolExecutor(get_worker().state.nthreads, "fedmq-compute")
        keep_freed_memory()

    async def drop(self, tokens: Sequence[Token]) -> None:
        """Let arrays go."""
        for token in tokens:
            self._arrays.pop(token, None)

    async def count(self) -> int:
        """The number of arrays here."""
        return len(self._arrays)

    async def run(self, order: Order) -> Result:
        """Run a computation; keep what it was sent, and the arrays of its result.

        Raises:
            ArrayGone: an array is not here.
        """
        await self.drop(order.dropped)
        loop = asyncio.get_running_loop()
        sent = await loop.run_in_executor(self._threads, list, map(_aligned, order.sent.values()))
        self._arrays |= zip(order.sent, sent, strict=True)
        try:
            arrays = [self._arrays[token] for token in order.tokens]
        except KeyError:
            raise ArrayGone from None
        packed, found, span = await loop.run_in_executor(self._threads, _run, order.work, arrays)
        self._arrays |= {(order.kept, number): array for number, array in enumerate(found)}
        return Result(packed, found, span, order.kept)


def _run(work: bytes, arrays: Sequence[NDArray[Any]]) -> tuple[bytes, list[NDArray[Any]], Span]:
    result, span = run_timed(_loaded(work, arrays))
    packed, wanted = pickled(result)
    return packed, [each.array for each in wanted], replace(span, worker=os.getpid())


def _aligned(array: NDArray[Any]) -> NDArray[Any]:
    """The array where arithmetic is fast: a message's first array begins at any byte."""
    return array if array.flags.aligned else array.copy("K")


Drop = Callable[[Sequence[Token], str], Awaitable[None]]
"""Tells a worker to let arrays go."""


class PlacedArrays:
    """Where arrays of this process lie on workers: as long as they live here."""

    def __init__(self, drop: Drop) -> None:
        self._drop = drop
        self._loop = asyncio.get_running_loop()
        self._places: defaultdict[Any, dict[str, asyncio.Future[Token]]] = defaultdict(dict)
        """By array and worker."""
        self._counter = itertools.count()
        self._let_go: defaultdict[str, list[Token]] = defaultdict(list)
        self._telling: set[asyncio.Future[None]] = set()

    def __len__(self) -> int:
        return len(self._places)

    def workers_of(self, array: NDArray[Any]) -> set[str]:
        """The workers that have all rows of ``array``."""
        return set(self._places.get(Wanted(array).key, {}))

    def missing_bytes(self, wanted: Sequence[Wanted], worker: str) -> int:
        """The bytes that ``worker`` would have to be sent."""
        return sum(each.nbytes for each in wanted if worker not in self._places.get(each.key, {}))

    @asynccontextmanager
    async def order(
        self, work: bytes, wanted: Sequence[Wanted], worker: str
    ) -> AsyncIterator[Order]:
        """What to tell ``worker``, with the arrays that it lacks; has them once this is left.

        Raises:
            ArrayGone: another order that took an array along has failed.
        """
        # What is missing is claimed at once, so that an order waits for earlier ones alone.
        places: dict[Any, asyncio.Future[Token]] = {}
        mine: dict[Token, Wanted] = {}
        for each in wanted:
            there = self._of(each)
            if worker not in there:
                there[worker] = self._loop.create_future()
                mine[next(self._counter), 0] = each
            places[each.key] = there[worker]
        own = {each.key: token for token, each in mine.items()}
        try:
            if others := [place for key, place in places.items() if key not in own]:
                await asyncio.wait(others)
            if any(place.cancelled() for place in others):
                raise ArrayGone
            tokens = [own[key] if key in own else place.result() for key, place in places.items()]
            sent = {token: await each.in_one_piece() for token, each in mine.items()}
            yield Order(work, tokens, sent, self._let_go.pop(worker, []), next(self._counter))
        except BaseException:
            for each in mine.values():
                places[each.key].cancel()
                if self._of(each).get(worker) is places[each.key]:
                    del self._of(each)[worker]
            raise
        for token, each in mine.items():
            if not places[each.key].cancelled():
                places[each.key].set_result(token)

    def _of(self, wanted: Wanted) -> dict[str, asyncio.Future[Token]]:
        if wanted.key not in self._places:
            weakref.finalize(wanted.array, self._array_died, wanted.key)
        return self._places[wanted.key]

    def keep(self, result: Result, worker: str) -> None:
        """Know that the arrays of a result are still at ``worker``."""
        for number, array in enumerate(result.arrays):
            there: asyncio.Future[Token] = self._loop.create_future()
            there.set_result((result.token, number))
            self._of(Wanted(array))[worker] = there

    def forget(self, worker: str) -> None:
        """Forget what lay at ``worker``: it is gone."""
        for places in list(self._places.values()):
            if place := places.pop(worker, None):
                place.cancel()
        self._let_go.pop(worker, None)

    def clear(self) -> None:
        """Forget all places."""
        self._places.clear()

    def _array_died(self, key: Any) -> None:
        places = self._places.pop(key, None)
        if places:
            with contextlib.suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._let_places_go, places)

    def _let_places_go(self, places: dict[str, asyncio.Future[Token]]) -> None:
        if not self._let_go:
            self._loop.call_later(_LET_GO_SECONDS, self._tell)
        for worker, place in places.items():
            if place.done() and not place.cancelled():
                self._let_go[worker].append(place.result())

    def _tell(self) -> None:
        for worker, tokens in self._let_go.items():
            telling = asyncio.ensure_future(self._drop(tokens, worker))
            self._telling.add(telling)
            telling.add_done_callback(self._telling.discard)
        self._let_go = defaultdict(list)


def pickled(computation: Any) -> tuple[bytes, list[Wanted]]:
    """``computation`` without its large arrays, and these."""
    wanted: dict[Any, tuple[int, Wanted]] = {}

    def given(each: Wanted) -> Any:
        number, _ = wanted.setdefault(each.key, (len(wanted), each))
        return _given, (number,)

    def array_reduced(array: NDArray[Any]) -> Any:
        if array.nbytes < _WORTH_PLACING or array.dtype.hasobject:
            return array.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
        return given(Wanted(array))

    def rows_reduced(rows: Rows) -> Any:
        each = Wanted(rows.array, (rows.first, rows.stop))
        small = each.nbytes < _WORTH_PLACING
        return rows.__reduce_ex__(pickle.HIGHEST_PROTOCOL) if small else given(each)

    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, pickle.HIGHEST_PROTOCOL)
    # A table: a `persistent_id` would be called for every number of a list of ciphertexts.
    own: dict[type, Callable[[Any], Any]] = {np.ndarray: array_reduced, Rows: rows_reduced}
    pickler.dispatch_table = {**copyreg.dispatch_table, **own}
    pickler.dump(computation)
    return buffer.getvalue(), [each for _, each in wanted.values()]


_GIVEN: ContextVar[Sequence[NDArray[Any]]] = ContextVar("_GIVEN")
"""The large arrays of what this thread unpickles."""


def _given(number: int) -> NDArray[Any]:
    return _GIVEN.get()[number]


def _loaded(packed: bytes, arrays: Sequence[NDArray[Any]]) -> Any:
    token = _GIVEN.set(arrays)
    try:
        return pickle.loads(packed)  # noqa: S301 (made by this party a moment ago)
    finally:
        _GIVEN.reset(token)


def opened(result: Result) -> Any:
    """What a worker found, with its arrays, which ``result`` then has too."""
    result.arrays[:] = map(_aligned, result.arrays)
    return _loaded(result.packed, result.arrays)
