"""Which candidates does a party offer in a node, and in which order does it show them?

A party draws columns by its own secret (`NodeCandidates`). It merges cells of too few rows
(`merge_cells`), so that no sum is about few rows. It shows the remaining candidates in a hidden
order (`CandidateOrders`), so that a candidate's number does not disclose its column or bin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.boosting.machine_sums import FEWEST_ROWS, can_count, count_by_cell
from fedmq.boosting.model.tree import LookupTable
from fedmq.boosting.row_parts import row_parts, summed
from fedmq.boosting.sampling import ColumnSampler, salt_of
from fedmq.boosting.splits import ROOT, CandidateTable, CategorySet, depth, parent, plan_level
from fedmq.computation import Parts, computation
from fedmq.privacy.plan import Plan, single

__all__ = [
    "CandidateOrders",
    "ColumnTerms",
    "DisclosureRules",
    "NodeCandidates",
    "OwnColumns",
    "RootCells",
    "Siblings",
    "count_cells",
    "kept_candidates",
    "merge_cells",
    "recorded",
    "shown_order",
    "went_left",
]


_FEW_CODES = 1 << 17  # a third of a millisecond, less than to read a piece of a broadcast
_ROWS_OF_SALT = 256  # too many to guess, and fast to hash


class ColumnTerms(Protocol):
    """The column-sampling terms that a training's parameters and its opening share."""

    @property
    def colsample_bytree(self) -> float: ...
    @property
    def colsample_bylevel(self) -> float: ...
    @property
    def colsample_bynode(self) -> float: ...
    @property
    def seed(self) -> int: ...


class OwnColumns:
    """A party's own columns, from which each tree draws its candidates by a secret of that party.

    A draw by the shared seed would disclose the column of a split to all.
    """

    def __init__(self, bins: BinMatrix, terms: ColumnTerms) -> None:
        self.bins = bins
        self.candidates = CandidateTable.of(bins.cuts)
        """Those of all columns."""
        self._terms = terms
        self._columns = [np.array(column, np.int32) for column in bins.cuts.columns]
        self._salt = salt_of(*bins.cuts.thresholds, bins.codes[:_ROWS_OF_SALT])

    def of_tree(self, tree: int) -> NodeCandidates:
        """The candidates of the nodes of ``tree``."""
        terms = self._terms
        sampler = ColumnSampler(
            len(self._columns),
            terms.colsample_bytree,
            terms.colsample_bylevel,
            terms.colsample_bynode,
            terms.seed,
            tree,
            self._salt,
        )
        return NodeCandidates(self, sampler)

    def features(self, columns: NDArray[np.int32]) -> NDArray[np.int32]:
        """The features of the drawn ``columns``."""
        held = [self._columns[column] for column in columns.tolist()]
        return np.concatenate([np.empty(0, np.int32), *held])


class NodeCandidates:
    """The candidates of a party in each node of a tree, which ``sampler`` draws."""

    def __init__(self, columns: OwnColumns, sampler: ColumnSampler) -> None:
        self._columns = columns
        self._sampler = sampler
        self.narrows = sampler.narrows
        """Whether a node may have fewer candidates than its tree."""
        self.of_tree = columns.candidates
        if sampler.bytree < 1:
            drawn = columns.features(sampler.of_tree())
            self.of_tree = CandidateTable.of(columns.bins.cuts, drawn)
        self._places = np.arange(len(self.of_tree))

    def of_node(self, node: int) -> CandidateTable:
        """The candidates of the node with this heap number."""
        if not self.narrows:
            return self.of_tree
        return CandidateTable.of(self._columns.bins.cuts, self._drawn(node))

    def places(self, node: int) -> NDArray[np.intp]:
        """The places of the node's candidates among the tree's."""
        if not self.narrows:
            return self._places
        return np.flatnonzero(np.isin(self.of_tree.feature, self._drawn(node)))

    def _drawn(self, node: int) -> NDArray[np.int32]:
        """The features of the node."""
        return self._columns.features(self._sampler.of_node(node, depth(node)))


