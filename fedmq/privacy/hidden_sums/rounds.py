"""Which candidates of a level are computed at once? Blocks of them, in rounds.

Both parties hold kilobytes of each candidate while numbers of transfers become labels. So a node of
very many candidates is cut into blocks, and the next one begins when the one before is garbled and
evaluated: of that, the labels of its outputs are left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Generic, Protocol, TypeVar

__all__ = ["AT_ONCE", "Block", "Rounds", "in_blocks"]

AT_ONCE = 2**14
"""Candidates: a party takes some 20 kB of each where XGBoost's gains are computed of all.

All parties cut by the same number. Several nodes are compared together only where they, and their
slots, have no more.
"""


def in_blocks(nodes: int, candidates: int) -> Iterator[tuple[slice, slice]]:
    """Nodes and candidates of each block; a node's first one begins at its candidate 0.

    Whole nodes stay together as far as there is room; one that is too long by itself is cut.
    """
    together = max(1, AT_ONCE // candidates)
    parts = -(-candidates // AT_ONCE)
    bounds = [candidates * part // parts for part in range(parts + 1)]
    for first in range(0, nodes, together):
        for start, stop in pairwise(bounds):
            yield slice(first, min(first + together, nodes)), slice(start, stop)


class Block(Protocol):
    """What a block takes: ``instances`` of its circuit, and ``transfers``.

    ``takes_numbers``: whether the passive party offers numbers before labels are chosen.
    """

    @property
    def instances(self) -> int: ...

    @property
    def transfers(self) -> int: ...

    @property
    def takes_numbers(self) -> bool: ...


B = TypeVar("B", bound=Block)


class Rounds(Generic[B]):
    """Blocks in their order, as many in a round as are computed at once."""

    def __init__(self, every: Iterable[B] = ()) -> None:
        self._left: deque[list[B]] = deque()
        room = 0
        for block in every:
            if block.instances > room:
                self._left.append([])
                room = AT_ONCE
            self._left[-1].append(block)
            room -= block.instances
        self.under_way: list[B] = []
        """The blocks of the round that has begun."""

    def __bool__(self) -> bool:
        """Whether a round has not begun."""
        return bool(self._left)

    def go_on(self) -> list[B]:
        """Begin the next round: its blocks."""
        self.under_way = self._left.popleft()
        return self.under_way

    @property
    def transfers(self) -> int:
        """Those of the round that has begun."""
        return sum(block.transfers for block in self.under_way)

    @property
    def take_numbers(self) -> bool:
        """Whether its blocks do."""
        return any(block.takes_numbers for block in self.under_way)
