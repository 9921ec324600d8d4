"""The passive party's half of the encrypting engines: it adds ciphertexts it cannot read.

Where sums are hidden it keeps a share of each (`AdditivePassiveShares`), which circuits compare.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix
from fedmq.boosting.gradients import RESOLUTION_BITS
from fedmq.boosting.splits import ROOT, CandidateTable, parent, plan_level, sibling
from fedmq.computation import computation
from fedmq.errors import MessageError
from fedmq.large_array import large_zeros
from fedmq.privacy.engine import BroadcastPiece, PassiveHalf, Query
from fedmq.privacy.hidden_sums.shares import Field, PassiveShares, Shares, sums_field
from fedmq.privacy.homomorphic.addition import Addition, EightAtOnce, OneByOne, Sums
from fedmq.privacy.homomorphic.histogram import COLUMNS_AT_ONCE, Tricks
from fedmq.privacy.homomorphic.instructions import is_available
from fedmq.privacy.homomorphic.packing import MOST_SHARED, SlotLayout
from fedmq.privacy.homomorphic.residues import width
from fedmq.privacy.homomorphic.scheme import PublicKey, SeededBytes
from fedmq.privacy.plan import PIECE_BYTES, Compute, Plan, Reply, Values

__all__ = ["AdditivePassive", "AdditivePassiveShares"]

# The root is summed while its rows arrive, in about this many parts. Smaller parts would make joint
# sums save too little.
_EARLY_PARTS = 4
_FEWEST_ROWS = 4096
# The most rows of a computation: each is unpacked into a number of about a kilobyte.
_MOST_ROWS = 32768

# Of a wide table so many codes are spread out, and sums are taken and kept, at a time: a deep tree
# reads the rows of some nodes once more, instead of keeping the sums of all nodes above them.
_CODES_AT_ONCE = 1 << 24
_SUMS_AT_ONCE = 300_000_000  # bytes
_SUMS_KEPT = 500_000_000  # bytes

_MOST_SUM_BITS = 63
_FEWEST_AT_ONCE = 4  # packed ciphertexts that one core makes


@dataclass(frozen=True, eq=False)
class _SumRows:
    """Encrypted histograms (nodes, cells) over some of the rows in a level's nodes."""

    label: ClassVar[str] = "_SumRows"
    addition: Addition
    ciphertexts: NDArray[np.uint8]
    ciphertext_of: NDArray[np.int32]
    rows: NDArray[np.int32]
    slots: NDArray[np.int32]
    nodes: int
    bins: BinMatrix
    features: NDArray[np.int32]

    def detached(self) -> _SumRows:
        bins = replace(self.bins, codes=self.bins.codes[self.rows])
        every = np.arange(len(self.rows), dtype=np.int32)
        used, ciphertext_of = np.unique(self.ciphertext_of, return_inverse=True)
        return replace(
            self,
            ciphertexts=self.ciphertexts[used],
            ciphertext_of=ciphertext_of.astype(np.int32),
            rows=every,
            bins=bins,
        )

    def run(self) -> Sums:
        used, ciphertext_of = np.unique(self.ciphertext_of, return_inverse=True)
        ciphertexts = self.ciphertexts[used]
        codes = self.bins.cuts.n_bins[self.features].astype(np.int64) + 1
        first = np.concatenate(([0], np.cumsum(codes)))
        sums: Sums | None = None
        for block in _column_blocks(len(self.rows), len(self.features)):
            part = self.addition.sum_bins(
                ciphertexts,
                ciphertext_of,
                self.bins.codes[np.ix_(self.rows, self.features[block])],
                self.slots,
                nodes=self.nodes,
                codes=codes[block],
            )
            if part.shape[1] == first[-1]:
                return part
            if sums is None:
                sums = np.empty((self.nodes, int(first[-1]), *part.shape[2:]), part.dtype)
            sums[:, first[block.start] : first[block.stop]] = part
        assert sums is not None
        return sums