# Merged cells. Between two cuts of a column lies a cell. Cells of fewer than ``smallest_cell`` rows
# are merged with their neighbours: the cuts between them are not shown. One rule serves both
# children of a node, and a cut that their parent did not show stays hidden: otherwise the sum that
# a child does not show follows from its parent's and its sibling's. Whatever sums of a tree are
# added and subtracted within a column, each cell holds no row, or at least ``smallest_cell``.


@dataclass(frozen=True, slots=True, eq=False)
class Siblings:
    """The root alone, or both children of a node: the ``rows`` (int32) that carry a gradient.

    ``above`` bool (candidates,): the candidates that their parent shows.
    """

    rows: Sequence[NDArray[np.int32]]
    above: NDArray[np.bool_]


def _merged_in_parts(
    parts: int,
    bins: BinMatrix,
    candidates: CandidateTable,
    families: Sequence[Siblings],
    smallest_cell: int,
) -> Parts | None:
    """`merge_cells` in parts of the rows."""
    ends = np.cumsum([len(siblings.rows) for siblings in families])[:-1]
    nodes = [rows for siblings in families for rows in siblings.rows]
    made = _counted_in_parts(parts, bins, candidates, nodes)

    def joined(counts: Sequence[Any]) -> list[NDArray[np.bool_]]:
        assert made is not None
        return [
            kept_candidates(bins.cuts, candidates, siblings.above, held, smallest_cell)
            for siblings, held in zip(families, np.split(made.join(counts), ends), strict=True)
        ]

    return made and Parts(made.computations, joined)


@computation("MergeCells", parted=_merged_in_parts)
def merge_cells(
    bins: BinMatrix, candidates: CandidateTable, families: Sequence[Siblings], smallest_cell: int
) -> list[NDArray[np.bool_]]:
    """For each of ``families``, the candidates that its nodes show: bool (candidates,)."""
    return [
        kept_candidates(
            bins.cuts,
            candidates,
            siblings.above,
            count_cells(bins, candidates, siblings.rows),
            smallest_cell,
        )
        for siblings in families
    ]


