"""How does a list of blinded ids travel? In pieces, and on a way that ends at one party."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from numpy.typing import NDArray

from fedmq.errors import ProtocolError

__all__ = ["IN_ONE_GO", "POINTS", "Pieces", "after", "before", "parts", "way"]

POINTS = 8192
"""Points of a computation and of a message: a quarter of a second, and 256 KiB."""
IN_ONE_GO = 16
"""Messages sent in one go: a million points sent at once would block the sender."""


def way(parties: Sequence[str], owner: str) -> tuple[str, ...]:
    """The parties that ``owner``'s list passes; all lists end at ``parties[0]``.

    No other party receives two lists that the same parties have blinded.
    """
    last, *others = parties
    if owner == last:
        return (*others, last)
    at = others.index(owner)
    return (*others[at + 1 :], *others[:at], last)


def before(parties: Sequence[str], owner: str, party: str) -> str:
    """The party before ``party`` on the way of ``owner``'s list; empty if it does not pass."""
    here = way(parties, owner)
    return (owner, *here)[here.index(party)] if party in here else ""


def after(parties: Sequence[str], owner: str, party: str) -> str:
    """The party after ``party`` on the way of ``owner``'s list."""
    stations = (owner, *way(parties, owner))
    return stations[stations.index(party) + 1]


class Pieces:
    """An array of ``rows`` rows that arrives in pieces of ``size``, each once, in any order."""

    def __init__(self, rows: int, size: int) -> None:
        self.rows = rows
        self._size = size
        self._parts: dict[int, NDArray[Any]] = {}

    def add(self, start: int, part: NDArray[Any]) -> None:
        """Take the piece at ``start``; ProtocolError if it is misplaced or repeated."""
        length = min(self._size, self.rows - start)
        if start % self._size or start in self._parts or len(part) != max(length, 0):
            raise ProtocolError(f"rows {start} to {start + len(part)} are no piece of {self.rows}")
        self._parts[start] = part

    @property
    def complete(self) -> bool:
        """Whether all rows have arrived."""
        return len(self._parts) * self._size >= self.rows

    def in_order(self) -> list[NDArray[Any]]:
        """The pieces in the order of their rows."""
        return [self._parts[start] for start in sorted(self._parts)]


def parts(array: NDArray[Any], size: int) -> Iterator[tuple[int, NDArray[Any]]]:
    """The pieces of ``size`` rows of ``array``, each with the row at which it begins."""
    for start in range(0, len(array), size):
        yield start, array[start : start + size]
