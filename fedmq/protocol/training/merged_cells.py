"""Which candidates of a node are shown, so that no sum tells of few rows?

Between two cuts of a column lies a cell. Cells of fewer than ``smallest_cell`` rows are merged with
their neighbours: the cuts between them are not shown. One rule serves both children of a node,
and a cut that their parent did not show stays hidden: what a child does not show would else follow
as its parent's sum less its sibling's. Whatever sums of a tree are added and subtracted within a
column, a cell that comes out holds no row, or no fewer than ``smallest_cell``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.boosting.splits import CandidateTable
from fedmq.protocol.training.candidate_order import count_cells

__all__ = ["MergeCells", "Siblings", "kept_candidates"]


@dataclass(frozen=True, slots=True, eq=False)
class Siblings:
    """The root alone, or both children of a node: the ``rows`` (int32) that carry a gradient.

    ``above`` bool (candidates,): what their parent shows.
    """

    rows: Sequence[NDArray[np.int32]]
    above: NDArray[np.bool_]


@dataclass(frozen=True, slots=True, eq=False)
class MergeCells:
    """For each of ``families``, the candidates that its nodes show: bool (candidates,)."""

    label: ClassVar[str] = "MergeCells"
    bins: BinMatrix
    candidates: CandidateTable
    families: Sequence[Siblings]
    smallest_cell: int

    def run(self) -> list[NDArray[np.bool_]]:
        return [
            kept_candidates(
                self.bins.cuts,
                self.candidates,
                siblings.above,
                count_cells(self.bins, self.candidates, siblings.rows),
                self.smallest_cell,
            )
            for siblings in self.families
        ]


def kept_candidates(
    cuts: Cuts,
    candidates: CandidateTable,
    above: NDArray[np.bool_],
    counts: NDArray[np.int64],
    smallest_cell: int,
) -> NDArray[np.bool_]:
    """Which of the candidates that are shown ``above`` are shown in its children, or in the root.

    ``counts`` int64 (nodes, cells): rows by cell, of the root or of two siblings. With a
    ``smallest_cell`` of 1 only candidates are left out that part the rows as an earlier one does.
    The categories of a column that is split by sets are shown all or none: what the others leave of
    the node would else be the sums of one that is hidden.
    """
    shown = np.zeros(len(candidates), dtype=np.bool_)
    for held in candidates.categories:
        cells = counts[:, np.append(candidates.stop_cell[held], candidates.missing_cell[held[0]])]
        shown[held] = above[held].all() and all(_large(cell, smallest_cell) for cell in cells.T)
    cut = above & ~candidates.is_category
    for feature in np.unique(candidates.feature[cut]).tolist():
        own = np.flatnonzero((candidates.feature == feature) & above)
        cells = counts[:, cuts.first_cell[feature] : cuts.first_cell[feature + 1]]
        shown[own] = _shown_of_column(
            candidates.bin[own], candidates.default_left[own], cells, smallest_cell
        )
    return shown


def _shown_of_column(
    bins: NDArray[np.int32],
    default_left: NDArray[np.bool_],
    cells: NDArray[np.int64],
    smallest: int,
) -> NDArray[np.bool_]:
    """Which of one column's candidates are shown; ``cells`` (nodes, bins + 1), missing rows last.

    Missing rows are a cell of their own, which both default directions tell apart. Where they are
    too few they belong to the last cell, and go right: only that direction is shown.
    """
    present, missing = cells[:, :-1], cells[:, -1]
    last = present.shape[1] - 1
    apart = (
        bool(default_left.any() and missing.any())
        and _large(missing, smallest)
        and _large(present.sum(axis=1), smallest)
    )
    # Rows left of each cut, of none, and of all: the last cell has the missing rows, unless apart.
    places = np.unique(bins[(bins >= 0) & (bins < last)])
    ends = present.sum(axis=1) if apart else cells.sum(axis=1)
    ranks = np.zeros((len(cells), len(places) + 2), dtype=np.int64)
    ranks[:, 1:-1] = np.cumsum(present, axis=1)[:, places]
    ranks[:, -1] = ends
    # Cuts without rows between them are one: forward its lowest bin, backward its highest.
    begins = np.flatnonzero(np.append(True, (np.diff(ranks, axis=1) > 0).any(axis=0)))
    columns = np.concatenate(([-1], places, [last]))
    chain = np.array(_longest_chain(ranks[:, begins], smallest), dtype=np.intp)
    if not apart:
        return ~default_left & np.isin(bins, columns[begins[chain[1:-1]]])
    # With missing rows apart, all that is present on one side is a candidate as well.
    forward, backward = columns[begins[chain[1:]]], columns[begins[chain[:-1] + 1] - 1]
    return np.where(default_left, np.isin(bins, backward), np.isin(bins, forward))


def _large(rows: NDArray[np.int64], smallest: int) -> bool:
    """Whether each node has none of these rows, or enough."""
    return bool(((rows == 0) | (rows >= smallest)).all())


def _longest_chain(ranks: NDArray[np.int64], smallest: int) -> list[int]:
    """The most of the cuts 0..m-1, first and last among them, with cells that are large enough.

    ``ranks`` (nodes, m), nodes 1 or 2: ascending in each node, and no two cuts alike. Between
    neighbours of the chain each node has no rows, or ``smallest`` at least. Empty if there is no
    such chain.
    """
    first, second = ranks[0].tolist(), ranks[-1].tolist()
    count = len(first)
    length, before = [1] + [0] * (count - 1), [-1] * count
    # The best end of a chain: among all cuts up to one, and in the runs without rows of a node.
    best = [0] * count
    enough = [0, 0]  # so many cuts are far enough to the left in each node
    run_next, run_best = [0, 0], [-1, -1]
    for cut in range(1, count):
        here = (first[cut], second[cut])
        chosen = -1
        for node, held in enumerate((first, second)):
            while held[enough[node]] <= here[node] - smallest:
                enough[node] += 1
            if here[node] != held[cut - 1]:
                run_next[node] = cut
                run_best[node] = -1
        reach = min(enough)
        if reach:
            chosen = best[reach - 1]
        for node in (0, 1):
            # No rows of this node lie between, and enough of the other one.
            while run_next[node] < min(enough[1 - node], cut):
                end, kept = run_next[node], run_best[node]
                if kept < 0 or length[end] > length[kept]:
                    run_best[node] = end
                run_next[node] += 1
            kept = run_best[node]
            if kept >= 0 and (chosen < 0 or length[kept] > length[chosen]):
                chosen = kept
        if chosen >= 0 and length[chosen]:
            length[cut], before[cut] = length[chosen] + 1, chosen
        best[cut] = cut if length[cut] > length[best[cut - 1]] else best[cut - 1]
    if not length[-1]:
        return []
    chain = [count - 1]
    while before[chain[-1]] >= 0:
        chain.append(before[chain[-1]])
    return chain[::-1]
