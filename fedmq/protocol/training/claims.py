"""What does a party say of its candidates, and can it be true?

With the sums of a node, an owner tells of each opaque candidate its sign, the constraints of its
column, and the candidates that are categories of the same column. Columns and categories have no
names. An owner shows `ColumnMarks`; the active party keeps them as `CandidateSigns`,
`CandidateConstraints` and `CandidateCategories`, together `CandidateMarks`.

The active party knows the gradient of every row, so it detects sums that no rows of a node have
(`ConsistencyCheck`). Sums are integers in fixed point here, and comparisons are exact.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.splits import (
    ALONE,
    UNMARKED,
    CandidateTable,
    ColumnMark,
    ColumnsInPath,
)
from fedmq.errors import Inconsistent, ProtocolError
from fedmq.messages.array import Array, Bitmap
from fedmq.messages.training import HistogramReply
from fedmq.privacy.engine import MOST_SORTED, ComparedColumns, SizeLimit, SplitOffer
from fedmq.protocol.training.terms import KeptConstraints

__all__ = [
    "CandidateCategories",
    "CandidateConstraints",
    "CandidateMarks",
    "CandidateSigns",
    "ColumnMarks",
    "ConsistencyCheck",
    "HiddenCandidates",
    "RecordNumbers",
    "disclosed_categories",
    "shown_constraints",
    "shown_signs",
]


# The marks that an owner shows with the sums of a node.


class ColumnMarks:
    """The marks of columns under constraints, while a tree grows."""

    def __init__(self, constraints: KeptConstraints) -> None:
        self._constraints = constraints
        self._columns = ColumnsInPath(constraints.interactions)

    @property
    def differ(self) -> bool:
        """Whether columns are marked at all."""
        return bool(self._constraints.signs.any() or self._constraints.count)

    def split(self, node: int, column: int) -> None:
        """Note that ``column`` splits ``node``."""
        self._columns.split(node, column)

    def shown(self, node: int, columns: NDArray[np.int32]) -> dict[str, Any]:
        """Fields of the first piece of a reply about ``node``.

        ``columns`` (candidates,): the columns of the candidates, in their shown order.
        """
        kept = self._constraints
        marks: dict[str, Any] = {}
        if kept.signs.any():
            marks |= shown_signs(kept.signs[columns])
        if kept.count:
            shown = self._columns.of(node, columns)
            marks["constraints"] = shown_constraints(shown, kept.count)
        return marks

    def compared(
        self, nodes: Sequence[int], table: CandidateTable, order: NDArray[np.int64]
    ) -> ComparedColumns:
        """What is known of the columns of candidates of ``table`` in ``nodes``, as ordered."""
        columns = table.columns[order]
        held = np.stack([self._columns.of(node, columns) for node in nodes])
        of_sets = shown_categories(table, order)
        categories = tuple(tuple(column.tolist()) for column in of_sets)
        return ComparedColumns(self._constraints.signs[columns], held, categories)

    def of(self, node: int, column: int) -> ColumnMark:
        """The mark of ``column`` if it splits ``node``."""
        held = np.uint64(0)
        if self._constraints.count:
            held = self._columns.of(node, np.array([column], np.int32))[0]
        return ColumnMark(int(self._constraints.signs[column]), held)


# Signs under monotone constraints: one per candidate, without naming its column.


def shown_signs(signs: NDArray[np.int8]) -> dict[str, Bitmap]:
    """The fields of the first piece of a reply that carry ``signs`` (candidates,), as shown."""
    return {"rising": Bitmap.of(signs > 0), "falling": Bitmap.of(signs < 0)}


class CandidateSigns:
    """The signs of candidates as the ``signed`` peers showed them, by peer and node of a tree."""

    def __init__(self, signed: Sequence[str]) -> None:
        self._signed = frozenset(signed)
        self._signs: dict[tuple[str, int], NDArray[np.int8]] = {}

    def take(self, peer: str, body: HistogramReply, candidates: int) -> None:
        """Note the signs in a reply of ``peer``, which announced ``candidates`` at most.

        Raises:
            ProtocolError: announced signs are absent, or unannounced ones are present.
            Inconsistent: there are more signs than candidates.
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
            raise ProtocolError(f"contradictory signs of the candidates of node {body.node}")
        self._signs[peer, body.node] = rising.astype(np.int8) - falling.astype(np.int8)

    def of(self, peer: str, node: int, candidates: int) -> NDArray[np.int8]:
        """The signs of the candidates that ``peer`` showed in ``node``; zeros if not announced.

        Raises:
            ProtocolError: the number of signs is not that of the candidates.
        """
        signs = self._signs.get((peer, node), np.zeros(candidates, np.int8))
        if peer in self._signed and len(signs) != candidates:
            raise ProtocolError(f"{len(signs)} signs for {candidates} candidates of node {node}")
        return signs


