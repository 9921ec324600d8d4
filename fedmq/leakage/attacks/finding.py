"""What an attack achieved, beside what guessing would."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

__all__ = ["Finding", "Measure"]

Measure = Literal["AUC", "accuracy", "purity", "share"]

_CLEARLY = 0.1  # of the way from guessing to certainty


@dataclass(frozen=True, slots=True)
class Finding:
    """One attack on one target: ``value`` of ``measure`` is reached, ``chance`` without the view.

    ``where`` says on which part of the session.
    """

    attack: str
    target: str
    where: str
    measure: Measure
    value: float
    chance: float

    @property
    def succeeds(self) -> bool:
        """Whether the attack is clearly better than guessing."""
        return self.value - self.chance > _CLEARLY * (1 - self.chance)

    def as_dict(self) -> dict[str, Any]:
        """The finding as plain data."""
        return {**asdict(self), "succeeds": self.succeeds}
