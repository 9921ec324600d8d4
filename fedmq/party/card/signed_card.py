"""Signatures of parties under a model card, and their verification.

A party signs the card, the hash of its own share, and the entry of its audit log that agreed to the
training. So each party attests facts that it alone knows, and nobody can alter a signed card.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedmq.boosting.model.share import ActiveShare, PassiveShare, first_fault
from fedmq.errors import ConfigError, DataError, Refused
from fedmq.messages.fields import PartyName
from fedmq.party.atomic_file import write_whole
from fedmq.party.card.model_card import ModelCard, canonical
from fedmq.party.configuration.federation import Federation
from fedmq.party.consent.audit_log import AuditLog

__all__ = [
    "AgreedEntry",
    "CardFile",
    "Endorsement",
    "Signature",
    "check_share",
    "endorse",
    "share_hash",
]

_SIGNED_PREFIX = b"fedmq model card 1\n"
"""Separates these signatures from all others by a party's key."""

_Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
_LARGEST_FILE = 4_000_000  # bytes


class AgreedEntry(BaseModel):
    """The entry of an audit log by which its owner agreed to the training, and its hash."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    number: int
    at: str
    session: str
    sha256: _Hash


class Endorsement(BaseModel):
    """The signature of ``party`` under a card, with the SHA-256 of its ``share`` and its consent.

    ``agreed`` is None for the active party, which asked for the training. ``signature``: Ed25519,
    hexadecimal.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    party: PartyName
    made: str
    share: _Hash
    agreed: AgreedEntry | None = None
    signature: Annotated[str, Field(pattern=r"^[0-9a-f]{128}$")]

    def signed(self, card: ModelCard) -> bytes:
        """The signed bytes."""
        own = canonical(self.model_copy(update={"signature": ""}))
        return _SIGNED_PREFIX + f"{len(own)}\n{own}\n{canonical(card)}".encode()


def endorse(
    card: ModelCard,
    share: ActiveShare | PassiveShare,
    party: str,
    audit_log: AuditLog,
    sign: Callable[[bytes], bytes],
) -> Endorsement:
    """The endorsement of ``card`` by ``party``, which holds ``share``; reads the audit log.

    Raises:
        ConfigError: the federation has no keys.
        DataError: the audit log was changed.
        Refused: the card describes another model, or describes this one wrongly.
    """
    check_share(card, share, party)
    content = {
        "party": party,
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "share": share_hash(share),
        "agreed": None if isinstance(share, ActiveShare) else _agreed(audit_log, card.model),
    }
    plain = Endorsement.model_validate({**content, "signature": "0" * 128})
    signature = sign(plain.signed(card))
    if not signature:
        raise ConfigError(
            "the federation has no keys, so nobody can sign; make them with: fedmq keys new"
        )
    return plain.model_copy(update={"signature": signature.hex()})


def check_share(card: ModelCard, share: ActiveShare | PassiveShare, party: str) -> None:
    """Raise Refused if ``card`` does not describe the model of the ``share`` of ``party``."""
    if card.model != share.model_id:
        raise Refused(f"{party}: the card is that of {card.model}, the share {share.model_id}'s")
    if party not in card.parties:
        raise Refused(f"{party}: the card does not name {party} among its parties")
    if isinstance(share, PassiveShare) and card.withheld.get(party, share.withheld) != (
        share.withheld
    ):
        raise Refused(f"{party}: the card misstates which sums {party} withheld")


def share_hash(share: ActiveShare | PassiveShare) -> str:
    """SHA-256 of ``share``, hexadecimal, as ``fedmq models export`` prints it."""
    return hashlib.sha256(share.dumps().encode()).hexdigest()


def _agreed(audit_log: AuditLog, model: str) -> AgreedEntry | None:
    """The first entry that agreed to the newest training of ``model``; None without any."""
    found: AgreedEntry | None = None
    for entry, digest in audit_log.chain():
        if entry.get("event") != "agreed" or entry.get("training") != model:
            continue
        if found is None or entry["session"] != found.session:
            found = AgreedEntry(
                number=entry["number"], at=entry["at"], session=entry["session"], sha256=digest
            )
    return found


def _later_version(error: ValidationError) -> str:
    """That the card is of a version that this fedmq does not know; empty if that is no fault."""
    for fault in error.errors(include_url=False):
        version = fault["input"]
        if fault["loc"][-2:] == ("card", "version") and isinstance(version, int):
            return (
                f"version {version} is unknown; this fedmq reads version 1, so use the fedmq that "
                "wrote the file"
            )
    return ""


@dataclass(frozen=True, slots=True)
class Signature:
    """Whether ``party`` has signed, and the fingerprint of the key that it signed with."""

    party: str
    state: Literal["signed", "not signed", "wrong"]
    fingerprint: str = ""


class CardFile(BaseModel):
    """A card with the endorsements so far, one of a party at most."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    card: ModelCard
    endorsements: Annotated[tuple[Endorsement, ...], Field(max_length=100)] = ()

    @classmethod
    def read(cls, path: Path) -> Self:
        """Raises DataError where ``path`` is no model card."""
        try:
            if path.stat().st_size > _LARGEST_FILE:
                raise DataError(f"{path}: is larger than any model card")
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror}") from None
        except ValidationError as error:
            fault = _later_version(error) or f"not a model card: {first_fault(error, 'file')}"
            raise DataError(f"{path}: {fault}") from None
        except ValueError:
            raise DataError(f"{path}: not a model card: it is no text in UTF-8") from None

    def write(self, path: Path) -> None:
        """Write the file atomically; ConfigError if the disk refuses."""
        write_whole(path, self.model_dump_json(indent=1) + "\n")

    @property
    def content(self) -> str:
        """The canonical form of the card, as sent for signing."""
        return canonical(self.card)

    def of(self, party: str) -> Endorsement | None:
        """The endorsement of ``party``, if it has signed."""
        return next((found for found in self.endorsements if found.party == party), None)

    def endorsed(self, endorsement: Endorsement) -> CardFile:
        """A copy with ``endorsement``, which replaces an earlier one of the same party."""
        others = [found for found in self.endorsements if found.party != endorsement.party]
        return self.model_copy(update={"endorsements": (*others, endorsement)})

    def signatures(self, federation: Federation) -> list[Signature]:
        """The signatures of the card's parties and of other signers, each verified.

        A signature is good if it fits the card and a key that the federation file pins.
        """
        found = [self._signature(federation, party) for party in self.card.parties]
        signed = {endorsement.party for endorsement in self.endorsements}
        strangers = sorted(signed - set(self.card.parties))
        return [*found, *(Signature(party, "wrong") for party in strangers)]

    def _signature(self, federation: Federation, party: str) -> Signature:
        endorsement = self.of(party)
        if endorsement is None:
            return Signature(party, "not signed")
        data, signature = endorsement.signed(self.card), bytes.fromhex(endorsement.signature)
        for key in federation.pinned(party):
            if key.verifies(data, signature):
                return Signature(party, "signed", key.fingerprint)
        return Signature(party, "wrong")
