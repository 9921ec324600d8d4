"""What is counted, timed and recorded of one attempt at a session?

`Observer` names everything visible of an attempt. Metrics, timelines, spans, recordings and the
status of a running session are observers side by side. None of them knows the runner.
A recording holds in the clear what its party was entitled to see: protect it like the party's data.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgpack

from fedmq.errors import ConfigError, DataError, MessageError
from fedmq.messages.codec import decode, encode
from fedmq.messages.envelope import Envelope, Header
from fedmq.messages.training import BestSoFar, CircuitPiece
from fedmq.party.telemetry.metrics import Counters
from fedmq.party.telemetry.timeline import Span, Timeline, write_trace
from fedmq.protocol.events import ConsentPending, Report, Waiting
from fedmq.protocol.machine import Machine
from fedmq.protocol.session import Address

if TYPE_CHECKING:
    from fedmq.party.telemetry.spans import SessionSpans, Telemetry

__all__ = [
    "MetricsObserver",
    "Observation",
    "Observer",
    "Observers",
    "Recorder",
    "Recording",
    "SpanObserver",
    "TimelineObserver",
]

log = logging.getLogger(__name__)


class Observer:
    """Follows one attempt at a session, and changes nothing.

    Each observer overrides the methods it needs; nothing else is called.
    """

    def arrived(self, header: Header, size: int) -> None:
        """A message of ``size`` bytes has arrived; it may be a repetition, or too early."""

    def taken(self, envelope: Envelope) -> None:
        """The session has taken a message that arrived."""

    def handed_over(self, envelope: Envelope) -> None:
        """The session hands over a message to send."""

    def leaving(self, header: Header, size: int) -> None:
        """A message of ``size`` bytes goes to the link."""

    def left(self, header: Header, size: int, begun: float) -> None:
        """The broker has confirmed a message; it went to the link at ``begun`` (seconds)."""

    def moved(self, machine: Machine) -> None:
        """An event was handled; the machine may be in another state."""

    def computed(self, label: str, asked: float, span: Span) -> None:
        """A computation requested at ``asked`` (seconds) has its result."""

    def worked(self, label: str, seconds: float) -> None:
        """A computation took ``seconds``, its wait for a worker included; it may have failed."""

    def reported(self, report: Report) -> None:
        """The machine reports its progress."""

    def waited(self, waiting: Waiting, trouble: str) -> None:
        """A peer is silent, or is heard again; ``trouble`` is the link's, or empty."""

    def consent_awaited(self, awaited: ConsentPending) -> None:
        """An owner is asked, or has answered."""

    def closed(self, outcome: asyncio.Future[Any]) -> None:
        """The attempt is over; its outcome is open if another attempt follows."""


class Observers:
    """Several observers: for each event, the methods that override it."""

    def __init__(self, observers: Iterable[Observer]) -> None:
        found = tuple(observers)

        def overridden(method: Callable[..., None]) -> tuple[Callable[..., None], ...]:
            name = method.__name__
            return tuple(
                getattr(observer, name)
                for observer in found
                if getattr(type(observer), name) is not method
            )

        self.arrived = overridden(Observer.arrived)
        self.taken = overridden(Observer.taken)
        self.handed_over = overridden(Observer.handed_over)
        self.leaving = overridden(Observer.leaving)
        self.left = overridden(Observer.left)
        self.moved = overridden(Observer.moved)
        self.computed = overridden(Observer.computed)
        self.worked = overridden(Observer.worked)
        self.reported = overridden(Observer.reported)
        self.waited = overridden(Observer.waited)
        self.consent_awaited = overridden(Observer.consent_awaited)
        self.closed = overridden(Observer.closed)


class MetricsObserver(Observer):
    """Counts what an attempt does in ``counters``, which all sessions share."""

    def __init__(self, counters: Counters) -> None:
        self._counters = counters
        self._trees = 0

    def leaving(self, header: Header, size: int) -> None:
        self._counters.messages_sent[header.kind] += 1
        self._counters.bytes_sent[header.kind] += size

    def worked(self, label: str, seconds: float) -> None:
        self._counters.arithmetic_seconds[label] += seconds

    def reported(self, report: Report) -> None:
        if report.unit == "tree":
            self._counters.trees += report.done - self._trees
            self._trees = report.done

    def waited(self, waiting: Waiting, trouble: str) -> None:
        if waiting.retry:
            self._counters.retries[waiting.peer] += 1


class TimelineObserver(Observer):
    """Draws the work of ``party`` into ``timeline``."""

    def __init__(self, party: str, timeline: Timeline) -> None:
        self._party = party
        self._timeline = timeline

    def arrived(self, header: Header, size: int) -> None:
        self._timeline.received(header)

    def left(self, header: Header, size: int, begun: float) -> None:
        self._timeline.sent(header, size, begun)

    def moved(self, machine: Machine) -> None:
        self._timeline.entered(self._party, machine.state)

    def computed(self, label: str, asked: float, span: Span) -> None:
        self._timeline.computed(self._party, label, asked, span)


class SpanObserver(Observer):
    """Reports computations, trees and the end to OpenTelemetry."""

    def __init__(self, spans: SessionSpans) -> None:
        self._spans = spans

    def computed(self, label: str, asked: float, span: Span) -> None:
        self._spans.computed(label, asked, span)

    def reported(self, report: Report) -> None:
        if report.unit == "tree":
            self._spans.tree_done(report.done)

    def closed(self, outcome: asyncio.Future[Any]) -> None:
        self._spans.end(outcome)


