"""Which files pass between a newcomer and the broker's operator?

The newcomer sends one file: its name, its public keys, and a certificate request. The operator
sends one back: a certificate, and the authority to trust.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from fedmq.errors import ConfigError
from fedmq.party.atomic_file import write_whole
from fedmq.transport.rabbitmq.certificates import common_name, fits, read_request
from fedmq.transport.rabbitmq.topology import check_name
from fedmq.transport.sealing.keys import PrivateKeys, PublicKeys

__all__ = ["JoinRequest", "SignedCertificate", "WaitingRequest", "waiting_requests", "write_signed"]

_REQUEST_FORMAT = "fedmq join request 1"
_ANSWER_FORMAT = "fedmq signed certificate 1"
_LARGEST_BYTES = 64 * 1024


def _check_format(found: object, known: str) -> None:
    """ValueError if ``found`` is not ``known``; ConfigError if it is a later one of its kind."""
    if found == known:
        return
    kind, _, number = str(found).rpartition(" ")
    if kind == known.rpartition(" ")[0] and number.isdecimal():
        raise ConfigError(
            f"the format {found!r} is unknown; this fedmq reads {known!r}, so use the fedmq that "
            "wrote the file"
        )
    raise ValueError


@dataclass(frozen=True)
class JoinRequest:
    """Signed by the newcomer, so that its keys cannot join another certificate request.

    People compare the fingerprint to check that the keys are the newcomer's.
    """

    federation: str
    party: str
    public: PublicKeys
    certificate_request: bytes
    """PEM."""

    def dumps(self, keys: PrivateKeys) -> str:
        """The file, signed with ``keys``."""
        signature = keys.sign.sign(self._signed()).hex()
        return json.dumps({**self._fields(), "signature": signature}, indent=2) + "\n"

    @classmethod
    def read(cls, path: Path) -> JoinRequest:
        """The request in the file at ``path``.

        Raises:
            ConfigError: the file cannot be read, is no request, or was altered.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
        except ValueError:
            raise ConfigError(f"{path}: this is no request of fedmq join") from None
        return cls.parse(text, str(path))

    @classmethod
    def parse(cls, text: str, name: str) -> JoinRequest:
        """Parse the request in ``text``, which errors call ``name``; errors as for ``read``."""
        try:
            document: dict[str, Any] = json.loads(text)
            _check_format(document["format"], _REQUEST_FORMAT)
            request = cls(
                check_name("federation", document["federation"]),
                check_name("party", document["party"]),
                PublicKeys.from_text(document["keys"]),
                document["certificate_request"].encode(),
            )
            verifier = Ed25519PublicKey.from_public_bytes(request.public.sign)
            verifier.verify(bytes.fromhex(document["signature"]), request._signed())
            read_request(request.certificate_request, request.party)
        except InvalidSignature:
            raise ConfigError(f"{name}: was altered since it was made; have it sent anew") from None
        except ConfigError as error:
            raise ConfigError(f"{name}: {error}") from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise ConfigError(f"{name}: this is no request of fedmq join") from None
        return request

    def check(self, federation: str, fingerprint: str, name: str) -> None:
        """Raise ConfigError unless it is for ``federation``, with keys of this ``fingerprint``."""
        if self.federation != federation:
            raise ConfigError(f"{name}: asks to join {self.federation}, not {federation}")
        if "".join(fingerprint.lower().split()) != "".join(self.public.fingerprint.split()):
            raise ConfigError(
                f"{name}: has another fingerprint than the one given, so {self.party} is not "
                "added; let its owner read it out again, from its own screen"
            )

    def _fields(self) -> dict[str, str]:
        return {
            "format": _REQUEST_FORMAT,
            "federation": self.federation,
            "party": self.party,
            "keys": str(self.public),
            "certificate_request": self.certificate_request.decode(),
        }

    def _signed(self) -> bytes:
        return json.dumps(self._fields(), sort_keys=True).encode()


@dataclass(frozen=True, slots=True)
class WaitingRequest:
    """A file in the folder of join requests: the party that made it, or why it is none."""

    file: str
    party: str = ""
    error: str = ""


def waiting_requests(
    folder: Path, members: Mapping[str, Sequence[PublicKeys]]
) -> list[WaitingRequest]:
    """The join requests in ``folder``, by file name, but those of ``members`` with these keys.

    ``members``: the public keys of each party of the federation.
    """
    found = []
    for path in sorted(folder.glob("*.json")):
        try:
            if path.stat().st_size > _LARGEST_BYTES:
                raise ConfigError(f"{path}: this is no request of fedmq join")
            request = JoinRequest.read(path)
        except (ConfigError, OSError) as error:
            found.append(WaitingRequest(path.name, error=str(error)))
            continue
        if request.public not in members.get(request.party, ()):
            found.append(WaitingRequest(path.name, request.party))
    return found


@dataclass(frozen=True)
class SignedCertificate:
    """The certificate of ``party`` and the authority of the broker's certificate, both PEM."""

    party: str
    certificate: bytes
    authority: bytes

    @classmethod
    def read(cls, path: Path) -> SignedCertificate:
        """Read the file; ConfigError if it cannot be read, or is no certificate file."""
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            _check_format(document["format"], _ANSWER_FORMAT)
            found = cls(
                document["party"],
                document["certificate"].encode(),
                document["authority"].encode(),
            )
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ConfigError(f"{path}: this is no file of fedmq broker sign") from None
        if common_name(found.certificate) != found.party:
            raise ConfigError(f"{path}: this is no certificate of {found.party}")
        return found

    def check_fits(self, party: str, key: bytes) -> None:
        """Raise ConfigError unless the certificate is for ``party`` and its ``key`` (PEM)."""
        if self.party != party:
            raise ConfigError(f"this is the certificate of {self.party}, not of {party}")
        if not fits(self.certificate, key):
            raise ConfigError(
                f"this certificate is for another key than {party} has; send the operator the "
                "newest request"
            )


def write_signed(path: Path, party: str, certificate: bytes, authority: bytes) -> None:
    """Write the file at ``path``; ConfigError if that fails."""
    document = {
        "format": _ANSWER_FORMAT,
        "party": party,
        "certificate": certificate.decode(),
        "authority": authority.decode(),
    }
    write_whole(path, json.dumps(document, indent=2) + "\n")
