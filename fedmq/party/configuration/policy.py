"""The ``[policy]`` of a party: what it takes part in."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

from fedmq.party.configuration.toml_file import Section
from fedmq.privacy.registry import ENGINES

__all__ = ["PolicySection"]


def _known_engines(names: tuple[str, ...]) -> tuple[str, ...]:
    unknown = [name for name in names if name not in ENGINES]
    if unknown:
        raise ValueError(f"engine {unknown[0]!r} is unknown; use {', '.join(ENGINES)}")
    return names


class PolicySection(Section):
    """What this party takes part in."""

    engines: Annotated[tuple[str, ...], AfterValidator(_known_engines)] = ("paillier", "ou")
    """The engines that this party takes part with."""
    allow_weak_keys: bool = False
    """Whether keys below 2048 bits are accepted: for trials only."""
    allow_unsealed: bool = False
    """Talk without seals in a federation without keys: its broker can read and forge all."""
