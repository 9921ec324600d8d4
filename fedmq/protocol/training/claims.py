"""What does a party say of its candidates, and can it be true?

With the sums of a node, an owner tells of each opaque candidate its sign, which constraints hold
its column, and which candidates are categories of one column: neither columns nor categories have
names. `ColumnMarks` is what an owner shows; `CandidateSigns`, `CandidateConstraints` and
`CandidateCategories`, together `CandidateMarks`, are what the active party keeps of it.

The active party knows the gradient of every row, so that it can tell sums which no rows of a node
have (`ConsistencyCheck`). Sums are integers in fixed point here, and whatever is compared is
compared exactly.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.splits import ALONE, CandidateTable, ColumnMark, ColumnsInPath
from fedmq.errors import Inconsistent, ProtocolError
from fedmq.messages.array import Array, Bitmap
from fedmq.messages.training import HistogramReply
from fedmq.privacy.engine import SizeLimit, SplitOffer
from fedmq.protocol.training.terms import KeptConstraints

__all__ = [
    "CandidateCategories",
    "CandidateConstraints",
    "CandidateMarks",
    "CandidateSigns",
    "ColumnMarks",
    "ConsistencyCheck",
    "RecordNumbers",
    "shown_categories",
    "shown_constraints",
    "shown_signs",
]


# What an owner shows, with the sums of a node.


class ColumnMarks:
    """The marks of columns under constraints, while a tree grows."""

    def __init__(self, constraints: KeptConstraints) -> None:
        self._constraints = constraints
        self._columns = ColumnsInPath(constraints.interactions)

    def split(self, node: int, column: int) -> None:
        """One of the columns splits ``node``."""
        self._columns.split(node, column)

    def shown(self, node: int, columns: NDArray[np.int32]) -> dict[str, Any]:
        """Fields of the first piece of a reply about ``node``, whose candidates are of ``columns``.

        ``columns`` (candidates,) in the order in which candidates are shown.
        """
        kept = self._constraints
        marks: dict[str, Any] = {}
        if kept.signs.any():
            marks |= shown_signs(kept.signs[columns])
        if kept.count:
            shown = self._columns.of(node, columns)
            marks["constraints"] = shown_constraints(shown, kept.count)
        return marks


# Signs, under monotone constraints: one for each candidate, not by which column.


def shown_signs(signs: NDArray[np.int8]) -> dict[str, Bitmap]:
    """The fields of the first piece of a reply that carry ``signs`` (candidates,), as shown."""
    return {"rising": Bitmap.of(signs > 0), "falling": Bitmap.of(signs < 0)}


class CandidateSigns:
    """The signs of candidates as the ``signed`` peers showed them, by peer and node of a tree."""

    def __init__(self, signed: Sequence[str]) -> None:
        self._signed = frozenset(signed)
        self._signs: dict[tuple[str, int], NDArray[np.int8]] = {}

    def take(self, peer: str, body: HistogramReply, candidates: int) -> None:
        """Note the signs in a reply of ``peer``, which announced so many candidates at most.

        Raises:
            ProtocolError: there are none though the peer announced them, or the other way round.
            Inconsistent: there are more than candidates.
        """
        told = body.rising is not None and body.falling is not None
        if told != (peer in self._signed and body.piece == 0):
            raise ProtocolError(f"signs of the candidates of node {body.node}, out of place")
        if body.rising is None or body.falling is None:
            return
        claim = ConsistencyCheck(peer, body.tree, body.node)
        claim.check_count(max(body.rising.count, body.falling.count), candidates)
        rising, falling = body.rising.numpy(), body.falling.numpy()
        if len(rising) != len(falling) or (rising & falling).any():
            raise ProtocolError(f"signs of the candidates of node {body.node} that contradict")
        self._signs[peer, body.node] = rising.astype(np.int8) - falling.astype(np.int8)

    def of(self, peer: str, node: int, candidates: int) -> NDArray[np.int8]:
        """The signs of all that ``peer`` showed in ``node``; zeros where it announced none.

        Raises:
            ProtocolError: there are not as many as candidates.
        """
        signs = self._signs.get((peer, node), np.zeros(candidates, np.int8))
        if peer in self._signed and len(signs) != candidates:
            raise ProtocolError(f"{len(signs)} signs for {candidates} candidates of node {node}")
        return signs


# Interaction constraints: those that hold the column of each candidate; below a split of the root
# by a column in none, which candidates are that column's.


def shown_constraints(constraints: NDArray[np.uint64], count: int) -> tuple[Bitmap, ...]:
    """The field of the first piece of a reply: a bitmap for each of ``count`` constraints, one more
    for a column that is alone. ``constraints`` uint64 (candidates,), as shown.
    """
    bits = [*(np.uint64(1 << number) for number in range(count)), ALONE]
    return tuple(Bitmap.of((constraints & bit) != 0) for bit in bits)


class CandidateConstraints:
    """The constraints of candidates as peers showed them, by peer and node of a tree.

    ``count``: how many the training has; 0 where nobody shows any.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._shown: dict[tuple[str, int], NDArray[np.uint64]] = {}

    def take(self, peer: str, body: HistogramReply, candidates: int) -> None:
        """Note those in a reply of ``peer``, which announced so many candidates at most.

        Raises:
            ProtocolError: there are none though they are due, or the other way round.
            Inconsistent: there are more than candidates.
        """
        due = self._count + 1 if self._count and body.piece == 0 else 0
        lengths = {bitmap.count for bitmap in body.constraints}
        if len(body.constraints) != due or len(lengths) > 1:
            raise ProtocolError(f"constraints of the candidates of node {body.node}, out of place")
        if not due:
            return
        claim = ConsistencyCheck(peer, body.tree, body.node)
        claim.check_count(max(lengths), candidates)
        shown = np.zeros(max(lengths), np.uint64)
        for number, bitmap in enumerate(body.constraints):
            bit = ALONE if number == self._count else np.uint64(1 << number)
            shown |= np.where(bitmap.numpy(), bit, np.uint64(0))
        self._shown[peer, body.node] = shown

    def of(self, peer: str, node: int, candidates: int) -> NDArray[np.uint64]:
        """Those of all that ``peer`` showed in ``node``; zeros where there are no constraints.

        Raises:
            ProtocolError: they are not as many as candidates.
        """
        if not self._count:
            return np.zeros(candidates, np.uint64)
        shown = self._shown[peer, node]
        if len(shown) != candidates:
            raise ProtocolError(
                f"constraints of {len(shown)} candidates, node {node} has {candidates}"
            )
        return shown


