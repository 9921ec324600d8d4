"""How many sums has a feature holder answered about the same rows, and how many may follow?

A sum that is answered is an equation about the rows that were added: the label holder knows their
gradients. Many trainings on the same rows add up, and so they are counted together.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import nlargest
from typing import Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["AnsweredSums", "AnsweredTraining", "RowSet", "most_nodes", "most_sums"]

_SKETCH = 4096
_REGROWN = 3
"""Trees of a session that may be grown again after a crash without being counted again."""


@dataclass(frozen=True, slots=True, eq=False)
class RowSet:
    """``rows`` rows by the lowest of their hashes: ``sketch`` uint64 (<= 4096,), ascending.

    Whether two sets have rows in common is seen by the lowest hashes of both (Beyer et al., SIGMOD
    2007): exactly for up to 4,096 rows, and beyond where 1 in 1,000 of all are common.
    """

    rows: int
    sketch: NDArray[np.uint64]

    @classmethod
    def of(cls, names: Iterable[str]) -> Self:
        """The rows of these ids."""
        digests = [hashlib.blake2b(name.encode(), digest_size=8).digest() for name in names]
        hashed = np.unique(np.frombuffer(b"".join(digests), "<u8").astype(np.uint64))
        return cls(len(digests), hashed[:_SKETCH].copy())

    def meets(self, other: RowSet) -> bool:
        """Whether some rows are in both."""
        return len(np.intersect1d(self.sketch, other.sketch)) > 0


@dataclass(frozen=True, slots=True)
class AnsweredTraining:
    """What was answered in one session; ``sums`` by tree and attempt.

    ``reserved``: what it was foretold to come to, in sums per row, while it is open.
    """

    session: str
    row_set: RowSet
    sums: Mapping[tuple[int, int], int]
    reserved: float = 0.0

    @property
    def per_row(self) -> float:
        """Sums divided by rows.

        A tree that broke off and was grown again has shown the same sums twice. That is believed of
        a few trees, as crashes are rare: who opens attempts only to break them off asks for more.
        """
        by_tree: dict[int, list[int]] = defaultdict(list)
        for (tree, _), sums in self.sums.items():
            by_tree[tree].append(sums)
        again = [sums for of_tree in by_tree.values() for sums in sorted(of_tree)[:-1]]
        counted = sum(self.sums.values()) - sum(nlargest(_REGROWN, again))
        return counted / max(1, self.row_set.rows)

    @property
    def claimed(self) -> float:
        """Sums per row that no other session may be granted: answered already, or yet to come."""
        return max(self.per_row, self.reserved)


@dataclass(frozen=True, slots=True)
class AnsweredSums:
    """What was answered in other sessions, and in this one before this attempt.

    ``most`` sums may be answered per row in all of them together. ``earlier``: sums of this session
    by tree and attempt. ``others``: what other sessions claim per row, by the rows they are about.
    """

    session: str
    attempt: int
    most: float
    earlier: Mapping[tuple[int, int], int] = field(default_factory=dict)
    others: Sequence[tuple[RowSet, float]] = ()

    @classmethod
    def of(
        cls, session: str, attempt: int, most: float, trainings: Iterable[AnsweredTraining]
    ) -> Self:
        """Of all ``trainings`` so far; a session keeps no more of the others than their totals."""
        earlier: dict[tuple[int, int], int] = {}
        others: dict[int, tuple[RowSet, float]] = {}  # of many sessions few sets of rows
        for training in trainings:
            if training.session == session:
                earlier |= training.sums
            else:
                row_set = training.row_set
                _, claimed = others.get(id(row_set), (row_set, 0.0))
                others[id(row_set)] = row_set, claimed + training.claimed
        return cls(session, attempt, most, earlier, tuple(others.values()))

    def by_others(self, row_set: RowSet) -> float:
        """Sums per row of ``row_set`` that other sessions answered, or have reserved.

        A session counts in full if it has rows in common with them: for some of them it does.
        """
        return sum(claimed for other, claimed in self.others if other.meets(row_set))

    def by_this(self, row_set: RowSet, sums: Mapping[int, int] | None = None) -> float:
        """Sums per row that this session answered, with ``sums`` by tree of this attempt."""
        now = {(tree, self.attempt): count for tree, count in (sums or {}).items()}
        return AnsweredTraining(self.session, row_set, {**self.earlier, **now}).per_row


def most_nodes(max_depth: int, rows: int, max_leaves: int = 0) -> int:
    """Nodes that a tree of ``max_depth`` over ``rows`` rows asks about, at most.

    With ``max_leaves`` the children of the last split are not asked about.
    """
    nodes = sum(min(1 << depth, rows) for depth in range(max_depth))
    return min(nodes, max(1, 2 * max_leaves - 3)) if max_leaves else nodes


def most_sums(max_depth: int, rows: int, candidates: int, max_leaves: int = 0) -> int:
    """Sums of a tree of ``max_depth`` over ``rows`` rows, where a node has ``candidates``."""
    return candidates * most_nodes(max_depth, rows, max_leaves)