def _column_blocks(rows: int, columns: int) -> list[slice]:
    """Columns that are summed one block after the other, at least one block.

    Blocks are whole vectors, and as many columns as joint sums compare.
    """
    size = max(1, _CODES_AT_ONCE // max(1, rows) // COLUMNS_AT_ONCE) * COLUMNS_AT_ONCE
    starts = range(0, max(1, columns), size)
    return [slice(start, min(start + size, columns)) for start in starts]


@computation("_Merge")
def _merge(addition: Addition, parts: Sequence[Sums]) -> Sums:
    """Sums over all rows, by place (places, cells), from those over parts of them."""
    return addition.merge(parts)


@computation("_Subtract")
def _subtract(addition: Addition, parent: Sums, sibling: Sums) -> Sums:
    return addition.subtract(parent, sibling)


@computation("_ShowCandidates")
def _show_candidates(
    addition: Addition,
    layout: SlotLayout,
    sums: Sums,
    features: NDArray[np.int32],
    n_bins: NDArray[np.int32],
    candidates: CandidateTable,
    order: NDArray[np.int64],
    random: SeededBytes,
) -> tuple[NDArray[np.uint8], Shares | None]:
    """A node's candidates in their opaque order: packed, re-randomised, ready to travel.

    ``order`` may be a part of the node's. If the layout hides sums, also the shares to keep.
    """
    runs, places = _runs(features, n_bins, candidates)
    packed = addition.show(sums, runs, places[order], layout, random)
    return packed, layout.kept_shares(len(order), random) if layout.hidden else None


def _runs(
    features: NDArray[np.int32], n_bins: NDArray[np.int32], candidates: CandidateTable
) -> tuple[list[NDArray[np.intp]], NDArray[np.intp]]:
    """Runs of cells whose running sums are left sums, and each candidate's place there.

    As `CandidateTable.left_sums`.
    """
    runs: list[NDArray[np.intp]] = []
    places = np.empty(len(candidates), dtype=np.intp)
    done, missing_cell = 0, -1
    starts = np.searchsorted(candidates.feature, features)
    stops = np.searchsorted(candidates.feature, features, side="right")
    for feature, start, stop in zip(
        features.tolist(), starts.tolist(), stops.tolist(), strict=True
    ):
        first_cell = missing_cell + 1
        missing_cell = first_cell + int(n_bins[feature])
        for default_left in (False, True):
            chosen = start + np.flatnonzero(candidates.default_left[start:stop] == default_left)
            if not len(chosen):
                continue
            # Backward candidates take the missing values first, and only them at bin -1.
            bins = candidates.bin[chosen]
            cells = first_cell + np.arange(int(bins.max()) + 1)
            runs.append(np.append([missing_cell], cells) if default_left else cells)
            places[chosen] = done + bins + default_left
            done += len(runs[-1])
    return runs, places


class AdditivePassive(PassiveHalf):
    """See `fedmq.privacy.homomorphic.engine.AdditiveEngine` for the settings."""

    def __init__(
        self,
        key: PublicKey,
        bins: BinMatrix,
        parallelism: int,
        *,
        pack_sums: bool = True,
        joint_sums: bool = True,
        skip_fullest: bool = True,
        subtract_siblings: bool = True,
        sum_early: bool = True,
        vectors: bool = True,
    ) -> None:
        self._key = key
        self._bins = bins
        self._parallelism = parallelism
        self._pack_sums = pack_sums
        self._most_sum_bits = _sum_bits(bins.n_rows, RESOLUTION_BITS)
        self._most_shared = MOST_SHARED
        tricks = Tricks(joint_sums, skip_fullest)
        self._addition = (EightAtOnce if vectors and is_available() else OneByOne)(key, tricks)
        self._subtract_siblings = subtract_siblings
        self._sum_early = sum_early
        self._secret = secrets.token_bytes(32)
        self._outputs = 1
        self._features = np.arange(bins.cuts.n_features, dtype=np.int32)
        self._ciphertexts: NDArray[np.uint8] | None = None
        self.forget_tree()

    def start_session(
        self,
        training: NDArray[np.bool_],
        value_bits: int = RESOLUTION_BITS,
        secret: bytes | None = None,
        outputs: int = 1,
    ) -> None:
        self._secret = secret or self._secret
        self._most_sum_bits = _sum_bits(int(np.count_nonzero(training)), value_bits)
        # Gradients at full resolution, or of several outputs, leave no room for other rows.
        self._most_shared = MOST_SHARED if value_bits < RESOLUTION_BITS and outputs == 1 else 1
        self._outputs = outputs

    def forget_tree(self) -> None:
        self._carried = np.zeros(self._bins.n_rows, dtype=np.bool_)
        self._ciphertext_of = np.zeros(self._bins.n_rows, dtype=np.int32)
        self._place_of = np.zeros(self._bins.n_rows, dtype=np.int32)
        self._arrived = 0
        self._layout: SlotLayout | None = None
        self._sums: dict[int, Sums] = {}
        self._waiting: list[NDArray[np.int32]] = []
        self._early: list[Sums] = []

    def start_tree(self, tree: int, candidates: CandidateTable) -> None:
        self._features = np.unique(candidates.feature)

    def receive(self, tree: int, piece: BroadcastPiece) -> Plan[None]:
        layout = self._checked_layout(piece)
        if self._layout is None:
            self._layout = layout
            self._node_bytes = max(1, self._bytes_of_sums(layout.places))
            # Workers read the array in place, so each tree gets its own.
            most = -(-self._bins.n_rows // layout.rows) * layout.parts
            shape = (most, width(self._key.modulus))
            self._ciphertexts = large_zeros(shape, np.uint8)
        elif self._layout != layout:
            raise MessageError("the pieces of a gradient broadcast differ in their slot layout")
        assert self._ciphertexts is not None
        first, self._arrived = self._arrived, self._arrived + len(piece.values["ciphertexts"])
        if self._arrived > len(self._ciphertexts):
            raise MessageError("a gradient broadcast of more ciphertexts than there are rows")
        self._ciphertexts[first : self._arrived] = piece.values["ciphertexts"]
        ciphertext, place = np.divmod(np.arange(len(piece.rows), dtype=np.int32), layout.rows)
        self._ciphertext_of[piece.rows] = first + ciphertext * layout.parts
        self._place_of[piece.rows] = place
        self._carried[piece.rows] = True
        self._waiting.append(piece.rows.astype(np.int32))
        part = max(_FEWEST_ROWS, self._bins.n_rows // _EARLY_PARTS)
        enough = min(_MOST_ROWS, part * layout.rows)
        early = self._sum_early and self._early_parts * self._node_bytes <= _SUMS_AT_ONCE
        if early and sum(map(len, self._waiting)) >= enough:
            rows, self._waiting = np.concatenate(self._waiting), []
            self._early += yield Compute(self._summations([rows], 1, layout))

    def _checked_layout(self, piece: BroadcastPiece) -> SlotLayout:
        values, bits = piece.values, self._key.plaintext_bits
        ciphertexts = values.get("ciphertexts")
        h, slot, capacity = (values.get(key) for key in ("h", "slot", "capacity"))
        shared = values.get("rows", 1)
        if (
            not isinstance(ciphertexts, np.ndarray)
            or ciphertexts.dtype != np.uint8
            or not isinstance(shared, int)
            or not 0 < shared <= self._most_shared
            or (shared > 1 and not self._key.adds_plaintexts)
            or not isinstance(h, int)
            or not isinstance(slot, int)
            or not isinstance(capacity, int)
            or not 0 < h < slot <= bits
            or not 0 < capacity <= bits // slot
            or (shared > 1 and (capacity + 1) * shared - 1 > bits // slot)
        ):
            raise MessageError("a gradient broadcast that does not fit the key")
        layout = self._needed(SlotLayout(h, slot, capacity, shared))
        count = -(-len(piece.rows) // shared) * layout.parts
        if ciphertexts.shape != (count, width(self._key.modulus)):
            raise MessageError(
                "a gradient broadcast of another number of ciphertexts than its rows"
            )
        # Masks hide the neighbours of a sum only if a slot holds any sum plus the guard.
        if shared > 1 and layout.sum_bits <= h:
            raise MessageError("a gradient broadcast without room for masks")
        return layout

    def _needed(self, layout: SlotLayout) -> SlotLayout:
        """The layout with slots as in ``layout``, whole.

        Refuse slots that are wider, or fewer, than sums of the training's rows need.

        Unneeded room could hold numbers that tell for each sum which rows are in it. The layout
        follows from the width of h, which follows from rows and fixed point.
        """
        most = (1 << min(layout.h_bits, self._most_sum_bits)) - 1
        needed = self._tightest(most, layout.rows)
        if not self._pack_sums:
            needed = replace(needed, capacity=1)
        slots = (layout.h_bits, layout.slot_bits, layout.capacity)
        if slots != (needed.h_bits, needed.slot_bits, needed.capacity):
            raise MessageError(
                f"a slot layout of {layout.capacity} sums with {layout.slot_bits} bits each, where "
                f"{needed.capacity} with {needed.slot_bits} are needed: other rows could be read "
                "from it"
            )
        return needed

    def _tightest(self, most: int, rows: int) -> SlotLayout:
        """The layout for sums up to ``most``, with so many ``rows`` in a ciphertext."""
        bits = self._key.plaintext_bits
        return SlotLayout.for_sums(most, most, bits, rows, self._outputs)

    def sums_bytes(self, nodes: int) -> int:
        # Half a tree is its last level. One sibling of each pair is summed, in parts that are kept
        # until all have arrived.
        level = nodes // 2 + 1
        summed = -(-level // 2) if self._subtract_siblings else level
        places = self._most_shared if self._key.adds_plaintexts else 1
        if self._outputs > 1:
            places = self._tightest((1 << self._most_sum_bits) - 1, 1).places
        node = self._bytes_of_sums(places)
        family = min(nodes, 3) * node  # two siblings beside their parent
        cores = self._parallelism
        parts = max(cores, self._early_parts) * node
        at_once = max(cores * node, min(summed * parts, _SUMS_AT_ONCE))
        return max(family, min(nodes * node, _SUMS_KEPT)) + at_once

    def _bytes_of_sums(self, places: int) -> int:
        """Memory for the sums of a node, with so many of each candidate."""
        return places * self._bins.cuts.n_cells * self._addition.sum_bytes

    @property
    def _early_parts(self) -> int:
        """Parts of the root's sums, if they are taken while its rows arrive."""
        return max(_EARLY_PARTS, -(-self._bins.n_rows // _MOST_ROWS))

    def answer(self, queries: Sequence[Query]) -> Plan[None]:
        if self._layout is None:
            raise MessageError("sums were asked for before any gradient came")
        for together in self._families(queries):
            yield from self._answer(together, self._layout)
            self._forget_sums(together)

    def _families(self, queries: Sequence[Query]) -> list[list[Query]]:
        """``queries`` in groups whose sums fit into memory beside one another; siblings stay."""
        most = max(1, _SUMS_AT_ONCE // (self._parallelism * self._node_bytes))
        families: dict[int, list[Query]] = {}
        for query in queries:
            families.setdefault(parent(query.node), []).append(query)
        groups: list[list[Query]] = []
        for family in families.values():
            if not groups or len(groups[-1]) + len(family) > 2 * most:
                groups.append([])
            groups[-1] += family
        return groups if len(groups) > 1 else [list(queries)]

    def _forget_sums(self, queries: Sequence[Query]) -> None:
        """Forget sums that no child needs any more, and those for which memory lacks room.

        Without its parent's sums a node is summed like the root.
        """
        for query in queries:
            self._sums.pop(parent(query.node), None)
        room = _SUMS_KEPT // self._node_bytes
        for node in list(self._sums)[room:]:
            del self._sums[node]

    def _answer(self, queries: Sequence[Query], layout: SlotLayout) -> Plan[None]:
        rows = {query.node: query.rows[self._carried[query.rows]] for query in queries}
        if ROOT in rows:
            rows[ROOT] = np.concatenate([*self._waiting, rows[ROOT][:0]])
        sizes = {node: len(held) for node, held in rows.items()}
        level = plan_level(sizes, self._sums, self._subtract_siblings)
        yield from self._sum([rows[node] for node in level.summed], level.summed, layout)
        subtracted = yield Compute(
            [
                _subtract.bind(self._addition, self._sums[parent(node)], self._sums[sibling])
                for node, sibling in level.subtracted
            ]
        )
        self._sums |= zip((node for node, _ in level.subtracted), subtracted, strict=True)
        # Replies leave while the next nodes are prepared, so that the other side can begin.
        for start in range(0, len(queries), 2 * self._parallelism):
            yield from self._show(queries[start : start + 2 * self._parallelism], layout)

    def _sum(
        self, rows: Sequence[NDArray[np.int32]], nodes: Sequence[int], layout: SlotLayout
    ) -> Plan[None]:
        """Sum parts of the rows, and then the parts: features that stay together sum jointly.

        Of a wide table as many parts as there are cores are summed, and added, at a time.
        """
        together = sum(map(len, rows))
        count = max(self._parallelism, -(-together // _MOST_ROWS))
        steps = self._summations(rows, count, layout)
        places = layout.places
        done: dict[int, list[Sums]] = {node: [] for node in nodes}
        if ROOT in done:
            done[ROOT] += self._early
            self._early = []
        narrow = count * len(nodes) * self._node_bytes <= _SUMS_AT_ONCE
        at_once = count if narrow else self._parallelism
        for start in range(0, count, at_once):
            parts = yield Compute(steps[start : start + at_once])
            for slot, node in enumerate(nodes):
                done[node] += [part[slot * places : (slot + 1) * places] for part in parts]
            del parts
            merged = yield Compute([_merge.bind(self._addition, done[node]) for node in nodes])
            done = {node: [sums] for node, sums in zip(nodes, merged, strict=True)}
        self._sums |= ((node, sums) for node, [sums] in done.items())

    def _summations(
        self, rows: Sequence[NDArray[np.int32]], parts: int, layout: SlotLayout
    ) -> list[_SumRows]:
        """Sums over ``parts`` of the rows of some nodes, with slots for each node's places."""
        assert self._ciphertexts is not None
        together = np.concatenate(rows)
        slots = np.repeat(np.arange(len(rows), dtype=np.int32), [len(held) for held in rows])
        together, slots = np.repeat(together, layout.parts), np.repeat(slots, layout.parts)
        parts_of = np.resize(np.arange(layout.parts, dtype=np.int32), len(together))
        places = self._place_of[together] + parts_of
        slots = slots * np.int32(layout.places) + places
        # A place that is not cut in parts has more rows, so joint sums save more.
        order = np.argsort(places, kind="stable")
        together, slots, parts_of = together[order], slots[order], parts_of[order]
        return [
            _SumRows(
                self._addition,
                self._ciphertexts,
                self._ciphertext_of[together[part]] + parts_of[part],
                together[part],
                slots[part],
                len(rows) * layout.places,
                self._bins,
                self._features,
            )
            for part in np.array_split(np.arange(len(together)), parts)
        ]

    def _show(self, queries: Sequence[Query], layout: SlotLayout) -> Plan[None]:
        """Reply to queries whose sums are known; a few nodes are shared out among the cores."""
        parts = {query.node: self._parts(query, len(queries), layout) for query in queries}
        shown = yield Compute(
            [
                _show_candidates.bind(
                    self._addition,
                    layout,
                    self._sums[query.node],
                    self._features,
                    self._bins.cuts.n_bins,
                    query.candidates,
                    query.order[start:stop],
                    SeededBytes(self._seed(query), layout.packed_count(start)),
                )
                for query in queries
                for start, stop in parts[query.node]
            ]
        )
        done = iter(shown)
        for query in queries:
            packed, kept = zip(*(next(done) for _ in parts[query.node]), strict=True)
            self._keep(query.node, kept)
            yield Reply(query.node, self._pieces(np.concatenate(packed), len(query.order), layout))

    def _keep(self, node: int, shares: Sequence[Shares | None]) -> None:
        """Take what is kept of an answer: nothing, where sums are shown."""

    def _seed(self, query: Query) -> bytes:
        """The seed of an answer's noise, unique in the session: a node has one answer."""
        return hmac.digest(self._secret, struct.pack(">QQ", query.tree, query.node), "sha256")

    def _parts(self, query: Query, queries: int, layout: SlotLayout) -> list[tuple[int, int]]:
        """Ranges of a node's order for all cores, each ending at a full ciphertext."""
        cores = -(-self._parallelism // queries)
        groups = layout.packed_count(len(query.order)) // layout.parts
        groups = max(_FEWEST_AT_ONCE, -(-groups // cores))
        size = -(-groups // self._addition.at_once) * self._addition.at_once * layout.capacity
        starts = range(0, max(1, len(query.order)), size)
        return [(start, start + size) for start in starts]

    def _pieces(self, packed: NDArray[np.uint8], count: int, layout: SlotLayout) -> list[Values]:
        most = layout.whole_parts(PIECE_BYTES // packed.shape[1])
        held = most // layout.parts * layout.capacity
        return [
            {
                "packed": packed[start : start + most],
                "count": min(count - start // most * held, held),
            }
            for start in range(0, max(len(packed), 1), most)
        ]


class AdditivePassiveShares(AdditivePassive, PassiveShares):
    """The half that keeps a share of each sum, of the nodes of the growing tree."""

    def __init__(
        self,
        public_seed: bytes,
        key: PublicKey,
        bins: BinMatrix,
        parallelism: int,
        **settings: bool,
    ) -> None:
        super().__init__(key, bins, parallelism, **settings)
        self._public_seed = public_seed
        self._field: Field

    @property
    def public_seed(self) -> bytes:
        return self._public_seed

    @property
    def field(self) -> Field:
        return self._field

    def start_session(
        self,
        training: NDArray[np.bool_],
        value_bits: int = RESOLUTION_BITS,
        secret: bytes | None = None,
        outputs: int = 1,
    ) -> None:
        super().start_session(training, value_bits, secret, outputs)
        self._field = sums_field(training, value_bits)

    def forget_tree(self) -> None:
        super().forget_tree()
        self._kept: dict[int, Shares] = {}
        self._asked: dict[int, Query] = {}
        self._digest = hashlib.sha256()
        """Of the tree's broadcast."""

    def receive(self, tree: int, piece: BroadcastPiece) -> Plan[None]:
        yield from super().receive(tree, piece)
        for array in (piece.rows, piece.values["ciphertexts"]):
            self._digest.update(np.ascontiguousarray(array).data)

    def _tightest(self, most: int, rows: int) -> SlotLayout:
        return SlotLayout.for_shares(self._field.bits, self._key.plaintext_bits, rows)

    def _seed(self, query: Query) -> bytes:
        """The seed of an answer's noise and masks: other sums never get the same masks.

        Otherwise the difference of two answers, before a crash and after, would be that of sums.
        """
        question = self._digest.copy()
        for array in (query.rows, query.order, self._features):
            question.update(np.ascontiguousarray(array).data)
        return hmac.digest(super()._seed(query), question.digest(), "sha256")

    def answer(self, queries: Sequence[Query]) -> Plan[None]:
        """Nothing is summed for the larger of two siblings: shares are their parent's less."""
        self._asked |= {query.node: query for query in queries}
        summed = []
        for query in queries:
            if self._is_rest(query):
                yield Reply(query.node, [{"rest": len(query.order)}])
            else:
                summed.append(query)
        if summed:
            yield from super().answer(summed)

    def _is_rest(self, query: Query) -> bool:
        """Whether both parties know the shares of the same candidates above and beside it."""
        if query.node == ROOT or not self._subtract_siblings:
            return False
        above, beside = (self._asked.get(of(query.node)) for of in (parent, sibling))
        if above is None or beside is None:
            return False
        sizes = [np.count_nonzero(self._carried[of.rows]) for of in (query, beside)]
        larger = (sizes[0], query.node) > (sizes[1], beside.node)
        return larger and all(
            of.candidates is query.candidates and np.array_equal(of.order, query.order)
            for of in (above, beside)
        )

    def _keep(self, node: int, shares: Sequence[Shares | None]) -> None:
        self._kept[node] = np.concatenate([part for part in shares if part is not None])

    def shares(self, node: int) -> Shares:
        if node not in self._asked:
            raise MessageError(f"node {node}, about which nothing was asked")
        if node not in self._kept:
            above = self.shares(parent(node))
            self._kept[node] = self._field.less(above, self._kept[sibling(node)])
        return self._kept[node]


def _sum_bits(rows: int, value_bits: int) -> int:
    """The most bits that a sum over ``rows`` rows has in the active party's fixed point."""
    return min(_MOST_SUM_BITS, max(rows, 1).bit_length() + value_bits)
