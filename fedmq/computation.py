"""A pure piece of arithmetic that any process can run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

__all__ = ["Computation", "Given"]


class Computation(Protocol):
    """A pure piece of arithmetic; it is picklable, so any process can run it.

    ``urgency`` is 0 when left out; a computation below 0 lets all others go first. An optional
    method ``detached()`` returns a copy for another machine, with only the rows that the
    computation reads.
    """

    label: ClassVar[str]
    """The name in metrics and traces. Renaming the class does not change it: dashboards use it."""

    def run(self) -> Any:
        """The result; the same on every machine."""


@dataclass(frozen=True, slots=True)
class Given:
    """A computation that returns a constant."""

    label: ClassVar[str] = "Given"
    value: Any

    def run(self) -> Any:
        return self.value
