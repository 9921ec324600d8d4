"""A party's long-term keys: Ed25519 to sign with, X25519 to agree on session keys with."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, Self, runtime_checkable

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from fedmq.errors import ConfigError

__all__ = [
    "KEY_BYTES",
    "AgreementKey",
    "LateSignature",
    "PrivateKeys",
    "PublicKeys",
    "SigningKey",
    "SlowAgreementKey",
]

KEY_BYTES = 32
_ID_BYTES = 8
_FINGERPRINT_BYTES = 16


@dataclass(frozen=True)
class PublicKeys:
    """The keys that other parties pin: 32 bytes to check signatures, 32 bytes to agree on keys."""

    sign: bytes
    agree: bytes

    @classmethod
    def from_text(cls, text: str) -> Self:
        """The keys whose ``str`` is ``text``; ConfigError if there are none."""
        try:
            padded = text.strip() + "=" * (-len(text.strip()) % 4)
            data = urlsafe_b64decode(padded.encode("ascii"))
        except ValueError:
            data = b""
        if len(data) != 2 * KEY_BYTES or str(cls(data[:32], data[32:])) != text.strip():
            raise ConfigError(
                "the text is no party's public key; fedmq keys show prints public keys"
            )
        return cls(data[:KEY_BYTES], data[KEY_BYTES:])

    def __str__(self) -> str:
        """Both keys as one word of 86 letters (base64url)."""
        return urlsafe_b64encode(self.sign + self.agree).decode().rstrip("=")

    @property
    def id(self) -> bytes:
        """8 bytes that name a key among the pinned ones; they prove nothing."""
        return self._digest()[:_ID_BYTES]

    @property
    def fingerprint(self) -> str:
        """Eight groups of four hexadecimal digits, to be compared by telephone.

        128 bits of SHA-256: nobody can make another key pair with the same fingerprint.
        """
        text = self._digest()[:_FINGERPRINT_BYTES].hex()
        return " ".join(text[start : start + 4] for start in range(0, len(text), 4))

    def verifies(self, data: bytes, signature: bytes) -> bool:
        """Whether ``signature`` of ``data`` was made with the matching private key."""
        try:
            Ed25519PublicKey.from_public_bytes(self.sign).verify(signature, data)
        except (InvalidSignature, ValueError):
            return False
        return True

    def _digest(self) -> bytes:
        return hashlib.sha256(b"fedmq public keys" + self.sign + self.agree).digest()


class SigningKey(Protocol):
    """An Ed25519 key that signs, wherever its private half lies."""

    def sign(self, data: bytes, /) -> bytes:
        """The signature of ``data``, 64 bytes."""

    def public_key(self) -> Ed25519PublicKey:
        """The public half."""


class AgreementKey(Protocol):
    """An X25519 key that agrees on secrets, wherever its private half lies."""

    def exchange(self, peer_public_key: X25519PublicKey) -> bytes:
        """The secret shared with the owner of a key, 32 bytes; ValueError if it is zero."""

    def public_key(self) -> X25519PublicKey:
        """The public half."""


@runtime_checkable
class SlowAgreementKey(AgreementKey, Protocol):
    """An agreement key that computes elsewhere, as on a token: callers must not wait for it."""

    def prepare(self, peer: bytes) -> None:
        """Agree with the owner of a key, and keep the secret for the next ``exchange`` with it.

        Takes as long as the key takes: call it off the event loop. FedmqError if the key refuses.
        """


class LateSignature(bytes):
    """Holds the place of a signature that a slow key has yet to make: no bytes until then.

    ``sign`` makes it. What is hashed leaves signatures out, so it is the same with either.
    """

    def __new__(cls, sign: Callable[[], bytes]) -> Self:
        late = super().__new__(cls)
        late._sign, late._made = sign, b""
        return late

    _sign: Callable[[], bytes]
    _made: bytes

    def made(self) -> bytes:
        """The signature, made once. Takes as long as the key takes: call it off the event loop.

        Raises:
            FedmqError: the key refuses; the next call asks it again.
        """
        if not self._made:
            self._made = self._sign()
        return self._made


@dataclass(frozen=True)
class PrivateKeys:
    """Both private keys; ``repr`` does not show them."""

    sign: SigningKey
    agree: AgreementKey

    @classmethod
    def generate(cls) -> Self:
        """Fresh keys from the operating system's random numbers."""
        return cls(Ed25519PrivateKey.generate(), X25519PrivateKey.generate())

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """The keys whose ``to_bytes`` is ``data``; ValueError for another length."""
        return cls(
            Ed25519PrivateKey.from_private_bytes(data[:KEY_BYTES]),
            X25519PrivateKey.from_private_bytes(data[KEY_BYTES:]),
        )

    def to_bytes(self) -> bytes:
        """The secret itself, 64 bytes; TypeError where it lies elsewhere, as on a token."""
        sign, agree = self.sign, self.agree
        if not isinstance(sign, Ed25519PrivateKey) or not isinstance(agree, X25519PrivateKey):
            raise TypeError("these keys do not leave where they lie")
        return sign.private_bytes_raw() + agree.private_bytes_raw()

    @property
    def slow(self) -> bool:
        """Whether they compute elsewhere, as on a token: callers must not wait for them."""
        return isinstance(self.agree, SlowAgreementKey)

    @property
    def public(self) -> PublicKeys:
        """The public keys."""
        return PublicKeys(
            self.sign.public_key().public_bytes_raw(), self.agree.public_key().public_bytes_raw()
        )
