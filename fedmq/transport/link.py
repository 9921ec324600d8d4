"""A party's connection to its federation: the one interface that every transport implements.

Scores go before the long messages and computations of a training. Each lane has a worker, which
hands its deliveries to the party.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Literal, get_args

from fedmq.errors import Oversized
from fedmq.transport.background_tasks import BackgroundTasks, being_cancelled

__all__ = [
    "LANES",
    "MAX_MESSAGE_BYTES",
    "PASSING",
    "Delivery",
    "Lane",
    "LaneWorkers",
    "Link",
    "LinkState",
    "OnDelivery",
    "OnState",
    "PriorityGate",
]

log = logging.getLogger(__name__)

Lane = Literal["training", "bulk", "inference", "online"]
"""A party reads one queue per lane, so that scoring never waits behind a training's bulk.

The lane ``bulk`` carries the many short-lived megabytes of a training. The broker confirms each
message and redelivers unacknowledged ones. It forgets them all when it restarts, or after some
minutes. A resent message takes another lane.

The lane ``online`` is transient: the broker does not confirm, store or redeliver its messages. The
caller waits for the answer, and asks again if none arrives.
"""

LANES: tuple[Lane, ...] = get_args(Lane)

PASSING: tuple[Lane, ...] = ("bulk", "online")
"""The lanes whose messages neither survive a restart of the broker nor become dead letters."""

MAX_MESSAGE_BYTES = 4 * 1024 * 1024 + 16 * 1024
"""Largest body in bytes: a bitmap of 32 million rows, and room for the envelope around it.

Long payloads are split: most messages have a quarter of a megabyte. Only bitmaps over all rows
exceed one megabyte.
"""

_LETTERS_KNOWN = 10_000

_LONGEST_WAIT_SECONDS = 0.05
"""A training must progress under any load of scoring requests."""


@dataclass(frozen=True)
class Delivery:
    """One message as it arrived.

    ``sender`` is the name that the broker authenticated. It is for logs only: the signed body names
    the sender. ``redelivered`` is set when an earlier delivery was not acknowledged. ``ack`` and
    ``dead_letter`` settle it: only the first call counts, and none after its connection is lost.
    The broker then redelivers the message.
    """

    body: bytes
    message_id: str
    sender: str
    lane: Lane
    redelivered: bool
    ack: Callable[[], Awaitable[None]] = field(repr=False, compare=False)
    """Tells the broker to forget the message."""
    dead_letter: Callable[[str], Awaitable[None]] = field(repr=False, compare=False)
    """Moves the message to its recipient's dead letters, with the reason; lanes of `PASSING` have
    none, so that the broker forgets it."""
    sent: float | None = None
    """When the sender published it, in Unix seconds; None where the transport does not know."""


@dataclass(frozen=True)
class LinkState:
    """Whether a link is up; if not, the reason in one line."""

    connected: bool
    reason: str


OnDelivery = Callable[[Delivery], Awaitable[None]]

OnState = Callable[[LinkState], None]


class Link(ABC):
    """One party's connection to the federation.

    Delivery is at least once. Each lane hands over one delivery at a time, in order of arrival. So
    messages of one sender on one lane stay in order, redeliveries aside.
    """

    def __init__(self, party: str, on_state: OnState | None = None) -> None:
        self.party = party
        self.dead_lettered = 0
        """How many messages this link has sent to the dead letters; one that the broker delivers
        again, as after a broken connection, counts once."""
        self._letters: dict[bytes, None] = {}
        self.priority_gate = PriorityGate()
        """Scores hold it while they are computed, and long messages wait for it."""
        self.state = LinkState(False, "not connected yet")
        """How the connection was when it last changed."""
        self._on_state = on_state

    @property
    @abstractmethod
    def connected(self) -> bool:
        """Whether a publish can succeed now."""

    @abstractmethod
    async def open(self, on_delivery: OnDelivery) -> None:
        """Connect, and hand every delivery of all lanes to ``on_delivery`` until `close`.

        ``on_delivery`` checks a message, hands it over and settles it; longer work runs elsewhere.
        If it raises, the message is dead-lettered with that reason. A closed link may be opened
        again.

        Raises:
            LinkError: the broker cannot be reached or refuses, or a queue is missing.
        """

    @abstractmethod
    async def publish(self, recipient: str, lane: Lane, body: bytes, *, message_id: str) -> None:
        """Send ``body`` and return once the broker has taken it.

        A failed publish is not repeated here; the message may have arrived nevertheless. Repeat it
        under the same ``message_id``: the recipient drops duplicates.

        Raises:
            Unroutable: the recipient has no queue of this lane.
            Oversized: ``body`` is longer than `MAX_MESSAGE_BYTES`.
            LinkError: the link is down, or the broker refuses or does not answer in time.
        """

    @abstractmethod
    async def is_read(self, recipient: str, lane: Lane) -> bool:
        """Whether ``recipient`` currently reads its queue of ``lane``.

        Raises:
            LinkError: the link is down, or the broker does not answer.
        """

    @abstractmethod
    async def reach_broker(self) -> None:
        """Return once the broker has answered a question that changes nothing.

        Raises:
            LinkError: the link is down, or the broker does not answer.
        """

    @abstractmethod
    async def post(self, recipient: str, body: bytes, *, message_id: str, expires: float) -> None:
        """Send ``body`` on the lane ``online`` without a confirmation: it may be lost unnoticed.

        The broker may drop it after ``expires`` seconds.

        Raises:
            Oversized: ``body`` is longer than `MAX_MESSAGE_BYTES`.
            LinkError: the link is down.
        """

    @abstractmethod
    async def close(self) -> None:
        """Stop consuming and disconnect; the broker redelivers unacknowledged messages."""

    def _oversized(self, recipient: str, body: bytes) -> Oversized:
        return Oversized(
            f"{self.party}: a message of {len(body)} bytes to {recipient} exceeds the limit of "
            f"{MAX_MESSAGE_BYTES}; split it by rows or features"
        )

    def _report(self, connected: bool, reason: str) -> None:
        """Record the state and notify the observer; an observer's error must not end the link."""
        self.state = LinkState(connected, reason)
        if self._on_state is None:
            return
        try:
            self._on_state(self.state)
        except Exception:
            log.exception("%s: the observer of the link's state failed", self.party)

    def _note_refusal(
        self, lane: Lane, message_id: str, sender: str, body: bytes, reason: str
    ) -> None:
        """Log a refused delivery, and count its message if the broker keeps it."""
        kept = lane not in PASSING
        if kept:
            letter = hashlib.sha256(body).digest()
            self.dead_lettered += letter not in self._letters
            self._letters[letter] = None
            if len(self._letters) > _LETTERS_KNOWN:
                del self._letters[next(iter(self._letters))]
        did = "dead-lettered" if kept else "dropped refused"
        log.warning("%s: %s message %s from %s: %s", self.party, did, message_id, sender, reason)


