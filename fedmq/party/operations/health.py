"""How a daemon is, as supervisors, load balancers and its owner ask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["Health"]


@dataclass(frozen=True, slots=True)
class Health:
    """``reasons``: why it can serve nothing now, in a line each; none: it is ready.

    ``away``: parties that have not answered questions for scores for a while. What becomes of
    scores meanwhile is the policy's; a party that is away is no reason to send callers elsewhere.
    """

    reasons: tuple[str, ...] = ()
    away: tuple[str, ...] = ()

    @property
    def ready(self) -> bool:
        """Whether it can serve."""
        return not self.reasons

    def told(self) -> dict[str, Any]:
        """As plain data."""
        return {"ready": self.ready, "reasons": list(self.reasons), "away": list(self.away)}
