"""Messages between two parties, sealed under short-lived keys from a handshake.

Each direction has a key for each stream: one for messages numbered by their session, and one for
the others, so a delayed bulk message is not too old because of the other stream. Bodies are padded
and sealed with ChaCha20-Poly1305 (RFC 8439); header and seal are associated data. The nonce is a
counter. Keys live in memory only, so a restart cannot repeat a nonce, and earlier messages cannot
be opened after it.

A body is filled up to the next multiple of a step, so that its length tells an observer less: of
256 bytes, or of a 16th of the power of two below its length, but 8 KiB at most, so that the largest
payload still fits into a message. Above 4 KiB that is at most 6.25 % more, for a full message at
most 0.8 %.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Hashable
from typing import NamedTuple, Self, TypeVar

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

from fedmq.errors import Replayed, Untrusted
from fedmq.transport.sealing.keys import PublicKeys
from fedmq.transport.sealing.noise import Keys

__all__ = [
    "SEAL_BYTES",
    "SEAL_VERSION",
    "Connection",
    "Recent",
    "Seal",
    "pad",
    "padded_length",
    "unpad",
]

SEAL_VERSION = 2
ID_BYTES = 16
_SEAL = struct.Struct(f">B{ID_BYTES}sBQ")
SEAL_BYTES = _SEAL.size
_STREAMS = 2

_WINDOW = 8192
"""How far a message may fall behind the newest and still be distinguished from a replay."""

_WINDOW_BITS = (1 << _WINDOW) - 1
_MOST_SESSIONS = 4096
_PADDED_LENGTH = struct.Struct(">I")
_SMALLEST, _LARGEST = 256, 8 * 1024
K = TypeVar("K")
V = TypeVar("V")


class Seal(NamedTuple):
    """The connection, stream and counter of a sealed body."""

    version: int
    connection: bytes
    stream: int
    counter: int

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Undo ``to_bytes``; Untrusted for another length, version or stream."""
        if len(data) != SEAL_BYTES or data[0] != SEAL_VERSION:
            raise Untrusted(
                "a seal of another version arrived: bring all parties to the same fedmq version"
            )
        seal = cls(*_SEAL.unpack(data))
        if seal.stream >= _STREAMS:
            raise Untrusted("the message was altered on its way")
        return seal

    def to_bytes(self) -> bytes:
        """As it travels."""
        return _SEAL.pack(*self)


class Connection:
    """Seals and opens the messages of two parties after one handshake.

    ``made`` is the time of the handshake on a monotonic clock. ``peer``: the keys that the other
    side has proved to hold. ``release``: of its fedmq, as its handshake says.
    """

    def __init__(self, keys: Keys, peer: PublicKeys, made: float, release: str = "") -> None:
        self.id = keys.digest[:ID_BYTES]
        self.peer = peer
        self.made = made
        self.release = release
        self.unpinned = False
        """Set while ``peer`` is not pinned: sessions under way may end, none begins."""
        self.outdated = False
        """Set when the keys of this side were replaced: here too, none begins."""
        self._outgoing = [_cipher(keys.send, stream) for stream in range(_STREAMS)]
        self._counters = [0] * _STREAMS
        self._incoming = [_Incoming(_cipher(keys.receive, stream)) for stream in range(_STREAMS)]
        self._sessions: Recent[Hashable, None] = Recent(_MOST_SESSIONS)

    def seal(
        self, header: bytes, body: bytes, stream: int, session: Hashable
    ) -> tuple[bytes, bytes]:
        """The sealed body and its seal; ``header`` is bound to both."""
        self._counters[stream] += 1
        counter = self._counters[stream]
        seal = Seal(SEAL_VERSION, self.id, stream, counter).to_bytes()
        self._sessions.put(session, None)
        return self._outgoing[stream].encrypt(_nonce(counter), pad(body), header + seal), seal

    def open(self, header: bytes, sealed: bytes, seal: Seal, session: Hashable) -> memoryview:
        """The body.

        Raises:
            Untrusted: anything of the three was altered, or ``session`` may not begin here.
            Replayed: the message was opened before.
        """
        incoming = self._incoming[seal.stream]
        body = incoming.opened(header, sealed, seal)
        if (self.unpinned or self.outdated) and session not in self._sessions:
            keys = "is not pinned here" if self.unpinned else "was replaced here"
            raise Untrusted(f"a new session under a key that {keys} any more")
        # Only now: altered or refused messages must neither count as replays nor use up a number.
        incoming.count(seal.counter)
        self._sessions.put(session, None)
        return body


class _Incoming:
    def __init__(self, cipher: ChaCha20Poly1305) -> None:
        self._cipher = cipher
        self._newest = 0
        self._seen = 0  # bit n: the message that is n older than the newest was taken

    def opened(self, header: bytes, sealed: bytes, seal: Seal) -> memoryview:
        try:
            padded = self._cipher.decrypt(_nonce(seal.counter), sealed, header + seal.to_bytes())
            return unpad(padded)
        except (InvalidTag, ValueError):
            raise Untrusted("the message was altered on its way") from None

    def count(self, counter: int) -> None:
        age = self._newest - counter
        if age >= _WINDOW or (age >= 0 and self._seen >> age & 1):
            raise Replayed("a message came twice")
        if age < 0:
            # A shift by more than the window would only make a large number of zeros.
            self._seen = (self._seen << min(-age, _WINDOW) | 1) & _WINDOW_BITS
            self._newest = counter
        else:
            self._seen |= 1 << age


def _cipher(key: bytes, stream: int) -> ChaCha20Poly1305:
    info = b"fedmq stream" + bytes([stream])
    return ChaCha20Poly1305(HKDFExpand(SHA256(), 32, info).derive(key))


def _nonce(counter: int) -> bytes:
    return counter.to_bytes(12, "little")


def padded_length(length: int) -> int:
    """The padded length in bytes of a body of ``length`` bytes."""
    total = length + _PADDED_LENGTH.size
    step = min(max(_SMALLEST, 1 << max(total.bit_length() - 5, 0)), _LARGEST)
    return -(-total // step) * step


def pad(body: bytes) -> bytes:
    """``body`` behind its length, filled up with zeros."""
    zeros = padded_length(len(body)) - _PADDED_LENGTH.size - len(body)
    return b"".join((_PADDED_LENGTH.pack(len(body)), body, bytes(zeros)))


def unpad(padded: bytes) -> memoryview:
    """Undo ``pad``, without a copy; ValueError if the body was not padded."""
    (length,) = _PADDED_LENGTH.unpack_from(padded) if len(padded) >= _PADDED_LENGTH.size else (-1,)
    if not 0 <= length <= len(padded) - _PADDED_LENGTH.size:
        raise ValueError("the body is not padded")
    return memoryview(padded)[_PADDED_LENGTH.size : _PADDED_LENGTH.size + length]


class Recent(OrderedDict[K, V]):
    """The ``limit`` entries used last."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._limit = limit

    def put(self, key: K, value: V) -> None:
        """Add or renew an entry; evict the least recently used one."""
        self[key] = value
        self.move_to_end(key)
        if len(self) > self._limit:
            self.popitem(last=False)
