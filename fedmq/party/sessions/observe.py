"""What is counted, timed, recorded and shown of one attempt at a session?"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgpack

from fedmq.errors import ConfigError, DataError, MessageError
from fedmq.messages.codec import decode, encode
from fedmq.messages.envelope import Envelope, Header
from fedmq.messages.training import BestSoFar, CircuitPiece
from fedmq.party.telemetry.metrics import Counters, Traffic
from fedmq.party.telemetry.timeline import Activity, Span, Timeline, write_trace
from fedmq.protocol.events import AwaitConsent, Report, Waiting
from fedmq.protocol.session import Address

if TYPE_CHECKING:
    from fedmq.party.telemetry.spans import Telemetry

__all__ = ["Observation", "Recorder", "Recording", "SessionObserver"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionObserver:
    """Receives all that one attempt does, and changes none of it."""

    traffic: Traffic = field(default_factory=Traffic)
    """What is sent."""
    counters: Counters = field(default_factory=Counters)
    timeline: Timeline | None = None
    record: Callable[[Envelope], None] | None = None
    """Is given each envelope that is sent or received."""
    on_report: Callable[[Report], None] = lambda _: None
    on_waiting: Callable[[Waiting, str], None] = lambda _, __: None
    """Is also given the link's trouble, or nothing."""
    on_consent: Callable[[AwaitConsent], None] = lambda _: None
    on_arrived: Callable[[Header, int], None] = lambda _, __: None
    """Is given the header of each message that arrives, and its size in bytes."""
    on_computed: Callable[[str, float, Span], None] = lambda _, __, ___: None
    """Is given the computation's name, when it was asked for (Unix seconds), and its span."""
    on_closed: Callable[[asyncio.Future[Any]], None] = lambda _: None
    """Is given the attempt's outcome, which is open where another attempt follows."""


class Observation:
    """How a daemon observes its sessions.

    ``counters`` are of all sessions together. Each attempt has a recording where ``recordings`` is
    a folder, a timeline as ``SESSION.json`` where ``traces`` is one, and spans in ``telemetry``.
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

    def begin(
        self,
        address: Address,
        purpose: str,
        model: str,
        *,
        timeline: Timeline | None,
        activity: Activity,
        received: Traffic,
        on_report: Callable[[Report], None],
        on_waiting: Callable[[Waiting, str], None],
        on_consent: Callable[[AwaitConsent], None],
    ) -> SessionObserver:
        """An observer of the attempt at ``address``, which also calls ``on_...``."""
        if timeline is None and self._traces is not None:
            timeline = Timeline()
        telemetry = self._telemetry
        spans = telemetry.follow(address, purpose, model) if telemetry is not None else None
        recorder = self._recorder(address)
        trees = 0

        def report(progress: Report) -> None:
            nonlocal trees
            if progress.unit == "tree":
                self.counters.trees += progress.done - trees
                trees = progress.done
                if spans is not None:
                    spans.tree_done(progress.done)
            on_report(progress)

        def wait(waiting: Waiting, trouble: str) -> None:
            if waiting.retry:
                self.counters.retries[waiting.peer] += 1
            on_waiting(waiting, trouble)

        def computed(what: str, asked: float, span: Span) -> None:
            activity.computed(span.start, span.end)
            if spans is not None:
                spans.computed(what, asked, span)

        def record(envelope: Envelope) -> None:
            if envelope.header.sender == address.party:
                activity.sent(envelope.header)
            if recorder is not None:
                recorder.keep(envelope)

        def arrived(header: Header, size: int) -> None:
            received.count(header, size)
            activity.received(header)

        def close(outcome: asyncio.Future[Any]) -> None:
            activity.end()
            if spans is not None:
                spans.end(outcome)
            if recorder is not None:
                recorder.close()

        return SessionObserver(
            counters=self.counters,
            timeline=timeline,
            record=record,
            on_report=report,
            on_waiting=wait,
            on_consent=on_consent,
            on_arrived=arrived,
            on_computed=computed,
            on_closed=close,
        )

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


class Recorder:
    """Writes the envelopes of ``party`` to a file, one after the other.

    A disk that refuses ends the recording, not the session. Raises ConfigError where the file
    cannot be made.
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def keep(self, envelope: Envelope) -> None:
        """Add an envelope that was sent or received, unless it comes after the end.

        Garbled circuits are not recorded: they are long, and say nothing without their labels.
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


class Recording:
    """``party``, and the ``envelopes`` it saw, each once, in the order in which it took them."""

    def __init__(self, party: str, envelopes: Sequence[Envelope]) -> None:
        self.party = party
        once = {(message.header.sender, message.header.id): message for message in envelopes}
        self.envelopes = _taken(message for message in once.values() if message.header.sequence)

    @classmethod
    def read(cls, path: Path) -> Recording:
        """Raises DataError where ``path`` is no recording; a broken end is left out."""
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
    """What ``arrived``, but each message after all that its sender had sent before it.

    Two queues and a link that breaks bring some early; `protocol.mailbox` puts them aside as well.
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
