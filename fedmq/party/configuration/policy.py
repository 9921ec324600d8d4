"""The ``[policy]`` of a party: what it takes part in."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

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
    smallest_alignment: Annotated[int, Field(ge=1)] = 1
    """With fewer common ids this party takes part in no alignment."""
    allow_leaky_engines: bool = False
    """Also take part with engines that are known to give data away, smm1 and smm2."""

    def refusal(self, party: str, engine: str) -> str | None:
        """Why ``party`` does not take part with the engine of this name; None if it does."""
        known = ENGINES.get(engine)
        if known is not None and known.known_leak:
            if self.allow_leaky_engines:
                return None
            return (
                f"{party} does not take part with engine {engine!r}: {known.known_leak}; "
                "allow_leaky_engines = true in its [policy] accepts that"
            )
        if engine not in self.engines:
            allowed = ", ".join(self.engines)
            return f"{party} does not take part with engine {engine!r}, only {allowed}"
        return None