# Interaction constraints of each candidate's column. Below a split of the root by a column without
# constraints, they also mark the candidates of that column.


def shown_constraints(constraints: NDArray[np.uint64], count: int) -> tuple[Bitmap, ...]:
    """The field of the first piece of a reply: a bitmap for each of ``count`` constraints, one more
    for a column that is alone. ``constraints`` uint64 (candidates,), as shown.
    """
    bits = [*(np.uint64(1 << number) for number in range(count)), ALONE]
    return tuple(Bitmap.of((constraints & bit) != 0) for bit in bits)


class CandidateConstraints:
    """The constraints of candidates as peers showed them, by peer and node of a tree.

    ``count``: the number of the training's constraints; 0 if no peer shows any.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._shown: dict[tuple[str, int], NDArray[np.uint64]] = {}

    def take(self, peer: str, body: HistogramReply, candidates: int) -> None:
        """Note the constraints in a reply of ``peer``, which announced ``candidates`` at most.

        Raises:
            ProtocolError: due constraints are absent, or constraints that are not due are present.
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
        """The constraints of the candidates that ``peer`` showed in ``node``; zeros without any.

        Raises:
            ProtocolError: their number is not that of the candidates.
        """
        if not self._count:
            return np.zeros(candidates, np.uint64)
        shown = self._shown[peer, node]
        if len(shown) != candidates:
            raise ProtocolError(
                f"constraints of {len(shown)} candidates of node {node}, which has {candidates}"
            )
        return shown


# Sets of categories: the candidates of each column, in their owner's order.


def disclosed_categories(table: CandidateTable, order: NDArray[np.int64]) -> tuple[Array, ...]:
    """The field of the first piece of a reply; ``order``: the shown candidates of ``table``."""
    return tuple(Array.of(held.astype(np.uint32)) for held in shown_categories(table, order))


