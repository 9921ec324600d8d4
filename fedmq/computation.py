"""A pure piece of arithmetic that any process can run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

__all__ = ["Computation", "Given"]


class Computation(Protocol):
    """A pure piece of arithmetic: picklable, so that any process can run it.

    ``urgency`` is 0 when left out; a computation below 0 lets all others go first. The method
    ``detached()``, where there is one, returns what another machine needs: only the rows that the
    computation reads.
    """

    label: ClassVar[str]
    """Its name in metrics and traces. It stays when the class is renamed: dashboards know it."""

    def run(self) -> Any:
        """The result; the same on every machine."""


@dataclass(frozen=True, slots=True)
class Given:
    """The computation of a value that is at hand already."""

    label: ClassVar[str] = "Given"
    value: Any

    def run(self) -> Any:
        return self.value
