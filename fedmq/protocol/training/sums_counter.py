"""How many sums does one attempt at a training answer, and may it answer them?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from fedmq.errors import Refused
from fedmq.messages.training import TrainingOpen
from fedmq.privacy.engine import PassiveHalf
from fedmq.protocol.records import (
    AnsweredSums,
    RowSet,
    SumBudget,
    SumsAnswered,
    most_nodes,
    most_sums,
)

__all__ = ["SumsCounter", "check_sums_bytes"]


class SumsCounter:
    """Counts what ``party`` answers about ``row_set``, after all that it has ``answered`` before.

    Its methods return the records that must be on disk before anything that is sent later leaves.
    Without ``answered`` nothing is counted, and all may be answered. So many of the rows are
    ``learning``, all where that is left out: sums are about these alone, and count as many times
    more.
    """

    def __init__(
        self,
        party: str,
        answered: AnsweredSums | None,
        row_set: RowSet | None,
        learning: int | None = None,
    ) -> None:
        self._party = party
        self._answered = answered
        self._row_set = row_set or RowSet.of(())
        rows = self._row_set.rows
        self._dilution = Fraction(max(1, rows), max(1, rows if learning is None else learning))
        self._sums: dict[int, int] = {}
        """By tree."""
        self._nodes: dict[int, int] = {}
        """Sums by node of the tree that grows."""
        self._by_others = 0.0 if answered is None else answered.by_others(self._row_set)

    def agree(
        self, terms: TrainingOpen, trees: int, candidates: int, nodes_per_query: int = 1
    ) -> Sequence[SumBudget]:
        """``trees`` of ``terms`` are on disk; Refused where the others may tell too much.

        A candidate has as many sums as the terms have outputs.
        A query that is about fewer than ``nodes_per_query`` nodes counts as if about so many.
        """
        if self._answered is None:
            return ()
        left = max(0, terms.trees - max(trees, terms.active_only_trees))
        columns = terms.colsample_bytree * terms.colsample_bylevel * terms.colsample_bynode
        shown = math.ceil(candidates * columns) * terms.outputs
        per_tree = most_sums(terms.max_depth, terms.rows, shown, terms.max_leaves)
        # A tree of few leaves may grow by one split at a time.
        questions = max(terms.max_depth, terms.max_leaves)
        per_tree += (nodes_per_query - 1) * questions * shown
        before, per_tree = self._per_row(), self._concentrated(per_tree)
        expected = before + left * per_tree / max(1, self._row_set.rows)
        self._check(expected, f"{left} trees of up to {per_tree:,} sums would make")
        reserved = expected - self._by_others
        return (SumBudget(before, expected, self._answered.most, reserved, self._row_set),)

    def answer(self, tree: int, nodes: Iterable[int], candidates: int) -> Sequence[SumsAnswered]:
        """As many sums of each node are asked for; Refused where they are too many.

        A node that is asked about in several rounds is counted once.
        """
        new = [node for node in nodes if node not in self._nodes]
        if self._answered is None or not new:
            return ()
        self._nodes |= dict.fromkeys(new, candidates)
        self._sums[tree] = self._concentrated(sum(self._nodes.values()))
        self._check(self._per_row(self._sums), f"tree {tree} would make")
        return (SumsAnswered(tree, self._sums[tree], self._row_set),)

    def end_tree(self, tree: int, shown: Iterable[int]) -> Sequence[SumsAnswered]:
        """The tree is complete, and so many sums of each of its nodes were ``shown``."""
        asked, self._nodes = self._sums.get(tree, 0), {}
        self._sums[tree] = self._concentrated(sum(shown))
        if self._answered is None or self._sums[tree] == asked:
            return ()
        return (SumsAnswered(tree, self._sums[tree], self._row_set),)

    def _concentrated(self, sums: int) -> int:
        """As many sums about all rows as tell of each what these tell of one that learns."""
        return math.ceil(sums * self._dilution)

    def _per_row(self, sums: Mapping[int, int] | None = None) -> float:
        """What was answered about each row, with ``sums`` by tree of this attempt."""
        assert self._answered is not None
        return self._by_others + self._answered.by_this(self._row_set, sums)

    def _check(self, per_row: float, what: str) -> None:
        assert self._answered is not None
        most = self._answered.most
        if per_row > most:
            before = self._per_row()
            raise Refused(
                f"{self._party} answers {most:,g} sums per row at most (most_equations_per_row): "
                f"{before:,.1f} were answered before about these {self._row_set.rows:,} rows, and "
                f"{what} {per_row:,.1f}"
            )


def check_sums_bytes(
    party: str, engine: PassiveHalf, terms: TrainingOpen, most: int | None
) -> None:
    """Raise Refused where the sums of a tree may take more than ``most`` bytes of memory."""
    needed = engine.sums_bytes(most_nodes(terms.max_depth, terms.rows, terms.max_leaves))
    if most is not None and needed > most:
        raise Refused(
            f"{party} takes {most / 1e9:,g} GB for the sums of a tree at most (most_sums_bytes), "
            f"and depth {terms.max_depth} with max_bin = {terms.max_bin} may take "
            f"{needed / 1e9:,.1f} GB"
        )
