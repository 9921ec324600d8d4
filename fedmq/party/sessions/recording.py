"""Everything that one party sent and received in a session, recorded for a leakage audit.

A recording holds what the party was entitled to see, in the clear: treat it like the party's data.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import Self

import msgpack

from fedmq.errors import ConfigError, DataError, MessageError
from fedmq.messages.codec import decode, encode
from fedmq.messages.envelope import Envelope
from fedmq.messages.training import BestSoFar, CircuitPiece

__all__ = ["Recorder", "Recording"]

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
