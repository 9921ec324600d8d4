"""The handshake KK of the Noise protocol framework, revision 34, over X25519.

``Noise_KK_25519_ChaChaPoly_SHA256`` (https://noiseprotocol.org/noise.html, sections 5 and 7.5)::

    -> s
    <- s
    ...
    -> e, es, ss
    <- e, ee, se

Both sides know each other's long-term key beforehand, and both bring an ephemeral key. A thief of a
long-term key can impersonate its owner, but can neither open earlier messages nor impersonate
others to the owner (section 7.7: authentication 2, confidentiality 5).
"""

from __future__ import annotations

import hashlib
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedmq.errors import Untrusted
from fedmq.transport.sealing.keys import AgreementKey

__all__ = ["EPHEMERAL_BYTES", "Initiator", "Keys", "respond"]

EPHEMERAL_BYTES = 32
_NAME = b"Noise_KK_25519_ChaChaPoly_SHA256"
_NONCE = bytes(12)  # each key of a handshake encrypts once


class Keys(NamedTuple):
    """The result of a handshake: a key for each direction, and its hash, which names it."""

    send: bytes
    receive: bytes
    digest: bytes


class _Symmetric:
    """The chaining key and hash of section 5.2."""

    def __init__(self, prologue: bytes, initiator: bytes, responder: bytes) -> None:
        self._chaining = self.digest = _NAME  # 32 bytes, so it is its own hash
        self._key = b""
        for data in (prologue, initiator, responder):
            self.mix_hash(data)

    def mix_hash(self, data: bytes) -> None:
        self.digest = hashlib.sha256(self.digest + data).digest()

    def mix_key(self, own: AgreementKey, peer: bytes) -> None:
        """Mix in a shared secret; Untrusted if ``peer`` is not a valid point."""
        try:
            secret = own.exchange(X25519PublicKey.from_public_bytes(peer))
        except ValueError:
            raise Untrusted("the ephemeral key of a handshake is invalid") from None
        self._chaining, self._key = self._derived(secret)

    def encrypt(self, payload: bytes) -> bytes:
        data = ChaCha20Poly1305(self._key).encrypt(_NONCE, payload, self.digest)
        self.mix_hash(data)
        return data

    def decrypt(self, data: bytes) -> bytes:
        try:
            payload = ChaCha20Poly1305(self._key).decrypt(_NONCE, data, self.digest)
        except InvalidTag:
            raise Untrusted("a handshake was altered, or is not from its sender") from None
        self.mix_hash(data)
        return payload

    def split(self) -> tuple[bytes, bytes]:
        """The keys of the initiator's messages, and of the responder's."""
        return self._derived(b"")

    def _derived(self, secret: bytes) -> tuple[bytes, bytes]:
        both = HKDF(SHA256(), 64, salt=self._chaining, info=b"").derive(secret)
        return both[:32], both[32:]


class Initiator:
    """The initiating side. Both sides must use the same ``prologue``."""

    def __init__(
        self,
        prologue: bytes,
        own: AgreementKey,
        peer: bytes,
        ephemeral: X25519PrivateKey | None = None,
    ) -> None:
        self._own = own
        self._ephemeral = ephemeral or X25519PrivateKey.generate()
        self._state = _Symmetric(prologue, _public(own), peer)
        self._peer = peer

    def offer(self, payload: bytes = b"") -> bytes:
        """The first message."""
        public = _public(self._ephemeral)
        self._state.mix_hash(public)
        self._state.mix_key(self._ephemeral, self._peer)
        self._state.mix_key(self._own, self._peer)
        return public + self._state.encrypt(payload)

    def finish(self, answer: bytes) -> tuple[Keys, bytes]:
        """The keys, and the payload of the second message; Untrusted where it does not hold."""
        # On a copy, so a forged answer does not spoil the state for the true answer.
        state = _Symmetric.__new__(_Symmetric)
        state.__dict__.update(self._state.__dict__)
        theirs = _ephemeral_of(answer)
        state.mix_hash(theirs)
        state.mix_key(self._ephemeral, theirs)
        state.mix_key(self._own, theirs)
        payload = state.decrypt(answer[EPHEMERAL_BYTES:])
        send, receive = state.split()
        return Keys(send, receive, state.digest), payload


def respond(
    prologue: bytes,
    own: AgreementKey,
    peer: bytes,
    offer: bytes,
    payload: bytes = b"",
    ephemeral: X25519PrivateKey | None = None,
) -> tuple[Keys, bytes]:
    """The other side: the keys, and the second message, which carries ``payload``.

    Raises:
        Untrusted: ``offer`` was altered, or is not from the owner of ``peer``.
    """
    state = _Symmetric(prologue, peer, _public(own))
    theirs = _ephemeral_of(offer)
    state.mix_hash(theirs)
    state.mix_key(own, theirs)
    state.mix_key(own, peer)
    state.decrypt(offer[EPHEMERAL_BYTES:])
    ephemeral = ephemeral or X25519PrivateKey.generate()
    public = _public(ephemeral)
    state.mix_hash(public)
    state.mix_key(ephemeral, theirs)
    state.mix_key(ephemeral, peer)
    answer = public + state.encrypt(payload)
    receive, send = state.split()
    return Keys(send, receive, state.digest), answer


def _public(key: AgreementKey) -> bytes:
    return key.public_key().public_bytes_raw()


def _ephemeral_of(message: bytes) -> bytes:
    if len(message) < EPHEMERAL_BYTES:
        raise Untrusted("a handshake was cut short")
    return message[:EPHEMERAL_BYTES]