def kept_candidates(
    cuts: Cuts,
    candidates: CandidateTable,
    above: NDArray[np.bool_],
    counts: NDArray[np.int64],
    smallest_cell: int,
) -> NDArray[np.bool_]:
    """The candidates shown ``above`` that the root or the children show as well.

    ``counts`` int64 (nodes, cells): rows by cell, of the root or of two siblings. A
    ``smallest_cell`` of 1 leaves out only candidates that part the rows like an earlier candidate.
    The categories of a column that is split by sets are shown all or none: otherwise the sums of a
    hidden category follow from the others and the node.
    """
    shown = np.zeros(len(candidates), dtype=np.bool_)
    for held in candidates.categories:
        cells = counts[:, np.append(candidates.stop_cell[held], candidates.missing_cell[held[0]])]
        shown[held] = above[held].all() and all(_large(cell, smallest_cell) for cell in cells.T)
    cut = above & ~candidates.is_category
    features = np.unique(candidates.feature[cut])
    starts = np.searchsorted(candidates.feature, features).tolist()
    stops = np.searchsorted(candidates.feature, features, side="right").tolist()
    for feature, start, stop in zip(features.tolist(), starts, stops, strict=True):
        own = start + np.flatnonzero(above[start:stop])
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
    """The shown candidates of one column; ``cells`` (nodes, bins + 1), missing rows last.

    Missing rows are a cell of their own, which both default directions tell apart. If they are too
    few they belong to the last cell and go right: only that direction is shown.
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
    # With missing rows apart, all present rows on one side are a candidate as well.
    forward, backward = columns[begins[chain[1:]]], columns[begins[chain[:-1] + 1] - 1]
    return np.where(default_left, np.isin(bins, backward), np.isin(bins, forward))


def _large(rows: NDArray[np.int64], smallest: int) -> bool:
    """Whether each node has no such rows, or enough."""
    return bool(((rows == 0) | (rows >= smallest)).all())


def _longest_chain(ranks: NDArray[np.int64], smallest: int) -> list[int]:
    """The longest chain of the cuts 0..m-1, with first and last, whose cells are large enough.

    ``ranks`` (nodes, m), nodes 1 or 2: ascending in each node, and no two cuts alike. Between
    neighbours of the chain each node has no rows, or at least ``smallest``. Empty if no chain
    exists.
    """
    first, second = ranks[0].tolist(), ranks[-1].tolist()
    count = len(first)
    length, before = [1] + [0] * (count - 1), [-1] * count
    # The best end of a chain: among all cuts up to one, and in the runs without rows of a node.
    best = [0] * count
    enough = [0, 0]  # number of cuts far enough to the left, by node
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


# The order of candidates: random, but canonical among candidates that part the node's rows into the
# same two counts. Candidates that part the rows alike have the same counts, so the lowest number
# among tied sums is XGBoost's choice.


def _counted_in_parts(
    parts: int, bins: BinMatrix, candidates: CandidateTable, nodes: Sequence[NDArray[np.int32]]
) -> Parts | None:
    """`count_cells` in parts of the rows."""
    return row_parts(
        parts,
        bins.n_rows,
        lambda part: count_cells.bind(part.bins(bins), candidates, part.nodes(nodes)),
        summed,
    )


@computation("CountLeft", parted=_counted_in_parts)
def count_cells(
    bins: BinMatrix, candidates: CandidateTable, nodes: Sequence[NDArray[np.int32]]
) -> NDArray[np.int64]:
    """Rows of each node by cell, of the columns of ``candidates``: int64 (nodes, cells).

    Their running sums are the rows that go left at each candidate.
    """
    cuts = bins.cuts
    counts = np.zeros((len(nodes), cuts.n_cells), np.int64)
    features = np.unique(candidates.feature).tolist()
    if sum(map(len, nodes)) >= FEWEST_ROWS and can_count(bins.codes):
        count_by_cell(counts, bins.codes, cuts.first_cell, features, nodes)
        return counts
    for node, rows in enumerate(nodes):
        for feature in features:
            first, stop = cuts.first_cell[feature], cuts.first_cell[feature + 1]
            counts[node, first:stop] = np.bincount(
                bins.codes[:, feature].take(rows), minlength=int(stop - first)
            )
    return counts


class RootCells:
    """The cells of a root that holds all ``rows`` learning rows; counted once per session."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._features = b""
        self._cells: NDArray[np.int64] | None = None

    def get(self, rows: int, candidates: CandidateTable) -> NDArray[np.int64] | None:
        """The kept cells for a root of ``rows`` rows; None if the root may differ."""
        same = rows == self._rows and candidates.feature.tobytes() == self._features
        return self._cells if same else None

    def keep(self, rows: int, candidates: CandidateTable, cells: NDArray[np.int64]) -> None:
        """Keep the ``cells`` (cells,) of a root, if it holds all rows."""
        if rows == self._rows:
            self._features, self._cells = candidates.feature.tobytes(), cells


@dataclass(frozen=True, slots=True, eq=False)
class DisclosureRules:
    """How an owner shows candidates in a session.

    ``secret`` seeds their order. Cells of fewer than ``smallest_cell`` rows are merged; 0: none.
    ``learning`` bool (rows,): the rows that may carry gradients; ``root`` has their cells.
    """

    bins: BinMatrix
    secret: int
    smallest_cell: int
    learning: NDArray[np.bool_]
    root: RootCells


