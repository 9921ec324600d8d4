"""A model card as a file: the card, and below it what each party says and signs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedmq.errors import ConfigError, DataError
from fedmq.party.atomic_file import write_atomically
from fedmq.party.card.endorsement import Endorsement
from fedmq.party.card.model_card import ModelCard, canonical
from fedmq.party.configuration.federation import Federation

__all__ = ["CardFile", "Signature"]

_LARGEST = 4_000_000  # bytes


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
            if path.stat().st_size > _LARGEST:
                raise DataError(f"{path}: is larger than any model card")
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror}") from None
        except ValidationError as error:
            found = error.errors()[0]
            key = ".".join(map(str, found["loc"])) or "file"
            raise DataError(f"{path}: not a model card: {key}: {found['msg']}") from None
        except ValueError:
            raise DataError(f"{path}: not a model card: it is no text in UTF-8") from None

    def write(self, path: Path) -> None:
        """Write it whole or not at all; ConfigError if the disk refuses."""
        try:
            write_atomically(path, self.model_dump_json(indent=1) + "\n")
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None

    @property
    def content(self) -> str:
        """The card in its canonical form, as it is sent to be signed."""
        return canonical(self.card)

    def of(self, party: str) -> Endorsement | None:
        """What ``party`` says, if it has signed."""
        return next((found for found in self.endorsements if found.party == party), None)

    def endorsed(self, endorsement: Endorsement) -> CardFile:
        """With ``endorsement`` in place of an earlier one of the same party."""
        others = [found for found in self.endorsements if found.party != endorsement.party]
        return self.model_copy(update={"endorsements": (*others, endorsement)})

    def signatures(self, federation: Federation) -> list[Signature]:
        """Of each party of the card, and of who signed besides, what its signature is worth.

        It is good if it fits the card and a key that the federation file pins.
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