# Sets of categories: which candidates are of one column, and in which order its owner has them.


def shown_categories(table: CandidateTable, order: NDArray[np.int64]) -> tuple[Array, ...]:
    """The field of the first piece of a reply; ``order``: which of ``table`` are shown, and how."""
    positions = np.full(len(table), -1, np.int64)
    positions[order] = np.arange(len(order))
    shown = [positions[held] for held in table.categories]
    return tuple(Array.of(held.astype(np.uint32)) for held in shown if (held >= 0).all())


class CandidateCategories:
    """The columns of categories as peers showed them, by peer and node of a tree.

    ``by_sets``: the peers that announced such columns.
    """

    def __init__(self, by_sets: Collection[str]) -> None:
        self._by_sets = frozenset(by_sets)
        self._shown: dict[tuple[str, int], Sequence[NDArray[np.int64]]] = {}

    def take(self, peer: str, body: HistogramReply, candidates: int) -> None:
        """Note those in a reply of ``peer``, which announced so many candidates at most.

        Raises:
            ProtocolError: they are out of place, or one candidate stands twice.
            Inconsistent: there are more of them than candidates.
        """
        if not body.categories:
            return
        if peer not in self._by_sets or body.piece:
            raise ProtocolError(f"categories of the candidates of node {body.node}, out of place")
        columns = [array.numpy().astype(np.int64) for array in body.categories]
        together = np.concatenate(columns)
        claim = ConsistencyCheck(peer, body.tree, body.node)
        claim.check_count(int(together.max(initial=-1)) + 1, candidates)
        if min(map(len, columns)) < 2 or len(np.unique(together)) < len(together):
            raise ProtocolError(f"categories of the candidates of node {body.node} that overlap")
        self._shown[peer, body.node] = columns

    def of(self, peer: str, node: int, candidates: int) -> Sequence[NDArray[np.int64]]:
        """Those of all candidates that ``peer`` showed in ``node``.

        Raises:
            ProtocolError: they name candidates that were not shown.
        """
        columns = self._shown.get((peer, node), ())
        if any(int(column.max()) >= candidates for column in columns):
            raise ProtocolError(f"categories of node {node} beyond its {candidates} candidates")
        return columns


