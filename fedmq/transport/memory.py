"""A broker in memory, with the semantics of RabbitMQ that a party can observe."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from functools import partial

from fedmq.errors import LinkError, Unroutable
from fedmq.transport.link import (
    LANES,
    MAX_MESSAGE_BYTES,
    PASSING,
    Delivery,
    Lane,
    LaneWorkers,
    Link,
    OnDelivery,
    OnState,
)

__all__ = ["DeadLetter", "MemoryBroker", "MemoryLink"]


@dataclass(frozen=True)
class _Message:
    body: bytes
    message_id: str
    sender: str
    redelivered: bool = False


@dataclass(frozen=True)
class DeadLetter:
    """A message that its recipient could not handle, and the reason."""

    recipient: str
    lane: Lane
    sender: str
    message_id: str
    body: bytes
    reason: str


@dataclass
class _Queue:
    """First in, first out, with at most one consumer."""

    waiting: deque[_Message] = field(default_factory=deque)
    consumer: Callable[[_Message], None] | None = None

    def put(self, message: _Message) -> None:
        if self.consumer is not None and not self.waiting:
            self.consumer(message)
        else:
            self.waiting.append(message)
            self.flush()

    def flush(self) -> None:
        while self.waiting and self.consumer:
            self.consumer(self.waiting.popleft())

    def give_back(self, messages: Iterable[_Message]) -> None:
        """Return unacknowledged messages to the front of the queue, in their order."""
        self.waiting.extendleft(
            replace(message, redelivered=True) for message in reversed(list(messages))
        )


class MemoryBroker:
    """Queues and dead letters of the parties of one federation, within one event loop."""

    def __init__(self) -> None:
        self.dead_letters: list[DeadLetter] = []
        self.queues: dict[tuple[str, Lane], _Queue] = {}

    def declare(self, party: str) -> None:
        """Create the queues of a party, unless they exist."""
        for lane in LANES:
            self.queues.setdefault((party, lane), _Queue())

    def carry(self, sender: str, recipient: str, lane: Lane, body: bytes, message_id: str) -> bool:
        """Put a message into its recipient's queue; False when there is none."""
        queue = self.queues.get((recipient, lane))
        if queue is not None:
            queue.put(_Message(body, message_id, sender))
        return queue is not None


class MemoryLink(Link):
    """A party's connection to a `MemoryBroker`; see `Link`."""

    def __init__(
        self, broker: MemoryBroker, party: str, *, on_state: OnState | None = None
    ) -> None:
        super().__init__(party, on_state)
        self._broker = broker
        self._lane_workers: LaneWorkers | None = None
        self._unacked: dict[_Unacked, None] = {}  # a set that keeps the order of arrival

    @property
    def connected(self) -> bool:
        return self._lane_workers is not None

    async def open(self, on_delivery: OnDelivery) -> None:
        for lane in LANES:
            queue = self._broker.queues.get((self.party, lane))
            if queue is None:
                raise LinkError(f"{self.party}: no {lane} queue on the broker; declare the party")
            if queue.consumer:
                raise LinkError(
                    f"{self.party}: another connection already reads the {lane} queue; "
                    "stop the other daemon of this party"
                )
        self._lane_workers = LaneWorkers(self.party, on_delivery)
        for lane in LANES:
            queue = self._broker.queues[self.party, lane]
            queue.consumer = partial(self._receive, lane, self._lane_workers)
            queue.flush()
        self._report(True, "connected")

    async def publish(self, recipient: str, lane: Lane, body: bytes, *, message_id: str) -> None:
        if len(body) > MAX_MESSAGE_BYTES:
            raise self._oversized(recipient, body)
        if self._lane_workers is None:
            raise LinkError(f"{self.party}: the link is closed; open it before publishing")
        if not self._broker.carry(self.party, recipient, lane, body, message_id):
            raise Unroutable(f"{self.party}: {recipient!r} has no {lane} queue in this federation")

    async def is_read(self, recipient: str, lane: Lane) -> bool:
        if self._lane_workers is None:
            raise LinkError(f"{self.party}: the link is closed; open it before asking")
        queue = self._broker.queues.get((recipient, lane))
        return queue is not None and queue.consumer is not None

    async def reach_broker(self) -> None:
        if self._lane_workers is None:
            raise LinkError(f"{self.party}: the link is closed; open it before asking")

    async def post(self, recipient: str, body: bytes, *, message_id: str, expires: float) -> None:
        if len(body) > MAX_MESSAGE_BYTES:
            raise self._oversized(recipient, body)
        if self._lane_workers is None:
            raise LinkError(f"{self.party}: the link is closed; open it before publishing")
        queue = self._broker.queues.get((recipient, "online"))
        if queue is not None and queue.consumer is not None:
            queue.put(_Message(body, message_id, self.party))

    async def close(self) -> None:
        if self._lane_workers is None:
            return
        workers, self._lane_workers = self._lane_workers, None
        unacked, self._unacked = self._unacked, {}
        for lane in LANES:
            queue = self._broker.queues[self.party, lane]
            queue.consumer = None
            queue.give_back(delivery.message for delivery in unacked if delivery.lane == lane)
        await workers.close()
        self._report(False, "closed")

    def _receive(self, lane: Lane, workers: LaneWorkers, message: _Message) -> None:
        unacked = _Unacked(self, lane, message)
        self._unacked[unacked] = None
        workers.put(
            Delivery(
                body=message.body,
                message_id=message.message_id,
                sender=message.sender,
                lane=lane,
                redelivered=message.redelivered,
                ack=unacked.ack,
                dead_letter=unacked.dead_letter,
            )
        )

    def _settle(self, unacked: _Unacked) -> bool:
        """Forget a delivery; False when it was settled, or given back to its queue, before."""
        return self._unacked.pop(unacked, unacked) is None

    def _to_dead_letters(self, unacked: _Unacked, reason: str) -> None:
        message = unacked.message
        self._note_refusal(unacked.lane, message.message_id, message.sender, message.body, reason)
        if unacked.lane in PASSING:
            return
        self._broker.dead_letters.append(
            DeadLetter(
                recipient=self.party,
                lane=unacked.lane,
                sender=message.sender,
                message_id=message.message_id,
                body=message.body,
                reason=reason,
            )
        )


@dataclass(frozen=True, eq=False)
class _Unacked:
    """The settlement of one delivery, and the message to requeue without a settlement."""

    link: MemoryLink
    lane: Lane
    message: _Message

    async def ack(self) -> None:
        self.link._settle(self)

    async def dead_letter(self, reason: str) -> None:
        if self.link._settle(self):
            self.link._to_dead_letters(self, reason)
