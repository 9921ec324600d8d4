"""A token that holds private keys, takes its time, and may refuse."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PublicKey

from fedmq.errors import ConfigError
from fedmq.party.identity.token_keys import PreparedSecrets
from fedmq.transport.sealing.keys import AgreementKey, PrivateKeys, SigningKey


@dataclass
class SlowToken:
    """Takes its time, and notes who waited on the event loop's thread."""

    seconds: float = 0.3
    loop: int = field(default_factory=threading.get_ident)
    waited: list[str] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    broken: bool = False
    refusals: int = 0
    """So many signatures are refused before the first."""

    def work(self, what: str) -> None:
        if threading.get_ident() == self.loop:
            self.waited.append(what)
        time.sleep(self.seconds)
        if what == "sign" and self.refusals:
            self.refusals -= 1
            raise ConfigError("the token is busy")
        if self.broken:
            raise ConfigError("the token is gone")
        self.done.append(what)


class SlowSigning:
    def __init__(self, token: SlowToken, key: SigningKey) -> None:
        self.token, self.key = token, key

    def sign(self, data: bytes) -> bytes:
        self.token.work("sign")
        return self.key.sign(data)

    def public_key(self) -> Ed25519PublicKey:
        return self.key.public_key()


class SlowAgreement:
    def __init__(self, token: SlowToken, key: AgreementKey) -> None:
        self.token, self.key = token, key
        self.prepared = PreparedSecrets()

    def prepare(self, peer: bytes) -> None:
        self.token.work("agree")
        self.prepared.keep(peer, self.key.exchange(X25519PublicKey.from_public_bytes(peer)))

    def exchange(self, peer_public_key: X25519PublicKey) -> bytes:
        secret = self.prepared.take(peer_public_key.public_bytes_raw())
        if secret is None:
            self.token.work("agree")
            return self.key.exchange(peer_public_key)
        return secret

    def public_key(self) -> X25519PublicKey:
        return self.key.public_key()


def keys_on(token: SlowToken, keys: PrivateKeys | None = None) -> PrivateKeys:
    """These keys, or new ones, as if they lay on ``token``."""
    keys = keys or PrivateKeys.generate()
    return PrivateKeys(SlowSigning(token, keys.sign), SlowAgreement(token, keys.agree))
