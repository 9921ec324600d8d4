"""``federation.toml``: who takes part. The same file at every party."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from fedmq.errors import ConfigError
from fedmq.messages.envelope import PartyName
from fedmq.party.configuration.toml_file import Section, read_toml
from fedmq.transport.sealing.keys import PublicKeys

__all__ = ["Federation"]


def _listed(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


def _key(text: str) -> str:
    try:
        return str(PublicKeys.from_text(text))
    except ConfigError as error:
        raise ValueError(str(error)) from None


Pinned = Annotated[
    tuple[Annotated[str, AfterValidator(_key)], ...], BeforeValidator(_listed), Field(min_length=1)
]


class Federation(Section):
    """The federation's name, its label holder, and the others in the order that decides ties."""

    file = "federation file"

    name: PartyName
    """The federation's name; it is part of every queue's name on the broker. Names, of parties too,
    are a small letter and up to 31 small letters, digits, ``_`` or ``-``."""
    active: PartyName
    """The party that holds the label."""
    passive: tuple[PartyName, ...]
    """The other parties. Of two equally good splits, the earlier party's is taken."""
    keys: Mapping[PartyName, Pinned] = Field(default_factory=dict)
    """Every party's public keys; more than one while a party changes its own."""

    @model_validator(mode="after")
    def _distinct_parties(self) -> Self:
        if len(set(self.parties)) < len(self.parties):
            raise ValueError("passive: a party is named twice")
        if self.keys and set(self.keys) != set(self.parties):
            odd = min(set(self.keys) ^ set(self.parties))
            what = (
                "no such party"
                if odd in self.keys
                else "the keys of this party are missing; pin them with: fedmq keys trust"
            )
            raise ValueError(f"keys.{odd}: {what}")
        return self

    @classmethod
    def read(cls, path: Path) -> Federation:
        """Raises ConfigError naming file and key."""
        return read_toml(path, cls)

    @property
    def parties(self) -> tuple[str, ...]:
        """All parties, the active one first."""
        return (self.active, *self.passive)

    def partners(self, wanted: Sequence[str] | None) -> tuple[str, ...]:
        """The passive parties among ``wanted``, in the federation's order; all for None.

        Raises:
            ConfigError: one of them is no passive party.
        """
        if wanted is None:
            return self.passive
        odd = [party for party in wanted if party not in self.passive]
        if odd:
            raise ConfigError(
                f"parties: {odd[0]!r} is none of the passive parties {', '.join(self.passive)}"
            )
        return tuple(party for party in self.passive if party in wanted)

    def are_members(self, parties: Sequence[str]) -> bool:
        """Whether ``parties`` are some of the federation's, the active one and then the others."""
        return list(parties) == [party for party in self.parties if party in parties] and (
            self.active in parties
        )

    def pinned(self, party: str) -> tuple[PublicKeys, ...]:
        """The public keys of ``party``, the newest last; none where messages are not sealed."""
        return tuple(PublicKeys.from_text(key) for key in self.keys.get(party, ()))
