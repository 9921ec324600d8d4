"""The file that a broker's operator sends back: a party's certificate, and whom to trust."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from fedmq.errors import ConfigError
from fedmq.party.atomic_file import write_atomically
from fedmq.transport.rabbitmq.certificate_request import fits
from fedmq.transport.rabbitmq.certificates import common_name

__all__ = ["SignedCertificate", "write_signed"]

_FORMAT = "fedmq signed certificate 1"


@dataclass(frozen=True)
class SignedCertificate:
    """The certificate of ``party`` and the authority that signed the broker's, both PEM."""

    party: str
    certificate: bytes
    authority: bytes

    @classmethod
    def read(cls, path: Path) -> SignedCertificate:
        """Raises ConfigError: the file cannot be read, or is none."""
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            if document["format"] != _FORMAT:
                raise ValueError
            found = cls(
                document["party"],
                document["certificate"].encode(),
                document["authority"].encode(),
            )
        except OSError as error:
            raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ConfigError(f"{path}: this is no file of fedmq broker sign") from None
        if common_name(found.certificate) != found.party:
            raise ConfigError(f"{path}: this is no certificate of {found.party}")
        return found

    def check_fits(self, party: str, key: bytes) -> None:
        """Raise ConfigError unless it is the certificate of ``party`` and of its ``key`` (PEM)."""
        if self.party != party:
            raise ConfigError(f"this is the certificate of {self.party}, not of {party}")
        if not fits(self.certificate, key):
            raise ConfigError(
                f"this certificate is for another key than {party} has; send the operator the "
                "newest request"
            )


def write_signed(path: Path, party: str, certificate: bytes, authority: bytes) -> None:
    """Write the file at ``path``; ConfigError where that fails."""
    document = {
        "format": _FORMAT,
        "party": party,
        "certificate": certificate.decode(),
        "authority": authority.decode(),
    }
    try:
        write_atomically(path, json.dumps(document, indent=2) + "\n")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None