def shown_categories(table: CandidateTable, order: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """The places of each column's categories among the shown candidates of ``table``."""
    positions = np.full(len(table), -1, np.int64)
    positions[order] = np.arange(len(order))
    shown = [positions[held] for held in table.categories]
    return [held for held in shown if (held >= 0).all()]


class CandidateCategories:
    """The columns of categories as peers showed them, by peer and node of a tree.

    ``by_sets``: the peers that announced such columns.
    """

    def __init__(self, by_sets: Collection[str]) -> None:
        self._by_sets = frozenset(by_sets)
        self._shown: dict[tuple[str, int], Sequence[NDArray[np.int64]]] = {}

    def take(self, peer: str, body: HistogramReply, candidates: int) -> None:
        """Note the columns in a reply of ``peer``, which announced ``candidates`` at most.

        Raises:
            ProtocolError: columns are out of place, or a candidate occurs twice.
            Inconsistent: there are more categories than candidates.
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
            raise ProtocolError(f"overlapping categories of the candidates of node {body.node}")
        self._shown[peer, body.node] = columns

    def of(self, peer: str, node: int, candidates: int) -> Sequence[NDArray[np.int64]]:
        """The columns of categories that ``peer`` showed in ``node``.

        Raises:
            ProtocolError: they name candidates that were not shown.
        """
        columns = self._shown.get((peer, node), ())
        if any(int(column.max()) >= candidates for column in columns):
            raise ProtocolError(f"categories of node {node} beyond its {candidates} candidates")
        return columns

    def in_order(self, peer: str, node: int, candidates: int) -> tuple[tuple[int, ...], ...]:
        """The same where sums are hidden, and candidates stand in their owner's order.

        Raises:
            ProtocolError: they do not, or a column has more categories than circuits sort.
        """
        columns = tuple(tuple(column.tolist()) for column in self.of(peer, node, candidates))
        together = [place for column in columns for place in column]
        if together != sorted(together):
            raise ProtocolError(f"categories of node {node} in another order than its candidates")
        if max(map(len, columns), default=0) > MOST_SORTED:
            raise ProtocolError(f"more than {MOST_SORTED} categories of a column in node {node}")
        return columns


@dataclass(frozen=True, slots=True)
class HiddenCandidates:
    """The candidates of a node whose sums are hidden: their number, and ``categories`` of columns
    that are split by sets, each column's places among them, ascending.
    """

    count: int
    categories: tuple[tuple[int, ...], ...] = ()

    def scanned(self, most: int) -> int:
        """How many candidates and sets compete, if no set has as many categories as ``most``."""
        sets = sum(2 * (min(most, len(column)) - 1) for column in self.categories)
        return self.count - sum(map(len, self.categories)) + sets


@dataclass(frozen=True, slots=True)
class CandidateMarks:
    """All marks that peers have shown of their candidates' columns, while a tree grows."""

    signs: CandidateSigns
    constraints: CandidateConstraints
    categories: CandidateCategories

    def take(self, peer: str, body: HistogramReply, most_candidates: int) -> None:
        """Note the marks in a reply of ``peer``.

        Raises:
            ProtocolError: due marks are absent, or marks that are not due are present.
            Inconsistent: there are more marks than candidates.
        """
        self.signs.take(peer, body, most_candidates)
        self.constraints.take(peer, body, most_candidates)
        self.categories.take(peer, body, most_candidates)


_IMPOSSIBLE = "no rows of the node have these sums"


@dataclass(frozen=True, slots=True)
class ConsistencyCheck:
    """Checks the claims of ``peer`` about ``node`` of ``tree``; it has ``candidates`` at most.

    Every reason reads the same to a party that lies: the exact fault would disclose more than one
    bit of data that it cannot decrypt. Only the evidence names the fault.
    """

    peer: str
    tree: int
    node: int

    def check_count(self, shown: int, candidates: int) -> None:
        """Raise `Inconsistent` if the peer shows more candidates than it announced."""
        if shown > candidates:
            raise self._error(
                f"{shown} candidates in a node; the party announced at most {candidates}",
                {"announced": candidates, "candidates": shown},
            )

    def check_declined(self, carrying: int, smallest_node: int) -> None:
        """Raise `Inconsistent` if a node of ``carrying`` rows is declined without need."""
        if carrying >= smallest_node:
            raise self._error(
                f"the party declines a node of {smallest_node} rows or more, its smallest_node",
                {"smallest_node": smallest_node},
            )

    def check_size(self, sent: SizeLimit, limit: SizeLimit) -> None:
        """Raise `Inconsistent` if a reply is longer than its candidates take."""
        if sent.pieces > limit.pieces:
            raise self._error(
                f"a reply of {sent.pieces} pieces; {limit.pieces} hold all its candidates",
                {"pieces": sent.pieces, "most": limit.pieces},
            )
        if sent.bytes > limit.bytes:
            raise self._error(
                f"a reply of {sent.bytes:,} bytes or more; all its candidates take {limit.bytes:,}",
                {"bytes": sent.bytes, "most": limit.bytes},
            )

    def out_of_bounds(self, outside: Mapping[str, int], shown: int) -> Inconsistent:
        """The error of ``shown`` candidates; ``outside``: the number beyond each bound."""
        return self._error(_IMPOSSIBLE, {"candidates": shown, **outside})

    def check_record(self, record: int, expected: int) -> None:
        """Raise `Inconsistent` unless a split's record is the party's next."""
        if record != expected:
            raise self._error(
                f"record {record}; the next record is {expected}",
                {"record": record, "expected": expected},
            )

    def mark(
        self, left: NDArray[np.int64], best: SplitOffer, told: ColumnMark = UNMARKED
    ) -> ColumnMark:
        """The column mark of the named candidate with the left sums ``left`` (2,).

        ``told``: by the owner, which decides where a set of categories parts the rows alike.

        Raises `Inconsistent` unless one exists.
        """
        assert best.left is not None
        named = np.flatnonzero((best.left == left).all(axis=1))
        if not len(named):
            raise self._error(
                "the rows that go left contradict the sums", {"candidates named": len(best.left)}
            )
        marks = [best.mark(place) for place in named.tolist()]
        return told if told in marks else marks[0]

    def check_column(self, allowed: bool) -> None:
        """Raise `Inconsistent` unless the column of a winning split may follow those above."""
        if not allowed:
            raise self._error("a split by a column that interaction constraints forbid", {})

    def check_gain(self, gain: float, best: float, least: float) -> None:
        """Raise `Inconsistent` unless a winning split gains more than ``best`` and ``least``."""
        if not (gain > best and gain >= least):
            raise self._error(
                "the split gains less than another candidate",
                {"gain": str(gain), "best": str(max(best, least))},
            )

    def unreadable(self, reason: str) -> Inconsistent:
        """The error of sums that do not decrypt to the expected number of values."""
        return self._error(_IMPOSSIBLE, {"unreadable": reason})

    def _error(self, what: str, evidence: Mapping[str, int | str]) -> Inconsistent:
        place = {"tree": self.tree, "node": self.node}
        return Inconsistent(
            self.peer, f"tree {self.tree}, node {self.node}: {what}", {**place, **evidence}
        )


class RecordNumbers:
    """The number of each owner's next record; ``following``: the first of them, by party."""

    def __init__(self, following: Mapping[str, int]) -> None:
        self._next = dict(following)
        self._expected: dict[int, int] = {}

    def expect(self, peer: str, node: int) -> None:
        """Number the record of a decision about ``node``: an owner numbers as decisions come."""
        self._expected[node] = self._next[peer]
        self._next[peer] += 1

    def check(self, claim: ConsistencyCheck, record: int) -> None:
        """Raise `Inconsistent` unless the node's split has the expected record."""
        claim.check_record(record, self._expected.pop(claim.node))
