"""``federation.toml``: who takes part. The same file at every party."""

from __future__ import annotations

from pathlib import Path
from typing import Self

from pydantic import model_validator

from fedmq.messages.envelope import PartyName
from fedmq.party.configuration.toml_file import Section, read_toml

__all__ = ["Federation"]


class Federation(Section):
    """The federation's name, its label holder, and the others in the order that decides ties."""

    name: PartyName
    """The federation's name; it is part of every queue's name on the broker."""
    active: PartyName
    """The party that holds the label."""
    passive: tuple[PartyName, ...]
    """The other parties. Of two equally good splits, the earlier party's is taken."""

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        if len(set(self.parties)) < len(self.parties):
            raise ValueError("passive: a party is named twice")
        return self

    @classmethod
    def read(cls, path: Path) -> Federation:
        """Raises ConfigError naming file and key."""
        return read_toml(path, cls)

    @property
    def parties(self) -> tuple[str, ...]:
        """All parties, the active one first."""
        return (self.active, *self.passive)
