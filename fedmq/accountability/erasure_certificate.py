"""What does a party sign of an erasure, so that the person and the others can hold it to it?"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedmq.boosting.model.share import first_fault
from fedmq.errors import ConfigError, DataError
from fedmq.messages.fields import PartyName
from fedmq.party.atomic_file import write_whole
from fedmq.party.card.model_card import canonical
from fedmq.party.configuration.federation import Federation

__all__ = ["ErasedPlace", "ErasureCertificate", "JointErasure", "read_certificates"]

_SIGNED_PREFIX = b"fedmq erasure 1\n"
"""Separates these signatures from all others by a party's key."""
_LARGEST_FILE = 1_000_000  # bytes of a certificate; of that of all parties, each
_MOST_PARTIES = 64


class ErasedPlace(BaseModel):
    """Where the person was: ``count`` rows, entries or files of ``what``, removed or not."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    what: str
    count: int
    done: Literal["removed", "stays"]


class ErasureCertificate(BaseModel):
    """That ``party`` looked for a person in its files, and what it took out, by its signature.

    The person is the SHA-256 of ``salt`` and the id, so that whoever has the id can tell.
    ``signature``: Ed25519, hexadecimal.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["fedmq.erasure"] = "fedmq.erasure"
    version: Literal[1] = 1
    federation: str
    party: PartyName
    made: str
    salt: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    person: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    places: Annotated[tuple[ErasedPlace, ...], Field(max_length=10_000)]
    signature: Annotated[str, Field(pattern=r"^[0-9a-f]{128}$")]

    @classmethod
    def of(
        cls,
        federation: str,
        party: str,
        person: str,
        places: Sequence[ErasedPlace],
        sign: Callable[[bytes], bytes],
    ) -> Self:
        """The certificate of an erasure that was just made; ``sign`` signs for ``party``."""
        salt = secrets.token_hex(16)
        plain = cls(
            federation=federation,
            party=party,
            made=datetime.now(UTC).isoformat(timespec="seconds"),
            salt=salt,
            person=_hashed(salt, person),
            places=tuple(places),
            signature="0" * 128,
        )
        return plain.model_copy(update={"signature": sign(plain.signed).hex()})

    def write(self, path: Path) -> None:
        """Write the file whole or not at all; ConfigError if the disk refuses."""
        write_whole(path, self.model_dump_json(indent=1) + "\n")

    @property
    def signed(self) -> bytes:
        """The signed bytes."""
        return _SIGNED_PREFIX + canonical(self.model_copy(update={"signature": ""})).encode()

    def is_of(self, person: str) -> bool:
        """Whether it is about the person of this id, as the party's file has it."""
        return _hashed(self.salt, person) == self.person

    def check(self, federation: Federation) -> str:
        """The fingerprint of the key that signed it.

        Raises:
            ConfigError: the federation file has no key of the party.
            DataError: it is of another federation, or none of the party's keys signed it.
        """
        if self.federation != federation.name:
            raise DataError(f"it is of federation {self.federation}, not of {federation.name}")
        keys = federation.pinned(self.party) if self.party in federation.parties else ()
        if not keys:
            raise ConfigError(
                f"the federation file has no key of {self.party}; give the file of that time"
            )
        signature = bytes.fromhex(self.signature)
        for key in keys:
            if key.verifies(self.signed, signature):
                return key.fingerprint
        raise DataError(
            f"{self.party} has not signed it with a key of the federation file: it was altered, or "
            "keys changed since; give the file of that time"
        )


class JointErasure(BaseModel):
    """What all parties of ``federation`` have signed about one person, in one file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["fedmq.erasure-of-all"] = "fedmq.erasure-of-all"
    version: Literal[1] = 1
    federation: str
    certificates: Annotated[
        tuple[ErasureCertificate, ...], Field(min_length=1, max_length=_MOST_PARTIES)
    ]

    @classmethod
    def of(cls, certificates: Sequence[ErasureCertificate], federation: Federation) -> Self:
        """The checked ``certificates`` of all parties, in the order of the federation file.

        Raises:
            DataError: that of a party is missing, or there are several of one.
        """
        by_party = {found.party: found for found in certificates}
        missing = [party for party in federation.parties if party not in by_party]
        if missing:
            raise DataError(
                f"{' and '.join(missing)} of the federation has signed none of these certificates: "
                "name that as well with --verify"
            )
        if len(by_party) < len(certificates):
            raise DataError("a party has signed several of these certificates: name one of each")
        ordered = tuple(by_party[party] for party in federation.parties if party in by_party)
        others = tuple(found for found in certificates if found.party not in federation.parties)
        return cls(federation=federation.name, certificates=(*ordered, *others))

    def write(self, path: Path) -> None:
        """Write the file whole or not at all; ConfigError if the disk refuses."""
        write_whole(path, self.model_dump_json(indent=1) + "\n")


def read_certificates(path: Path) -> tuple[ErasureCertificate, ...]:
    """The certificate at ``path``, or those in the one of all parties; DataError without any."""
    try:
        if path.stat().st_size > _MOST_PARTIES * _LARGEST_FILE:
            raise DataError(f"{path}: is larger than any certificate of an erasure")
        data = path.read_bytes()
        if b'"fedmq.erasure-of-all"' in data[:200]:
            return JointErasure.model_validate_json(data).certificates
        return (ErasureCertificate.model_validate_json(data),)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    except ValidationError as error:
        fault = first_fault(error, "file")
        raise DataError(f"{path}: no certificate of an erasure: {fault}") from None


def _hashed(salt: str, person: str) -> str:
    return hashlib.sha256(bytes.fromhex(salt) + person.encode()).hexdigest()
