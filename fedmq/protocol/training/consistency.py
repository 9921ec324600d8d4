"""Can it be true what a party said of its candidates?

The active party knows the gradient of every row, so that it can tell sums which no rows of a node
have. Sums are integers in fixed point here, and whatever is compared is compared exactly.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.splits import ColumnMark
from fedmq.errors import Inconsistent
from fedmq.privacy.engine import SizeLimit, SplitOffer
from fedmq.protocol.training.computations import ScoreCandidates

__all__ = ["ConsistencyCheck", "RecordNumbers", "ScoreAnswer", "ScoreAnswers", "first_of_ties"]

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


@dataclass(frozen=True, slots=True, eq=False)
class ScoreAnswer:
    """The best of a party's candidates, or how many of them lie outside of which bound.

    ``bounds`` int64 (2, columns) as `Gradients.bounds` has them; None where sums are not exact. A
    tie is then named once: see :func:`first_of_ties`.
    """

    score: ScoreCandidates
    bounds: NDArray[np.int64] | None

    def best(self) -> SplitOffer | dict[str, int]:
        left = self.score.left
        if self.bounds is None:
            return self.score.run()
        least, most = self.bounds
        sums = np.concatenate((left, *(scan.left for scan in self.score.scans())))
        if (sums < least).any() or (sums > most).any():
            counts = np.stack((sums < least, sums > most)).sum(axis=1)
            names = (("g below", "h below"), ("g above", "h above"))
            return {
                names[side][column]: int(counts[side, column::2].sum())
                for side, column in np.argwhere(counts.reshape(2, -1, 2).sum(axis=1)).tolist()
            }
        best = self.score.run()
        named = first_of_ties(best.candidates, left, self.score.total)
        of_sets = [self.score.left_of(split)[np.newaxis] for split in best.sets]
        known = np.concatenate((left[named], *of_sets))
        return self.score.offer(best.gain, named, best.sets, known)


@dataclass(frozen=True, slots=True, eq=False)
class ScoreAnswers:
    """What each of ``answers`` comes to: all take less time than to hand them over one by one."""

    label: ClassVar[str] = "ScoreAnswer"
    answers: Sequence[ScoreAnswer]

    def run(self) -> list[SplitOffer | dict[str, int]]:
        return [answer.best() for answer in self.answers]


def first_of_ties(
    tied: NDArray[np.uint32], left: NDArray[np.int64], total: NDArray[np.int64]
) -> NDArray[np.uint32]:
    """The lowest number of each group of ``tied`` candidates that part the rows alike.

    Alike: they have the same sums, or those of one's left are those of the other's right. ``left``
    int64 (candidates, columns), ``total`` (columns,); the result is ascending.
    """
    if len(tied) < 2:
        return tied
    sides = np.stack((left[tied], total - left[tied]), axis=1)
    # The side that is less in the first column in which they differ comes first.
    differ = np.argmax(sides[:, 0] != sides[:, 1], axis=1)[:, None, None]
    deciding = np.take_along_axis(sides, differ, axis=2)[..., 0]
    swapped = deciding[:, 0] > deciding[:, 1]
    sides[swapped] = sides[swapped, ::-1]
    _, first = np.unique(sides.reshape(len(tied), -1), axis=0, return_index=True)
    return np.sort(tied[first])
