"""A party's key pairs on a PKCS#11 token: a hardware module, a smart card, or SoftHSM.

The private halves are made on the token and never leave it: it signs (CKM_EDDSA with Ed25519) and
agrees on secrets (CKM_ECDH1_DERIVE with X25519) itself, PKCS #11 version 3.0, sections 2.3.10 and
2.3.15. Needs the extra ``fedmq[pkcs11]``.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

from fedmq.errors import ConfigError
from fedmq.transport.sealing.keys import KEY_BYTES, PrivateKeys, PublicKeys

__all__ = ["PreparedSecrets", "Token"]

# RFC 8410, as DER: 1.3.101.112 and 1.3.101.110.
_ED25519 = bytes.fromhex("06032b6570")
_X25519 = bytes.fromhex("06032b656e")
_SECRET_BITS = 256
_MOST_PREPARED = 64
"""Secrets that wait; anybody at the broker can begin handshakes."""


@dataclass(frozen=True)
class Token:
    """The token called ``label`` of the PKCS#11 library ``module``, opened with its ``pin``."""

    module: Path
    label: str
    pin: str = field(repr=False)
    turn: threading.Lock = field(default_factory=threading.Lock, repr=False, compare=False)
    """A session of a token does one thing at a time, whichever thread asks."""

    def generate(self, party: str) -> PrivateKeys:
        """A new pair, named after ``party`` and its public half.

        Raises:
            ConfigError: the token cannot be used, or makes no such keys.
        """
        pkcs11 = _pkcs11()
        flags = pkcs11.MechanismFlag
        try:
            sign = self._made(_ED25519, flags.SIGN | flags.VERIFY)
            agree = self._made(_X25519, flags.DERIVE)
            public = PublicKeys(_raw(sign[0]), _raw(agree[0]))
            for use, (_, private) in (("sign", sign), ("agree", agree)):
                private[pkcs11.Attribute.LABEL] = _name(party, public, use)
            for shown, _ in (sign, agree):
                shown.destroy()
        except pkcs11.PKCS11Error as error:
            raise self._refused("makes no keys", error) from None
        return self._pair(public, sign[1], agree[1])

    def find(self, party: str, public: PublicKeys) -> PrivateKeys:
        """The pair of ``party`` whose public half is ``public``.

        Raises:
            ConfigError: the token cannot be used, or does not have it.
        """
        pkcs11 = _pkcs11()
        try:
            halves = [
                self._session.get_key(
                    pkcs11.ObjectClass.PRIVATE_KEY, label=_name(party, public, use)
                )
                for use in ("sign", "agree")
            ]
        except pkcs11.NoSuchKey:
            raise ConfigError(
                f"the token {self.label} does not have the keys {public.fingerprint} of {party}"
            ) from None
        except pkcs11.PKCS11Error as error:
            raise self._refused("cannot be read", error) from None
        return self._pair(public, *halves)

    def keep(self, party: str, kept: Iterable[PublicKeys]) -> None:
        """Delete the pairs of ``party`` but those ``kept``; ConfigError where the token refuses."""
        pkcs11 = _pkcs11()
        names = {_name(party, public, use) for public in kept for use in ("sign", "agree")}
        wanted = {pkcs11.Attribute.CLASS: pkcs11.ObjectClass.PRIVATE_KEY}
        try:
            for key in list(self._session.get_objects(wanted)):
                if key.label.startswith(f"fedmq {party} ") and key.label not in names:
                    key.destroy()
        except pkcs11.PKCS11Error as error:
            raise self._refused("deletes no old keys", error) from None

    @functools.cached_property
    def _session(self) -> Any:
        pkcs11 = _pkcs11()
        try:
            token = pkcs11.lib(str(self.module)).get_token(token_label=self.label)
            try:
                return token.open(rw=True, user_pin=self.pin)
            except pkcs11.UserAlreadyLoggedIn:  # a login counts for the whole process
                return token.open(rw=True)
        except pkcs11.NoSuchToken:
            raise ConfigError(f"{self.module}: there is no token called {self.label}") from None
        except pkcs11.PinIncorrect:
            raise ConfigError(f"the token {self.label} does not open with this PIN") from None
        except pkcs11.PKCS11Error as error:
            raise self._refused("cannot be opened", error) from None

    def _made(self, curve: bytes, uses: Any) -> tuple[Any, Any]:
        pkcs11 = _pkcs11()
        parameters = self._session.create_domain_parameters(
            pkcs11.KeyType.EC_EDWARDS, {pkcs11.Attribute.EC_PARAMS: curve}, local=True
        )
        public, private = parameters.generate_keypair(
            mechanism=pkcs11.Mechanism.EC_EDWARDS_KEY_PAIR_GEN,
            store=True,
            capabilities=uses,
            private_template={
                pkcs11.Attribute.SENSITIVE: True,
                pkcs11.Attribute.EXTRACTABLE: False,
            },
        )
        return public, private

    def _pair(self, public: PublicKeys, sign: Any, agree: Any) -> PrivateKeys:
        return PrivateKeys(
            _SigningKey(self, sign, public.sign), _AgreementKey(self, agree, public.agree)
        )

    def _refused(self, what: str, error: Exception) -> ConfigError:
        said = str(error) or type(error).__name__
        return ConfigError(f"{self.module}: the token {self.label} {what}: {said}")


