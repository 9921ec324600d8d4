"""Which model scores people without a party?

A model has fallback models: without each passive party, and without all. They are trained on the
same rows, and a person of whom a party says nothing is scored by the one without this party.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from fedmq.errors import ConfigError

__all__ = [
    "check_fallback_names",
    "chosen_fallback",
    "fallback_name",
    "fallback_names",
    "main_name",
]

T = TypeVar("T")

Absent = frozenset[str]
"""The parties that a fallback model does without."""

_LONGEST = 64
"""Letters of a model's name."""
_WITHOUT, _ALONE = "-without-", "-alone"


def fallback_name(model: str, party: str) -> str:
    """The fallback model of ``model`` without ``party``."""
    return f"{model}{_WITHOUT}{party}"


def fallback_names(model: str, passive: Sequence[str]) -> dict[Absent, str]:
    """The fallback models of ``model`` by the parties that they do without, in order of training.

    ``passive``: the passive parties of ``model``.
    """
    names = {frozenset((party,)): fallback_name(model, party) for party in passive}
    if len(passive) > 1:
        names[frozenset(passive)] = f"{model}{_ALONE}"
    return names


def check_fallback_names(model: str, passive: Sequence[str]) -> None:
    """Raise `ConfigError` if the name of a fallback model of ``model`` would be too long."""
    for name in fallback_names(model, passive).values():
        if len(name) > _LONGEST:
            raise ConfigError(
                f"model: fallback model {name!r} would have more than {_LONGEST} letters; choose a "
                "shorter name"
            )


def main_name(name: str) -> str:
    """The model whose fallback has this name; empty if it is no fallback's."""
    main, _, _ = name.removesuffix(_ALONE).rpartition(_WITHOUT)
    return name.removesuffix(_ALONE) if name.endswith(_ALONE) else main


def chosen_fallback(fallbacks: Mapping[Absent, T], absent: Absent) -> T | None:
    """The one that does without all of ``absent``, and without as few others as can be."""
    fitting = [without for without in fallbacks if without >= absent]
    return fallbacks[min(fitting, key=len)] if fitting else None
