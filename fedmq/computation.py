"""A pure piece of arithmetic that any process can run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["Computation", "Given"]


class Computation(Protocol):
    """A pure piece of arithmetic: picklable, so that any process can run it.

    One with ``urgency`` below 0 lets all others go first; left out, it is 0. One with a method
    ``detached()`` makes of itself what another machine needs: only the rows that it reads.
    """

    def run(self) -> Any:
        """The result; the same on every machine."""


@dataclass(frozen=True, slots=True)
class Given:
    """The computation of what is at hand already."""

    value: Any

    def run(self) -> Any:
        return self.value