class PriorityGate:
    """Scoring holds this gate; long messages and computations wait for it, 50 ms at most.

    Sealing, sending, storing and opening a megabyte each keep a core busy for milliseconds, and
    scores pass through the same processes.
    """

    def __init__(self) -> None:
        self._holders = 0
        self._free = asyncio.Event()
        self._free.set()

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Hold the gate; several scores may hold it at once."""
        self._holders += 1
        self._free.clear()
        try:
            yield
        finally:
            self._holders -= 1
            if not self._holders:
                self._free.set()

    async def wait(self) -> None:
        """Return when no score holds the gate, or after 50 ms."""
        if self._holders:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LONGEST_WAIT_SECONDS):
                    await self._free.wait()


class LaneWorkers:
    """Calls ``on_delivery`` for one delivery at a time per lane, in the order of their arrival.

    Each lane has a task of its own. A client library cancels its callbacks when a connection drops,
    and ``on_delivery`` must not be cut off in the middle. An exception from it dead-letters the
    delivery.
    """

    def __init__(self, party: str, on_delivery: OnDelivery) -> None:
        self._party = party
        self._on_delivery = on_delivery
        # Unbounded: the broker sends at most the prefetch count ahead of acknowledgements.
        self._waiting: dict[Lane, asyncio.Queue[Delivery]] = {
            lane: asyncio.Queue() for lane in LANES
        }
        self._tasks = BackgroundTasks()
        for lane in LANES:
            self._tasks.spawn(self._run(lane), name=f"{party} reads {lane}")

    def put(self, delivery: Delivery) -> None:
        """Queue a delivery behind the others of its lane."""
        self._waiting[delivery.lane].put_nowait(delivery)

    def drop_waiting(self) -> None:
        """Drop the waiting deliveries: their connection is gone, and the broker redelivers them."""
        for waiting in self._waiting.values():
            while not waiting.empty():
                waiting.get_nowait()

    async def close(self) -> None:
        """End the workers; an ``on_delivery`` that is running is cancelled."""
        await self._tasks.close()

    async def _run(self, lane: Lane) -> None:
        while True:
            delivery = await self._waiting[lane].get()
            try:
                await self._on_delivery(delivery)
            except (Exception, asyncio.CancelledError) as error:
                if being_cancelled():
                    raise
                # One bad message never stalls a queue.
                log.exception("%s: cannot handle message %s", self._party, delivery.message_id)
                await delivery.dead_letter(f"{type(error).__name__}: {error}")