@dataclass(frozen=True)
class _SigningKey:
    """Signs with the private half ``key`` on a token."""

    token: Token
    key: Any
    public: bytes

    def sign(self, data: bytes) -> bytes:
        pkcs11 = _pkcs11()
        try:
            with self.token.turn:
                return bytes(self.key.sign(data, mechanism=pkcs11.Mechanism.EDDSA))
        except pkcs11.PKCS11Error as error:
            raise self.token._refused("does not sign", error) from None

    def public_key(self) -> Ed25519PublicKey:
        return Ed25519PublicKey.from_public_bytes(self.public)


class PreparedSecrets:
    """Secrets that wait for their only use: handshakes that run at once each find their own."""

    def __init__(self) -> None:
        self._by_peer: dict[bytes, list[bytes]] = {}
        self._turn = threading.Lock()  # threads keep, the event loop takes

    def keep(self, peer: bytes, secret: bytes) -> None:
        """Keep a ``secret`` agreed on with the owner of the public half ``peer``."""
        with self._turn:
            while len(self._by_peer) >= _MOST_PREPARED:
                self._by_peer.pop(next(iter(self._by_peer)))
            self._by_peer.setdefault(peer, []).append(secret)

    def take(self, peer: bytes) -> bytes | None:
        """A secret that was kept for ``peer``, once; None if there is none."""
        with self._turn:
            secrets = self._by_peer.pop(peer, [])
            secret = secrets.pop() if secrets else None
            if secrets:
                self._by_peer[peer] = secrets
        return secret


@dataclass(frozen=True)
class _AgreementKey:
    """Agrees on secrets with the private half ``key`` on a token."""

    token: Token
    key: Any
    public: bytes
    prepared: PreparedSecrets = field(default_factory=PreparedSecrets, repr=False, compare=False)

    def prepare(self, peer: bytes) -> None:
        with suppress(ValueError):  # the handshake meets it again, and refuses
            self.prepared.keep(peer, self._agreed(X25519PublicKey.from_public_bytes(peer)))

    def exchange(self, peer_public_key: X25519PublicKey) -> bytes:
        secret = self.prepared.take(peer_public_key.public_bytes_raw())
        return self._agreed(peer_public_key) if secret is None else secret

    def _agreed(self, peer_public_key: X25519PublicKey) -> bytes:
        pkcs11 = _pkcs11()
        try:
            with self.token.turn:
                derived = self.key.derive_key(
                    pkcs11.KeyType.GENERIC_SECRET,
                    _SECRET_BITS,
                    mechanism=pkcs11.Mechanism.ECDH1_DERIVE,
                    mechanism_param=(pkcs11.KDF.NULL, None, peer_public_key.public_bytes_raw()),
                    template={
                        pkcs11.Attribute.SENSITIVE: False,
                        pkcs11.Attribute.EXTRACTABLE: True,
                    },
                )
                secret = bytes(derived[pkcs11.Attribute.VALUE])
                derived.destroy()
        except pkcs11.PKCS11Error as error:
            raise self.token._refused("agrees on no secret", error) from None
        if not any(secret):  # RFC 7748, section 6.1: the peer sent a point of small order
            raise ValueError("the shared secret is zero")
        return secret

    def public_key(self) -> X25519PublicKey:
        return X25519PublicKey.from_public_bytes(self.public)


def _raw(public: Any) -> bytes:
    """The 32 bytes of a public half; PKCS#11 wraps them into an octet string."""
    point: bytes = public[_pkcs11().Attribute.EC_POINT]
    return bytes(point[-KEY_BYTES:])


def _name(party: str, public: PublicKeys, use: str) -> str:
    return f"fedmq {party} {public.id.hex()} {use}"


@functools.cache
def _pkcs11() -> Any:
    try:
        import pkcs11
    except ImportError:
        raise ConfigError(
            "keys on a token need more packages; run: pip install 'fedmq[pkcs11]'"
        ) from None
    return pkcs11
