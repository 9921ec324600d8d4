"""A party's private keys on disk: one JSON file that only its owner can read."""

from __future__ import annotations

import json
import os
import re
import secrets
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from fedmq.errors import ConfigError
from fedmq.party.atomic_file import write_atomically
from fedmq.transport.sealing.keys import KEY_BYTES, PrivateKeys

__all__ = [
    "PASSPHRASE_VARIABLE",
    "KeyRing",
    "Passphrase",
    "is_locked",
    "passphrase_from_environment",
    "read",
    "write",
]

PASSPHRASE_VARIABLE = "FEDMQ_KEYS_PASSPHRASE"

_FORMAT = "fedmq keys 1"
_DAMAGED = "this is no file of private keys, or it is damaged"
# OWASP's first choice for scrypt: a guess takes 128 MB and a third of a second.
_COST = {"n": 2**17, "r": 8, "p": 1}

Passphrase = Callable[[], str]
"""Returns the passphrase; called only if the keys are locked."""


@dataclass(frozen=True)
class KeyRing:
    """A party's key pairs: the first signs, all open; ``next`` waits to become the first."""

    party: str
    current: PrivateKeys
    previous: PrivateKeys | None = None
    next: PrivateKeys | None = None

    @property
    def all(self) -> tuple[PrivateKeys, ...]:
        """Every pair that opens messages."""
        return tuple(pair for pair in (self.current, self.next, self.previous) if pair)

    def prepared(self) -> KeyRing:
        """Add a next pair if there is none: it opens messages but does not sign yet.

        An old next pair stays: other parties may already seal to it.
        """
        newest = self.next or PrivateKeys.generate()
        return KeyRing(self.party, self.current, self.previous, newest)

    def advanced(self) -> KeyRing:
        """Make the next pair sign; the former pair still opens messages that are under way.

        Raises:
            ConfigError: there is no next pair.
        """
        if self.next is None:
            raise ConfigError("there is no next key yet; begin with: fedmq keys rotate")
        return KeyRing(self.party, self.next, previous=self.current)


def passphrase_from_environment() -> str:
    """The value of ``FEDMQ_KEYS_PASSPHRASE``; ConfigError if it is not set."""
    try:
        return os.environ[PASSPHRASE_VARIABLE]
    except KeyError:
        raise ConfigError(
            f"the private keys are locked with a passphrase; set {PASSPHRASE_VARIABLE}"
        ) from None


def read(path: Path, party: str, passphrase: Passphrase = passphrase_from_environment) -> KeyRing:
    """Read the keys in ``path``.

    Raises:
        ConfigError: the file is missing, damaged, of another party, open to others, or locked with
            another passphrase.
    """
    document = _document(path)
    try:
        names = list(document["keys"])
        secret = _unlocked(document["secret"], passphrase, path)
        size = 2 * KEY_BYTES
        if len(secret) != size * len(names):
            raise ValueError
        pairs = {
            name: PrivateKeys.from_bytes(secret[at * size : (at + 1) * size])
            for at, name in enumerate(names)
        }
        ring = KeyRing(document["party"], **pairs)
    except (ValueError, TypeError, KeyError):
        raise ConfigError(f"{path}: {_DAMAGED}") from None
    if ring.party != party:
        raise ConfigError(f"{path}: these are the keys of {ring.party}, not of {party}")
    return ring


def is_locked(path: Path) -> bool:
    """Whether the keys in ``path`` need a passphrase; ConfigError as for ``read``."""
    return "open" not in _document(path)["secret"]


def _document(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_mode & 0o077:
            raise ConfigError(f"{path}: others may read these private keys; chmod 600 {path}")
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: there is no such file; make it with: fedmq keys new") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError:
        raise ConfigError(f"{path}: {_DAMAGED}") from None
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: {_DAMAGED}")
    form = document.get("format")
    if isinstance(form, str) and re.fullmatch(r"fedmq keys \d+", form) and form != _FORMAT:
        raise ConfigError(
            f"{path}: the format {form!r} is unknown; this fedmq reads {_FORMAT!r}, so use the "
            "fedmq that wrote the file"
        )
    if form != _FORMAT or not isinstance(document.get("secret"), dict):
        raise ConfigError(f"{path}: {_DAMAGED}")
    return document


def write(path: Path, ring: KeyRing, passphrase: str | None = None) -> None:
    """Write the keys with mode 0600, whole or not at all, locked if there is a passphrase.

    Raises:
        ConfigError: the disk refuses.
    """
    named = {"current": ring.current, "previous": ring.previous, "next": ring.next}
    pairs = {name: pair for name, pair in named.items() if pair is not None}
    secret = b"".join(pair.to_bytes() for pair in pairs.values())
    document = {
        "format": _FORMAT,
        "party": ring.party,
        "keys": {name: str(pair.public) for name, pair in pairs.items()},
        "secret": _locked(secret, passphrase),
    }
    try:
        write_atomically(path, json.dumps(document, indent=2) + "\n", mode=0o600)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None


def _locked(secret: bytes, passphrase: str | None) -> dict[str, Any]:
    if passphrase is None:
        return {"open": b64encode(secret).decode()}
    salt, nonce = secrets.token_bytes(16), secrets.token_bytes(12)
    key = Scrypt(salt, 32, **_COST).derive(passphrase.encode())
    box = ChaCha20Poly1305(key).encrypt(nonce, secret, _FORMAT.encode())
    parts = {"salt": salt, "nonce": nonce, "box": box}
    return {"scrypt": _COST, **{name: b64encode(part).decode() for name, part in parts.items()}}


def _unlocked(secret: dict[str, Any], passphrase: Passphrase, path: Path) -> bytes:
    if "open" in secret:
        return b64decode(secret["open"], validate=True)
    # The cost is not read from the file: a forged cost could demand any amount of memory.
    if secret["scrypt"] != _COST:
        raise ValueError
    salt, nonce, box = (b64decode(secret[name], validate=True) for name in ("salt", "nonce", "box"))
    key = Scrypt(salt, 32, **_COST).derive(passphrase().encode())
    try:
        return ChaCha20Poly1305(key).decrypt(nonce, box, _FORMAT.encode())
    except InvalidTag:
        raise ConfigError(f"{path}: the passphrase does not open these keys") from None