@dataclass(frozen=True, slots=True)
class CandidateMarks:
    """All that peers have said of the columns of their candidates, while a tree grows."""

    signs: CandidateSigns
    constraints: CandidateConstraints
    categories: CandidateCategories

    def take(self, peer: str, body: HistogramReply, most_candidates: int) -> None:
        """Note what a reply of ``peer`` says of the columns of its candidates.

        Raises:
            ProtocolError: it says what was not to be said, or does not say what was.
            Inconsistent: it says more than there are candidates.
        """
        self.signs.take(peer, body, most_candidates)
        self.constraints.take(peer, body, most_candidates)
        self.categories.take(peer, body, most_candidates)


_IMPOSSIBLE = "sums that no rows of the node have"


@dataclass(frozen=True, slots=True)
class ConsistencyCheck:
    """What ``peer`` said about ``node`` of ``tree``; it has ``candidates`` at most.

    Every reason reads the same to a party that lies: what exactly did not hold would tell it more
    than one bit of what it cannot decrypt. That stands in the evidence alone.
    """

    peer: str
    tree: int
    node: int

    def check_count(self, shown: int, candidates: int) -> None:
        """Raise `Inconsistent` where more candidates are shown than were announced."""
        if shown > candidates:
            raise self._error(
                f"{shown} candidates in a node, it announced {candidates} at most",
                {"announced": candidates, "candidates": shown},
            )

    def check_declined(self, carrying: int, smallest_node: int) -> None:
        """Raise `Inconsistent` where a node of so many rows is declined without need."""
        if carrying >= smallest_node:
            raise self._error(
                f"a node of {smallest_node} rows or more is declined, its smallest_node",
                {"smallest_node": smallest_node},
            )

    def check_extent(self, sent: SizeLimit, largest: SizeLimit) -> None:
        """Raise `Inconsistent` where a reply is longer than its candidates take."""
        if sent.pieces > largest.pieces:
            raise self._error(
                f"a reply of {sent.pieces} pieces, {largest.pieces} hold all its candidates",
                {"pieces": sent.pieces, "most": largest.pieces},
            )
        if sent.bytes > largest.bytes:
            raise self._error(
                f"a reply of {sent.bytes:,} bytes or more, all its candidates take "
                f"{largest.bytes:,}",
                {"bytes": sent.bytes, "most": largest.bytes},
            )

    def out_of_bounds(self, outside: Mapping[str, int], shown: int) -> Inconsistent:
        """So many of ``shown`` candidates lie outside of which bound."""
        return self._error(_IMPOSSIBLE, {"candidates": shown, **outside})

    def check_record(self, record: int, expected: int) -> None:
        """Raise `Inconsistent` unless a split's record is the party's next."""
        if record != expected:
            raise self._error(
                f"record {record}, its next one is {expected}",
                {"record": record, "expected": expected},
            )

    def mark(self, left: NDArray[np.int64], best: SplitOffer) -> ColumnMark:
        """What is known of the column of a named candidate, that with the left sums ``left`` (2,).

        Raises `Inconsistent` unless there is one.
        """
        assert best.left is not None
        named = np.flatnonzero((best.left == left).all(axis=1))
        if not len(named):
            raise self._error(
                "other rows go left than its sums said", {"candidates named": len(best.left)}
            )
        return best.mark(int(named[0]))

    def check_gain(self, gain: float, best: float, least: float) -> None:
        """Raise `Inconsistent` unless a split that won gains more than ``best``, and ``least``."""
        if not (gain > best and gain >= least):
            raise self._error(
                "a split that gains less than another would have",
                {"gain": str(gain), "best": str(max(best, least))},
            )

    def unreadable(self, reason: str) -> Inconsistent:
        """Sums that do not even decrypt to as many numbers as they should."""
        return self._error(_IMPOSSIBLE, {"unreadable": reason})

    def _error(self, what: str, evidence: Mapping[str, int | str]) -> Inconsistent:
        place = {"tree": self.tree, "node": self.node}
        return Inconsistent(
            self.peer, f"tree {self.tree}, node {self.node}: {what}", {**place, **evidence}
        )


class RecordNumbers:
    """Which record each owner's next split is: ``following`` those that it has, by party."""

    def __init__(self, following: Mapping[str, int]) -> None:
        self._next = dict(following)
        self._expected: dict[int, int] = {}

    def expect(self, peer: str, node: int) -> None:
        """An owner numbers its records as decisions come: here one about ``node``."""
        self._expected[node] = self._next[peer]
        self._next[peer] += 1

    def check(self, claim: ConsistencyCheck, record: int) -> None:
        """Raise `Inconsistent` unless the split of the node is the record that was expected."""
        claim.check_record(record, self._expected.pop(claim.node))