class Observation:
    """How a daemon observes its sessions, besides their status.

    All sessions share ``counters``. Each attempt has a recording if ``recordings`` is a folder,
    a timeline ``SESSION.json`` if ``traces`` is a folder, and spans in ``telemetry``.
    """

    def __init__(
        self,
        *,
        counters: Counters | None = None,
        traces: Path | None = None,
        recordings: Path | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        self.counters = counters or Counters()
        self._traces = traces
        self._recordings = recordings
        self._telemetry = telemetry

    def timeline(self) -> Timeline | None:
        """A timeline for one attempt, if timelines are kept."""
        return None if self._traces is None else Timeline()

    def observers(
        self, address: Address, purpose: str, model: str, timeline: Timeline | None
    ) -> list[Observer]:
        """The observers of the attempt at ``address``."""
        found: list[Observer] = [MetricsObserver(self.counters)]
        if timeline is not None:
            found.append(TimelineObserver(address.party, timeline))
        if self._telemetry is not None:
            found.append(SpanObserver(self._telemetry.follow(address, purpose, model)))
        recorder = self._recorder(address)
        if recorder is not None:
            found.append(recorder)
        return found

    async def keep_timeline(self, session: str, timeline: Timeline | None) -> None:
        """Write the timeline of a closed session into the folder of traces, if there is one."""
        if timeline is None or self._traces is None:
            return
        path = self._traces / f"{session}.json"
        try:
            await asyncio.to_thread(write_trace, timeline.document(), path)
        except ConfigError as error:  # a session is worth more than its timeline
            log.warning("the timeline was lost: %s", error)

    def _recorder(self, address: Address) -> Recorder | None:
        if self._recordings is None:
            return None
        name = f"{address.session}.{address.attempt}.{address.party}.recording"
        try:
            return Recorder(self._recordings / name, address.party)
        except ConfigError as error:  # a session is worth more than its recording
            log.error("session %s is not recorded: %s", address.session, error)
            return None


log = logging.getLogger(__name__)

_MAGIC = "fedmq.recording"
_VERSION = 1


class Recorder(Observer):
    """Writes the envelopes of ``party`` to a file, one after the other.

    A disk error ends the recording, not the session. Raises ConfigError if the file cannot
    be made.
    """

    def __init__(self, path: Path, party: str) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch(mode=0o600)
            self._file = path.open("wb", buffering=0)
            self._file.write(msgpack.packb([_MAGIC, _VERSION, party]))
        except OSError as error:
            raise ConfigError(f"recordings: {path}: cannot be written: {error.strerror}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def keep(self, envelope: Envelope) -> None:
        """Add an envelope that was sent or received, unless it comes after the end.

        Garbled circuits are not recorded: they are long, and mean nothing without their labels.
        """
        if self._file.closed or isinstance(envelope.body, CircuitPiece | BestSoFar):
            return
        try:
            self._file.write(msgpack.packb(encode(envelope)))
        except OSError as error:
            log.error("%s: the recording breaks off: %s", self.path, error.strerror)
            self._file.close()

    def close(self) -> None:
        """End the recording."""
        self._file.close()

    def taken(self, envelope: Envelope) -> None:
        self.keep(envelope)

    def handed_over(self, envelope: Envelope) -> None:
        self.keep(envelope)

    def closed(self, outcome: asyncio.Future[Any]) -> None:
        self.close()


class Recording:
    """``party`` and the ``envelopes`` it saw, each once, in the order in which it took them."""

    def __init__(self, party: str, envelopes: Sequence[Envelope]) -> None:
        self.party = party
        once = {(message.header.sender, message.header.id): message for message in envelopes}
        self.envelopes = _taken(message for message in once.values() if message.header.sequence)

    @classmethod
    def read(cls, path: Path) -> Recording:
        """Read ``path``, leaving out a broken end; DataError if it is no recording."""
        try:
            with path.open("rb") as file:
                parts = list(msgpack.Unpacker(file, max_buffer_size=2**31 - 1))
        except OSError as error:
            raise DataError(f"{path}: {error.strerror}") from None
        except (ValueError, msgpack.exceptions.UnpackException):
            raise DataError(f"{path}: not a recording of fedmq") from None
        head = parts[0] if parts else None
        if not isinstance(head, list) or len(head) != 3 or head[:2] != [_MAGIC, _VERSION]:
            raise DataError(f"{path}: not a recording of this fedmq")
        try:
            return cls(head[2], [decode(part) for part in parts[1:]])
        except (MessageError, TypeError) as error:
            raise DataError(f"{path}: {error}") from None


def _taken(arrived: Iterable[Envelope]) -> tuple[Envelope, ...]:
    """Put each message of ``arrived`` after all that its sender had sent before it.

    Two queues and a broken link bring some early; `protocol.mailbox` also puts them aside.
    """
    mails = defaultdict[tuple[str, str], list[tuple[int, int, Envelope]]](list)
    for position, message in enumerate(arrived):
        header = message.header
        mail = mails[header.sender, header.recipient]
        mail.append((header.sequence, position, message))
    taken: list[tuple[int, int, Envelope]] = []
    for mail in mails.values():
        latest = 0
        for sequence, position, message in sorted(mail, key=itemgetter(0)):
            latest = max(latest, position)
            taken.append((latest, sequence, message))
    return tuple(message for _, _, message in sorted(taken, key=itemgetter(0, 1)))
