"""A circuit breaker: whether it makes sense to ask a party, or only to see if it is back."""

from __future__ import annotations

__all__ = ["Breaker"]


class Breaker:
    """Open after ``misses`` batches in a row that waited in vain; any answer closes it."""

    def __init__(self, misses: int = 2) -> None:
        self._limit = misses
        self._missed = 0
        self.opened = 0
        """How often it has opened."""

    @property
    def is_open(self) -> bool:
        """Whether the party counts as away."""
        return self._missed >= self._limit

    def missed(self) -> None:
        """A batch waited in vain."""
        self._missed += 1
        self.opened += self._missed == self._limit

    def answered(self) -> None:
        """The party said something."""
        self._missed = 0
