"""Sealing of bytes between two parties, so that the broker can neither read, alter nor forge.

Each sender draws an X25519 key for every session, attempt and run of its process. From it and both
parties' long-term keys come 32 bytes (as in HPKE's mode Auth, RFC 9180, section 5.1.3)::

    key = HKDF-SHA256(X25519(ephemeral, recipient) ‖ X25519(sender, recipient), info)

where ``info`` names federation, session, attempt, sender, recipient and the keys. Bodies are sealed
with ChaCha20-Poly1305 (RFC 8439); header and seal are associated data. The nonce is a counter: a
key is never used by two runs of a process, so no nonce comes twice under one key.

A sender introduces its ephemeral key under an Ed25519 signature. The introduction travels with
every message, 128 bytes, so that none depends on another having arrived.

Whoever steals a recipient's long-term key can read what was sealed to it before. Keys are rotated
(``fedmq keys rotate``) to limit that.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from typing import Self

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedmq.errors import Replayed, Untrusted
from fedmq.transport.sealing.keys import PrivateKeys, PublicKeys

__all__ = [
    "LONGEST_DELAY",
    "SEAL_BYTES",
    "Channel",
    "Incoming",
    "Introduction",
    "Outgoing",
    "counter_of",
]

LONGEST_DELAY = 7 * 24 * 3600
_INTRODUCTION = struct.Struct(">32sQ8s8s64s")
_COUNTER = struct.Struct(">Q")
SEAL_BYTES = _INTRODUCTION.size + _COUNTER.size

_WINDOW = 8192
"""How far a message may fall behind the newest and still be told from a repetition."""


@dataclass(frozen=True)
class Channel:
    """One direction of one attempt at one session."""

    federation: str
    session: str
    attempt: int
    sender: str
    recipient: str

    def to_bytes(self) -> bytes:
        """An unambiguous form: each field with its length before it."""
        fields = [str(field).encode() for field in astuple(self)]
        return b"".join(_COUNTER.pack(len(field)) + field for field in fields)


@dataclass(frozen=True)
class Introduction:
    """A sender's ephemeral key, since when it is in use (Unix seconds), and its signature.

    ``signer`` and ``recipient`` are the ids of both parties' long-term keys.
    """

    ephemeral: bytes
    issued: int
    signer: bytes
    recipient: bytes
    signature: bytes

    @classmethod
    def from_seal(cls, seal: bytes) -> Self:
        """The introduction in a message's seal; Untrusted if its length is wrong."""
        if len(seal) != SEAL_BYTES:
            raise Untrusted(f"a seal has {SEAL_BYTES} bytes, not {len(seal)}")
        return cls(*_INTRODUCTION.unpack_from(seal))

    def to_bytes(self) -> bytes:
        """As it stands in a seal."""
        return _INTRODUCTION.pack(
            self.ephemeral, self.issued, self.signer, self.recipient, self.signature
        )


def _signed(channel: Channel, ephemeral: bytes, issued: int, recipient: bytes) -> bytes:
    return (
        b"fedmq introduction 1" + channel.to_bytes() + ephemeral + _COUNTER.pack(issued) + recipient
    )


def _cipher(
    channel: Channel,
    ephemeral: bytes,
    sender: PublicKeys,
    recipient: PublicKeys,
    secret: bytes,
) -> ChaCha20Poly1305:
    info = b"fedmq seal 1" + channel.to_bytes() + ephemeral
    info += sender.sign + sender.agree + recipient.sign + recipient.agree
    return ChaCha20Poly1305(HKDF(SHA256(), 32, salt=None, info=info).derive(secret))


def _nonce(counter: int) -> bytes:
    return bytes(4) + _COUNTER.pack(counter)


class Outgoing:
    """Seals what one party sends to another on one channel."""

    def __init__(self, channel: Channel, own: PrivateKeys, peer: PublicKeys, now: int) -> None:
        ephemeral = X25519PrivateKey.generate()
        public = ephemeral.public_key().public_bytes_raw()
        pinned = X25519PublicKey.from_public_bytes(peer.agree)
        secret = ephemeral.exchange(pinned) + own.agree.exchange(pinned)
        self._cipher = _cipher(channel, public, own.public, peer, secret)
        signature = own.sign.sign(_signed(channel, public, now, peer.id))
        self._introduction = Introduction(public, now, own.public.id, peer.id, signature).to_bytes()
        self.issued = now
        self.peer = peer
        self._counter = 0

    def seal(self, header: bytes, body: bytes) -> tuple[bytes, bytes]:
        """The sealed body and the seal that opens it; ``header`` is bound to them."""
        self._counter += 1
        seal = self._introduction + _COUNTER.pack(self._counter)
        return self._cipher.encrypt(_nonce(self._counter), body, header + seal), seal


class Incoming:
    """Opens what one party receives from another on one channel under one introduction."""

    def __init__(
        self,
        channel: Channel,
        own: Sequence[PrivateKeys],
        pinned: Sequence[PublicKeys],
        introduction: Introduction,
    ) -> None:
        """Check the introduction.

        Raises:
            Untrusted: the sender's key is not pinned here, the recipient's key is not in ``own``,
                or the signature does not hold.
        """
        peer = next((key for key in pinned if key.id == introduction.signer), None)
        if peer is None:
            raise Untrusted(
                f"{channel.sender} signs with a key that is not pinned here; compare its "
                "fingerprint, then: fedmq keys trust"
            )
        keys = next((key for key in own if key.public.id == introduction.recipient), None)
        if keys is None:
            raise Untrusted(
                f"{channel.sender} seals to a key that {channel.recipient} no longer has; "
                "send it the new one"
            )
        signed = _signed(
            channel, introduction.ephemeral, introduction.issued, introduction.recipient
        )
        try:
            Ed25519PublicKey.from_public_bytes(peer.sign).verify(introduction.signature, signed)
            secret = b"".join(
                keys.agree.exchange(X25519PublicKey.from_public_bytes(public))
                for public in (introduction.ephemeral, peer.agree)
            )
        except (InvalidSignature, ValueError):
            raise Untrusted(f"the signature of {channel.sender} does not hold") from None
        self._cipher = _cipher(channel, introduction.ephemeral, peer, keys.public, secret)
        self._newest = 0
        self._seen = 0  # bit n: the message that is n older than the newest was taken

    def open(self, header: bytes, sealed: bytes, seal: bytes) -> bytes:
        """The body.

        Raises:
            Untrusted: any of the three was altered or exchanged.
            Replayed: the message was opened before.
        """
        counter = counter_of(seal)
        age = self._newest - counter
        if age >= _WINDOW or (age >= 0 and self._seen >> age & 1):
            raise Replayed("a message that was taken before came again")
        try:
            body = self._cipher.decrypt(_nonce(counter), sealed, header + seal)
        except InvalidTag:
            raise Untrusted("the message was altered on its way") from None
        if age < 0:
            # A larger shift would give the same bits, by way of a huge number.
            self._seen = (self._seen << min(-age, _WINDOW) | 1) & ((1 << _WINDOW) - 1)
            self._newest = counter
        else:
            self._seen |= 1 << age
        return body


def counter_of(seal: bytes) -> int:
    """The number of a sealed message under its introduction."""
    (counter,) = _COUNTER.unpack_from(seal, _INTRODUCTION.size)
    return int(counter)
