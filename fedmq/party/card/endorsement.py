"""How does a party sign a model card, and what follows from its signature?

It signs the card as it is, together with the hash of its own share and the line of its audit log
by which it agreed to the training. So each party says what it alone knows, and no card can be
altered under its name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from fedmq.boosting.model.share import ActiveShare, PassiveShare
from fedmq.errors import ConfigError, Refused
from fedmq.messages.envelope import PartyName
from fedmq.party.card.model_card import ModelCard, canonical
from fedmq.party.consent.audit_log import AuditLog

__all__ = ["AgreedEntry", "Endorsement", "check_share", "endorse", "share_hash"]

_CARD = b"fedmq model card 1\n"
"""No other text that a party's key signs begins like this."""

_Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class AgreedEntry(BaseModel):
    """The entry of an audit log by which its owner agreed to the training, and its hash."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    number: int
    at: str
    session: str
    sha256: _Hash


class Endorsement(BaseModel):
    """What ``party`` says under a card: the SHA-256 of its ``share``, and that it ``agreed``.

    ``agreed`` is None for the label holder, which asked for the training. ``signature``: Ed25519,
    hexadecimal.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    party: PartyName
    made: str
    share: _Hash
    agreed: AgreedEntry | None = None
    signature: Annotated[str, Field(pattern=r"^[0-9a-f]{128}$")]

    def signed(self, card: ModelCard) -> bytes:
        """What the signature is about."""
        own = canonical(self.model_copy(update={"signature": ""}))
        return _CARD + f"{len(own)}\n{own}\n{canonical(card)}".encode()


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
        Refused: the card is another model's, or says what is not so.
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
    """Raise Refused where ``card`` does not describe the model of which ``party`` has ``share``."""
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
