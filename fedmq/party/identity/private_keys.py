"""A party's private keys: one JSON file that only its owner can read, or a token that it names."""

from __future__ import annotations

import json
import os
import re
import secrets
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from fedmq.errors import ConfigError
from fedmq.party.atomic_file import write_whole
from fedmq.party.identity.token_keys import Token
from fedmq.transport.sealing.keys import KEY_BYTES, PrivateKeys, PublicKeys

__all__ = [
    "PASSPHRASE_VARIABLE",
    "KeyRing",
    "Passphrase",
    "is_locked",
    "passphrase_from",
    "passphrase_from_environment",
    "read",
    "write",
]

PASSPHRASE_VARIABLE = "FEDMQ_KEYS_PASSPHRASE"

_FORMAT = "fedmq keys 1"
_DAMAGED = "this is no file of private keys, or it is damaged"
_COMMAND_SECONDS = 30
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
    token: Token | None = None
    """Where the pairs lie, if not in the file itself."""

    @classmethod
    def new(cls, party: str, token: Token | None = None) -> KeyRing:
        """A ring with one fresh pair; ConfigError where the token makes none."""
        pair = PrivateKeys.generate() if token is None else token.generate(party)
        return cls(party, pair, token=token)

    @classmethod
    def of(cls, party: str, pairs: Mapping[str, PrivateKeys]) -> KeyRing:
        """The ring of ``pairs`` by name; KeyError without a current one."""
        return cls(party, pairs["current"], pairs.get("previous"), pairs.get("next"))

    @property
    def all(self) -> tuple[PrivateKeys, ...]:
        """Every pair that opens messages."""
        return tuple(pair for pair in (self.current, self.next, self.previous) if pair)

    def prepared(self) -> KeyRing:
        """Add a next pair if there is none: it opens messages but does not sign yet.

        An old next pair stays: other parties may already seal to it.
        """
        return replace(self, next=self.next or KeyRing.new(self.party, self.token).current)

    def advanced(self) -> KeyRing:
        """Make the next pair sign; the former pair still opens messages that are under way.

        Raises:
            ConfigError: there is no next pair.
        """
        if self.next is None:
            raise ConfigError("there is no next key yet; begin with: fedmq keys rotate")
        return replace(self, current=self.next, previous=self.current, next=None)


def passphrase_from_environment() -> str:
    """The value of ``FEDMQ_KEYS_PASSPHRASE``; ConfigError if it is not set."""
    try:
        return os.environ[PASSPHRASE_VARIABLE]
    except KeyError:
        raise ConfigError(
            f"the private keys are locked with a passphrase; set {PASSPHRASE_VARIABLE}"
        ) from None


def passphrase_from(command: Sequence[str], otherwise: Passphrase) -> Passphrase:
    """What ``command`` prints when it is needed; ``otherwise`` if there is no command."""
    return partial(_printed, command) if command else otherwise


def _printed(command: Sequence[str]) -> str:
    """The one line that ``command`` prints.

    Raises:
        ConfigError: it cannot be run, fails, takes too long, or prints something else.
    """
    about = f"keys_passphrase: {command[0]}"
    try:
        done = subprocess.run(
            command,
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_COMMAND_SECONDS,
        )
    except OSError as error:
        raise ConfigError(f"{about} cannot be run: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise ConfigError(f"{about} took more than {_COMMAND_SECONDS} seconds") from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").splitlines() or ["it said nothing"]
        raise ConfigError(f"{about} failed with code {done.returncode}: {said[-1]}")
    lines = done.stdout.decode(errors="replace").splitlines()
    if len(lines) != 1 or not lines[0]:
        raise ConfigError(f"{about} printed {len(lines)} lines, not the passphrase alone")
    return lines[0]


def read(path: Path, party: str, passphrase: Passphrase = passphrase_from_environment) -> KeyRing:
    """Read the keys in ``path``.

    Where they lie on a token, ``passphrase`` is its PIN.

    Raises:
        ConfigError: the file is missing, damaged, of another party, open to others, or locked with
            another passphrase; or the token does not open.
    """
    document = _document(path)
    try:
        names = list(document["keys"])
        if "token" in document["secret"]:
            return _on_token(document, party, passphrase, path)
        secret = _unlocked(document["secret"], passphrase, path)
        size = 2 * KEY_BYTES
        if len(secret) != size * len(names):
            raise ValueError
        pairs = {
            name: PrivateKeys.from_bytes(secret[at * size : (at + 1) * size])
            for at, name in enumerate(names)
        }
        ring = KeyRing.of(document["party"], pairs)
    except (ValueError, TypeError, KeyError):
        raise ConfigError(f"{path}: {_DAMAGED}") from None
    _check_owner(ring.party, party, path)
    return ring


def _on_token(
    document: Mapping[str, Any], party: str, passphrase: Passphrase, path: Path
) -> KeyRing:
    place = document["secret"]["token"]
    _check_owner(document["party"], party, path)
    token = Token(Path(place["module"]), str(place["label"]), passphrase())
    pairs = {
        name: token.find(party, PublicKeys.from_text(text))
        for name, text in document["keys"].items()
    }
    return replace(KeyRing.of(party, pairs), token=token)


def _check_owner(found: str, party: str, path: Path) -> None:
    if found != party:
        raise ConfigError(f"{path}: these are the keys of {found}, not of {party}")


def is_locked(path: Path) -> bool:
    """Whether the keys in ``path`` need a passphrase or a PIN; ConfigError as for ``read``."""
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

    Of keys on a token only its name is written; what the ring no longer holds is deleted there.

    Raises:
        ConfigError: the disk, or the token, refuses.
    """
    named = {"current": ring.current, "previous": ring.previous, "next": ring.next}
    pairs = {name: pair for name, pair in named.items() if pair is not None}
    token = ring.token
    if token is None:
        secret = _locked(b"".join(pair.to_bytes() for pair in pairs.values()), passphrase)
    else:
        secret = {"token": {"module": str(token.module), "label": token.label}}
    document = {
        "format": _FORMAT,
        "party": ring.party,
        "keys": {name: str(pair.public) for name, pair in pairs.items()},
        "secret": secret,
    }
    write_whole(path, json.dumps(document, indent=2) + "\n", mode=0o600)
    if token is not None:
        token.keep(ring.party, [pair.public for pair in pairs.values()])


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
