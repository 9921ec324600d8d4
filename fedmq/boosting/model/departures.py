"""Is a model XGBoost's on the joined table, in words for people?"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["departures_in_words"]


def departures_in_words(departures: Sequence[str]) -> str:
    """What an ``ActiveShare`` says of its departures from XGBoost's model."""
    if not departures:
        return "yes, node by node"
    return f"no: {', '.join(departures)}"
