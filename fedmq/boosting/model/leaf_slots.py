"""Which leaves of a model do a party's own splits allow a row?

A row ends at the one leaf of a tree that the splits of all owners allow. A *slot* is a leaf, or a
whole subtree in which only the active party splits: it knows on its own where a row goes on there.
Each owner has zeros and ones for the slots, and their product has a one in each tree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.served_forest import RecordPlaces
from fedmq.boosting.model.share import ActiveShare
from fedmq.boosting.model.tree import ACTIVE_PARTY, LEAF, Forest, LookupTable
from fedmq.errors import DataError

__all__ = ["LeafSlots", "SlotRanges"]

_NOT_BEGUN = -1


@dataclass(frozen=True, slots=True, eq=False)
class SlotRanges:
    """By split of one owner: its ``record``, and the slots that it decides about.

    Slots from ``start`` to below ``middle`` lie on the left, those to below ``end`` on the right;
    int64 each, of one length.
    """

    record: NDArray[np.int64]
    start: NDArray[np.int64]
    middle: NDArray[np.int64]
    end: NDArray[np.int64]

    @classmethod
    def of(
        cls,
        record: NDArray[np.integer],
        start: NDArray[np.integer],
        middle: NDArray[np.integer],
        end: NDArray[np.integer],
        *,
        records: int,
        slots: int,
    ) -> Self:
        """The ranges within ``slots`` of an owner with so many ``records``.

        Raises:
            DataError: they are of different lengths, of unknown records, or none.
        """
        ranges = cls(*(part.astype(np.int64) for part in (record, start, middle, end)))
        if not len(ranges.record) == len(ranges.start) == len(ranges.middle) == len(ranges.end):
            raise DataError("ranges of slots that differ in number")
        if (ranges.record >= records).any() or len(np.unique(ranges.record)) < len(ranges.record):
            raise DataError(f"ranges of slots that name a record twice, or none of the {records}")
        ordered = (ranges.start < ranges.middle) & (ranges.middle < ranges.end)
        if not ordered.all() or (ranges.end > slots).any():
            raise DataError(f"ranges of slots that are empty, or leave the {slots} slots")
        return ranges

    def check(self, places: RecordPlaces) -> None:
        """See that slots stand below splits as the owner's records do in its trees.

        Raises:
            DataError: they do not: two splits that lie on one way do not decide about the same
                slots, or two that lie on none do.
        """
        tree, node = places.tree[self.record], places.node[self.record]
        order = np.lexsort((node, tree))
        met: dict[tuple[int, int], int] = {}
        for split in order.tolist():  # a node has a larger number than those above it
            above, side = int(node[split]), 0
            while above > 1 and (int(tree[split]), above >> 1) not in met:
                above >>= 1
            if above > 1:
                side, upper = above & 1, met[int(tree[split]), above >> 1]
                low = (self.middle if side else self.start)[upper]
                high = (self.end if side else self.middle)[upper]
                if self.start[split] < low or self.end[split] > high:
                    raise DataError("slots of a split that lie beside those of the split above it")
            met[int(tree[split]), int(node[split])] = split
        self._check_apart(tree, node)

    def _check_apart(self, tree: NDArray[np.int32], node: NDArray[np.int64]) -> None:
        order = np.lexsort((-self.end, self.start))
        above: list[int] = []
        for split in order.tolist():
            while above and self.end[above[-1]] <= self.start[split]:
                above.pop()
            if above:
                upper = above[-1]
                levels = int(node[split]).bit_length() - int(node[upper]).bit_length()
                if (
                    tree[split] != tree[upper]
                    or levels < 1
                    or int(node[split]) >> levels != int(node[upper])
                ):
                    raise DataError("slots of two splits of which neither is above the other")
            above.append(split)

    def allowed(self, left: NDArray[np.bool_], slots: int) -> NDArray[np.bool_]:
        """The slots that these splits allow: bool (rows, slots).

        ``left`` (rows, splits): which way each row goes, in the order of the ranges.
        """
        blocked = np.zeros((len(left), slots + 1), np.int32)
        rows = np.repeat(np.arange(len(left)), len(self.record))
        first = np.where(left, self.middle, self.start).ravel()
        last = np.where(left, self.end, self.middle).ravel()
        np.add.at(blocked, (rows, first), 1)
        np.subtract.at(blocked, (rows, last), 1)
        allowed: NDArray[np.bool_] = np.cumsum(blocked[:, :-1], axis=1) == 0
        return allowed


@dataclass(frozen=True, slots=True, eq=False)
class LeafSlots:
    """The slots of the trees in which another party splits, and the trees in which none does.

    Slots stand by output, then by tree, then from left to right. ``roots`` int32 (slots,): the node
    at the top of each. ``counts``: the slots of each output; one number where leaves are vectors.
    ``ranges`` by owner, also of the active party, for its splits above slots. ``alone`` int32: the
    roots of the trees that the active party sums alone.
    """

    forest: Forest
    table: LookupTable
    roots: NDArray[np.int32]
    counts: tuple[int, ...]
    ranges: Mapping[int, SlotRanges]
    alone: NDArray[np.int32]
    centres: NDArray[np.float64]
    """Of each slot: halfway between the least and the largest weight of its tree; (slots,), or
    (slots, outputs). A row's margin gets it in the clear, and a slot only what differs from it."""

    @classmethod
    def of(cls, share: ActiveShare) -> Self:
        """The slots of the trees that predictions of ``share`` use."""
        forest = Forest.of(share.used_trees, share.params)
        only_own = forest.owner <= ACTIVE_PARTY
        for node in np.flatnonzero(forest.owner != LEAF)[::-1].tolist():  # children before parents
            below = only_own[forest.left[node]] and only_own[forest.right[node]]
            only_own[node] &= below
        shared = ~only_own[forest.roots]
        outputs = 1 if forest.weight.ndim > 1 else share.params.outputs
        roots: list[int] = []
        centres: list[NDArray[np.float64]] = []
        counts = [0] * outputs
        found: dict[int, list[tuple[int, int, int, int]]] = {}
        ends = np.append(forest.roots[1:], len(forest.owner))
        output_of = np.zeros_like(forest.output) if outputs == 1 else forest.output
        for tree in sorted(np.flatnonzero(shared).tolist(), key=lambda tree: int(output_of[tree])):
            before = len(roots)
            _descend(forest, only_own, int(forest.roots[tree]), roots, found)
            nodes = np.arange(forest.roots[tree], ends[tree])
            leaves = forest.weight[nodes[forest.owner[nodes] == LEAF]].astype(np.float64)
            centre = (leaves.min(axis=0) + leaves.max(axis=0)) / 2
            centres += [centre] * (len(roots) - before)
            counts[output_of[tree]] += len(roots) - before
        ranges = {
            owner: SlotRanges(*np.array(sorted(splits), np.int64).reshape(-1, 4).T)
            for owner, splits in found.items()
        }
        shape = forest.weight.shape[1:]
        return cls(
            forest,
            share.lookup_table,
            np.array(roots, np.int32),
            tuple(counts),
            ranges,
            forest.roots[~shared],
            np.array(centres).reshape(len(roots), *shape),
        )

    @property
    def largest(self) -> float:
        """The largest magnitude of a sum of what differs from centres, over all outputs."""
        if not len(self.roots):
            return 0.0
        is_leaf = self.forest.owner == LEAF
        starts = self.forest.roots.astype(np.intp)
        axes = (slice(None),) + (np.newaxis,) * (self.forest.weight.ndim - 1)
        high = np.where(is_leaf[axes], self.forest.weight, -np.inf)
        low = np.where(is_leaf[axes], self.forest.weight, np.inf)
        spans = np.maximum.reduceat(high, starts, axis=0) - np.minimum.reduceat(low, starts, axis=0)
        halves = spans.astype(np.float64) / 2
        if self.forest.weight.ndim > 1:
            return float(halves.sum(axis=0).max())
        return float(max(halves[self.forest.output == output].sum() for output in self._outputs))

    @property
    def _outputs(self) -> list[int]:
        return sorted(set(self.forest.output.tolist()))

    def weights(
        self, values: NDArray[np.float32]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """What each slot adds to a row that ends there, and what all rows get in the clear.

        ``values`` (rows, features) are the active party's own. The first is (rows, slots), or
        (rows, slots, outputs) with vector leaves: 0 where the active party's own splits do not
        allow the slot. The second is (rows, outputs): centres, and the trees that it sums alone.
        """
        ended = self._walked(values, np.tile(self.roots, (len(values), 1)))
        weights = self.forest.weight[ended].astype(np.float64) - self.centres
        allowed = self.allowed(values)
        weights *= allowed.reshape(*allowed.shape, *(1,) * (weights.ndim - 2))
        return weights, self._clear(values)

    def allowed(self, values: NDArray[np.float32]) -> NDArray[np.bool_]:
        """The slots that the active party's own splits allow: bool (rows, slots)."""
        rows = len(values)
        if (own := self.ranges.get(ACTIVE_PARTY)) is None:
            return np.ones((rows, len(self.roots)), np.bool_)
        splits = len(own.record)
        left = self.table.directions(
            values, np.repeat(np.arange(rows), splits), np.tile(own.record, rows)
        ).reshape(rows, splits)
        return own.allowed(left, len(self.roots))

    @property
    def trees(self) -> NDArray[np.intp]:
        """The tree of each slot."""
        return self._tree_of(self.roots)

    def _clear(self, values: NDArray[np.float32]) -> NDArray[np.float64]:
        forest = self.forest
        vectors = forest.weight.ndim > 1
        outputs = forest.weight.shape[1] if vectors else len(self.counts)
        clear = np.zeros((len(values), outputs))
        _, first = np.unique(self._tree_of(self.roots), return_index=True)
        trees = self._tree_of(self.roots[first])
        if vectors:
            clear += self.centres[first].sum(axis=0)
        else:
            np.add.at(clear.T, self._output_of[trees], self.centres[first][:, np.newaxis])
        return clear + self.sums_alone(values)

    @property
    def _output_of(self) -> NDArray[np.intp]:
        """The output of each tree."""
        output = self.forest.output
        return output if len(self.counts) > 1 else np.zeros_like(output)

    def sums_alone(self, values: NDArray[np.float32]) -> NDArray[np.float64]:
        """What the trees of the active party alone add to rows: (rows, outputs)."""
        leaves = self._walked(values, np.tile(self.alone, (len(values), 1)))
        weights = self.forest.weight[leaves].astype(np.float64)
        if weights.ndim > 2:
            summed: NDArray[np.float64] = weights.sum(axis=1)
            return summed
        sums = np.zeros((len(values), len(self.counts)))
        np.add.at(sums.T, self._output_of[self._tree_of(self.alone)], weights.T)
        return sums

    def _tree_of(self, nodes: NDArray[np.int32]) -> NDArray[np.intp]:
        return np.searchsorted(self.forest.roots, nodes, side="right") - 1

    def _walked(self, values: NDArray[np.float32], nodes: NDArray[np.int32]) -> NDArray[np.int32]:
        """The leaves to which the active party's own splits lead from ``nodes`` (rows, n)."""
        while len(walking := np.flatnonzero(self.forest.owner[nodes] != LEAF)):
            rows = walking // nodes.shape[1]
            here = nodes.ravel()[walking]
            left = self.table.directions(values, rows, self.forest.record[here])
            nodes.ravel()[walking] = self.forest.below(here, left)
        return nodes


def _descend(
    forest: Forest,
    only_own: NDArray[np.bool_],
    root: int,
    roots: list[int],
    found: dict[int, list[tuple[int, int, int, int]]],
) -> None:
    """Add the slots below ``root`` to ``roots``, and the ranges of the splits above them."""
    waiting: list[tuple[int, int, int]] = [(root, _NOT_BEGUN, _NOT_BEGUN)]
    while waiting:
        node, start, middle = waiting.pop()
        if only_own[node]:
            roots.append(node)
        elif start == _NOT_BEGUN:
            waiting.append((node, len(roots), _NOT_BEGUN))
            waiting.append((int(forest.left[node]), _NOT_BEGUN, _NOT_BEGUN))
        elif middle == _NOT_BEGUN:
            waiting.append((node, start, len(roots)))
            waiting.append((int(forest.right[node]), _NOT_BEGUN, _NOT_BEGUN))
        else:
            split = int(forest.record[node]), start, middle, len(roots)
            found.setdefault(int(forest.owner[node]), []).append(split)