class CandidateOrders:
    """The order of the shown ``candidates`` of ``tree``, by node: int64 (shown,) each.

    ``secret`` seeds the orders; it must not be guessable.
    """

    def __init__(
        self,
        tree: int,
        bins: BinMatrix,
        candidates: NodeCandidates,
        secret: int,
        root: RootCells,
    ) -> None:
        self._tree = tree
        self._bins = bins
        self._candidates = candidates
        self._secret = secret
        self._root = root
        self.by_node: dict[int, NDArray[np.int64]] = {}
        """The orders of all nodes whose candidates were shown."""
        self._cells: dict[int, NDArray[np.int64]] = {}
        """Rows of a node by cell."""

    def draw(
        self, nodes: Mapping[int, NDArray[np.int32]], shown: Mapping[int, NDArray[np.int64]]
    ) -> Plan[None]:
        """Draw the orders of new ``nodes``, given with their rows that carry a gradient.

        ``shown``: the shown candidates of each node, ascending.
        """
        if not nodes:
            return
        yield from self._count(nodes)
        cells = np.stack([self._cells[node] for node in nodes])
        lefts = self._candidates.of_tree.left_sums(cells[..., np.newaxis])[..., 0]
        for (node, rows), left in zip(nodes.items(), lefts, strict=True):
            seed = np.random.SeedSequence(self._secret, spawn_key=(self._tree, node))
            random = np.random.Generator(np.random.Philox(seed))
            shown_left = left[self._candidates.places(node)][shown[node]]
            self.by_node[node] = shown[node][shown_order(shown_left, len(rows), random)]

    def _count(self, nodes: Mapping[int, NDArray[np.int32]]) -> Plan[None]:
        candidates = self._candidates.of_tree
        level = plan_level({node: len(rows) for node, rows in nodes.items()}, self._cells)
        known = self._root.get(len(nodes[ROOT]), candidates) if ROOT in nodes else None
        if known is not None:
            self._cells[ROOT] = known
        counted = [node for node in level.summed if node not in self._cells]
        if counted:
            rows = [nodes[node] for node in counted]
            codes = sum(map(len, rows)) * self._bins.codes.shape[1]
            # Counting small nodes here is faster than sending them to the pool.
            if codes <= _FEW_CODES:
                counts = count_cells(self._bins, candidates, rows)
            else:
                counts = yield from single(count_cells.bind(self._bins, candidates, rows))
            self._cells |= zip(counted, counts, strict=True)
        if ROOT in counted:
            self._root.keep(len(nodes[ROOT]), candidates, self._cells[ROOT])
        for node, other in level.subtracted:
            self._cells[node] = self._cells[parent(node)] - self._cells[other]


def shown_order(
    left: NDArray[np.int64], rows: int, random: np.random.Generator
) -> NDArray[np.int64]:
    """A permutation of the candidates of a node of ``rows`` rows; ``left`` (candidates,) go left.

    It is random, but canonical among candidates with the same two counts, either way round.
    """
    order = random.permutation(len(left))
    smaller = np.minimum(left, rows - left)
    # Places and candidates, both by class: the places of a class are filled canonically.
    places = np.argsort(smaller[order], kind="stable")
    order[places] = np.argsort(smaller, kind="stable")
    return order


def recorded(
    table: LookupTable, candidates: CandidateTable, split: int | CategorySet
) -> tuple[LookupTable, int]:
    """``table`` with a record of the ``split`` (a candidate or a set), and the record's id."""
    candidate = split if isinstance(split, int) else int(split.right[0])
    default_left = candidates.default_left[candidate]
    sets: tuple[tuple[int, ...], ...] = ()
    if not isinstance(split, int):
        default_left = np.bool_(split.default_left)
        sets = (tuple(candidates.feature[split.right].tolist()),)
    feature, threshold = candidates.feature[candidate], candidates.threshold[candidate]
    return table.appended(feature, threshold, default_left, sets), len(table)


def went_left(
    table: LookupTable,
    record: int,
    values: NDArray[np.float32],
    bins: BinMatrix,
    rows: NDArray[np.int32],
) -> NDArray[np.bool_]:
    """Whether each of ``rows`` of ``values``, which lie in ``bins``, goes left at ``record``."""
    if table.category_sets and table.category_sets[record]:
        return table.directions_at(values, rows, record)
    feature, threshold = int(table.feature[record]), table.threshold[record]
    return bins.goes_left(rows, feature, threshold, bool(table.default_left[record]))
