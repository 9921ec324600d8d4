"""Who gives a command, as far as this machine can tell."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Person"]


@dataclass(frozen=True, slots=True)
class Person:
    """A person called ``name``. ``behind``: who vouches for the name on this machine.

    The operating system and a certificate vouch for their own names. A sign-in to the console has
    any name that was typed, so the operating system's user who made it is behind it.
    """

    name: str
    behind: str

    @classmethod
    def proven(cls, name: str) -> Person:
        """A person for whose ``name`` the operating system or a certificate vouches."""
        return cls(name, name)

    def may_be(self, other: Person) -> bool:
        """Whether this may be the ``other`` person: under one name, or with the same behind it."""
        return not {self.name, self.behind}.isdisjoint({other.name, other.behind})

    def __str__(self) -> str:
        return self.name if self.name == self.behind else f"{self.name}, signed in by {self.behind}"
