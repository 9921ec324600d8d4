"""Gradients travel encrypted, passive parties add what they cannot read.

SecureBoost's own way (arXiv 1901.08755, Algorithms 1 and 2), for any additively homomorphic
scheme. g and h of a row are packed into one ciphertext, and several sums into one before they
return (as in SecureBoost+, arXiv 2110.10927). Sums are re-randomised, so that the key's owner
cannot tell from their noise which rows were added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeGuard

import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix
from fedmq.boosting.candidates import CandidateTable
from fedmq.boosting.gradients import Gradients
from fedmq.errors import ConfigError, MessageError, Refused
from fedmq.privacy.arithmetic.scheme import PrivateKey, PublicKey
from fedmq.privacy.arithmetic.slots import SlotLayout
from fedmq.privacy.arithmetic.sums import Sums as CipherSums
from fedmq.privacy.arithmetic.sums import cumulate, merge, subtract, sum_bins
from fedmq.privacy.arithmetic.wire import from_wire, to_wire, width
from fedmq.privacy.engine import (
    PIECE_BYTES,
    ActiveHalf,
    Answer,
    AskedNode,
    BroadcastPiece,
    Compute,
    Engine,
    Exchange,
    Leakage,
    PassiveHalf,
    Plan,
    Query,
    Reply,
    Sums,
    Values,
)
from fedmq.privacy.siblings import plan_wave

__all__ = ["SAFE_KEY_BITS", "AdditiveEngine", "Scheme"]

SAFE_KEY_BITS = 2048
"""112 bits of security, the least that NIST SP 800-57 part 1 rev. 5 accepts until 2030."""

_ROW_BYTES = 4
_MOST_ROWS_PER_PIECE = 2048  # small keys would make pieces too large to share out


@dataclass(frozen=True)
class Scheme:
    """Where an engine's keys come from.

    ``generate(bits)`` makes a key whose public number has ``bits`` bits;
    ``check_public(n, smallest_bits, owner)`` raises Refused for a malformed or short one.
    """

    generate: Callable[[int], PrivateKey]
    check_public: Callable[[int, int, str], PublicKey]


@dataclass(frozen=True)
class AdditiveEngine(Engine):
    """``key_bits``: length of the public number; below 2048 only with ``allow_weak_keys``."""

    key_bits: int = SAFE_KEY_BITS
    allow_weak_keys: bool = False

    scheme: ClassVar[Scheme]
    exact = True
    leakage = Leakage(
        active="the sums of g and h of every split candidate of a passive party, in random order",
        passive="who stands in which node, down to the last level but one; no g, h or sum",
    )

    def __post_init__(self) -> None:
        if self.key_bits < SAFE_KEY_BITS and not self.allow_weak_keys:
            raise ConfigError(
                f"key_bits = {self.key_bits}: below {SAFE_KEY_BITS} nothing is kept secret for "
                "long; set allow_weak_keys = true for a trial"
            )

    def key_bits_of(self, public: Values) -> int | None:
        n = public.get("n")
        return int.from_bytes(n.tobytes(), "little").bit_length() if _is_number(n) else None

    def active(self, parallelism: int) -> ActiveHalf:
        return _Active(self.scheme, self.key_bits)

    def passive(self, public: Values, bins: BinMatrix, parallelism: int) -> PassiveHalf:
        n = public.get("n")
        if set(public) != {"n"} or not _is_number(n):
            raise Refused(f"the active party's {self.name} key is malformed")
        smallest = 0 if self.allow_weak_keys else SAFE_KEY_BITS
        number = int.from_bytes(n.tobytes(), "little")
        key = self.scheme.check_public(number, smallest, "the active party")
        return _Passive(key, bins, parallelism)


def _is_number(value: object) -> TypeGuard[NDArray[np.uint8]]:
    return isinstance(value, np.ndarray) and value.dtype == np.uint8


# The label holder's half


@dataclass(frozen=True)
class _MakeKey:
    scheme: Scheme
    bits: int

    def run(self) -> PrivateKey:
        return self.scheme.generate(self.bits)


@dataclass(frozen=True, eq=False)
class _Encrypt:
    key: PrivateKey
    layout: SlotLayout
    pairs: NDArray[np.int64]

    def run(self) -> NDArray[np.uint8]:
        plaintexts = self.layout.join(self.pairs[:, 0], self.pairs[:, 1])
        return to_wire(self.key.encrypt(plaintexts), self.key.public.modulus)


@dataclass(frozen=True, eq=False)
class _Decrypt:
    key: PrivateKey
    layout: SlotLayout
    packed: NDArray[np.uint8]
    count: int

    def run(self) -> NDArray[np.int64]:
        plaintexts = self.key.decrypt(from_wire(self.packed, self.key.public.modulus))
        return np.stack(self.layout.unpack(plaintexts, self.count), axis=1)


class _Active(ActiveHalf):
    def __init__(self, scheme: Scheme, key_bits: int) -> None:
        self._scheme = scheme
        self._key_bits = key_bits
        self._key: PrivateKey
        self._layout: SlotLayout

    def open(self) -> Plan[Values]:
        [self._key] = yield Compute([_MakeKey(self._scheme, self._key_bits)])
        n = int(self._key.public.n)
        return {"n": np.frombuffer(n.to_bytes(-(-n.bit_length() // 8), "little"), np.uint8)}

    def broadcast(self, gradients: Gradients) -> Sequence[Plan[BroadcastPiece]]:
        public = self._key.public
        rows = np.flatnonzero(gradients.carried).astype(np.uint32)
        # A bound that holds for any gradients: what others see of the layout tells nothing of them.
        bound = max(1, len(rows)) << gradients.scale.value_bits
        self._layout = SlotLayout.for_sums(bound, bound, public.plaintext_bits)
        size = min(_MOST_ROWS_PER_PIECE, PIECE_BYTES // (width(public.modulus) + _ROW_BYTES))
        pieces = np.array_split(rows, max(1, -(-len(rows) // size)))
        return [self._piece(piece, gradients.pairs) for piece in pieces]

    def _piece(self, rows: NDArray[np.uint32], pairs: NDArray[np.int64]) -> Plan[BroadcastPiece]:
        layout = self._layout
        [ciphertexts] = yield Compute([_Encrypt(self._key, layout, pairs[rows])])
        return BroadcastPiece(
            rows, {"ciphertexts": ciphertexts, "h": layout.h_bits, "slot": layout.slot_bits}
        )

    def ask(self, peer: str, asked: AskedNode) -> Plan[Answer]:
        pieces = yield Exchange()
        try:
            steps = [
                _Decrypt(self._key, self._layout, piece["packed"], int(piece["count"]))
                for piece in pieces
            ]
        except (KeyError, TypeError, ValueError):
            raise MessageError("sums that are not packed as they should be") from None
        return Sums(np.concatenate((yield Compute(steps))))


# The feature holder's half


@dataclass(frozen=True, eq=False)
class _SumRows:
    """Encrypted histograms (nodes, features, codes) over some of the rows in a wave's nodes."""

    key: PublicKey
    ciphertexts: NDArray[np.uint8]
    rows: NDArray[np.int32]
    slots: NDArray[np.int32]
    nodes: int
    bins: BinMatrix
    features: NDArray[np.int32]

    def run(self) -> CipherSums:
        return sum_bins(
            from_wire(self.ciphertexts[self.rows], self.key.modulus),
            self.bins.codes[np.ix_(self.rows, self.features)],
            self.slots,
            nodes=self.nodes,
            codes=int(self.bins.cuts.n_bins.max(initial=0)) + 1,
            modulus=self.key.modulus,
        )


@dataclass(frozen=True, eq=False)
class _Merge:
    key: PublicKey
    parts: Sequence[CipherSums]

    def run(self) -> CipherSums:
        return merge(self.parts, self.key.modulus)


@dataclass(frozen=True, eq=False)
class _Subtract:
    key: PublicKey
    parent: CipherSums
    sibling: CipherSums

    def run(self) -> CipherSums:
        return subtract(self.parent, self.sibling, self.key.modulus)


@dataclass(frozen=True, eq=False)
class _ShowCandidates:
    """A node's candidates in their opaque order: packed, re-randomised, ready to travel."""

    key: PublicKey
    noise_base: mpz
    layout: SlotLayout
    sums: CipherSums
    features: NDArray[np.int32]
    n_bins: NDArray[np.int32]
    candidates: CandidateTable
    order: NDArray[np.int64]

    def run(self) -> NDArray[np.uint8]:
        shown = self._left_sums()[self.order].tolist()
        packed = self.layout.pack(shown, self.key.modulus)
        return to_wire(self.key.rerandomise(packed, self.noise_base), self.key.modulus)

    def _left_sums(self) -> CipherSums:
        """What goes left per candidate, in canonical order: ``CandidateTable.left_sums``."""
        runs: list[NDArray[np.intp]] = []
        places = np.empty(len(self.candidates), dtype=np.intp)
        done = 0
        for row, feature in enumerate(self.features.tolist()):
            first_cell = row * self.sums.shape[1]
            missing_cell = first_cell + int(self.n_bins[feature])
            for default_left in (False, True):
                chosen = np.flatnonzero(
                    (self.candidates.feature == feature)
                    & (self.candidates.default_left == default_left)
                )
                if not len(chosen):
                    continue
                # Backward candidates take the missing values first, and only them at bin -1.
                cells = first_cell + np.arange(len(chosen) - default_left)
                runs.append(np.append([missing_cell], cells) if default_left else cells)
                places[chosen] = done + self.candidates.bin[chosen] + default_left
                done += len(chosen)
        return cumulate(self.sums, runs, self.key.modulus)[places]


class _Passive(PassiveHalf):
    def __init__(self, key: PublicKey, bins: BinMatrix, parallelism: int) -> None:
        self._key = key
        self._bins = bins
        self._parallelism = parallelism
        self._noise_base = key.draw_noise_base()
        self.forget_tree()

    def forget_tree(self) -> None:
        self._ciphertexts = np.empty((0, width(self._key.modulus)), dtype=np.uint8)
        self._carried = np.zeros(self._bins.n_rows, dtype=np.bool_)
        self._layout: SlotLayout | None = None
        self._sums: dict[int, CipherSums] = {}

    def receive(self, tree: int, piece: BroadcastPiece) -> Plan[None]:
        layout = self._checked_layout(piece)
        if self._layout is None:
            self._layout = layout
            shape = (self._bins.n_rows, width(self._key.modulus))
            self._ciphertexts = np.zeros(shape, dtype=np.uint8)
        elif self._layout != layout:
            raise MessageError("the pieces of a gradient broadcast differ in their slot layout")
        self._ciphertexts[piece.rows] = piece.values["ciphertexts"]
        self._carried[piece.rows] = True
        return
        yield

    def _checked_layout(self, piece: BroadcastPiece) -> SlotLayout:
        values, bits = piece.values, self._key.plaintext_bits
        ciphertexts, h, slot = (values.get(key) for key in ("ciphertexts", "h", "slot"))
        if (
            not isinstance(ciphertexts, np.ndarray)
            or ciphertexts.dtype != np.uint8
            or ciphertexts.shape != (len(piece.rows), width(self._key.modulus))
            or not isinstance(h, int)
            or not isinstance(slot, int)
            or not 0 < h < slot <= bits
        ):
            raise MessageError("a gradient broadcast that does not fit the key")
        return SlotLayout(h, slot, bits // slot)

    def answer(self, queries: Sequence[Query]) -> Plan[None]:
        if self._layout is None:
            raise MessageError("sums were asked for before any gradient came")
        layout, n_bins = self._layout, self._bins.cuts.n_bins
        features = np.unique(queries[0].candidates.feature)
        rows = {query.node: query.rows[self._carried[query.rows]] for query in queries}
        wave = plan_wave({node: len(held) for node, held in rows.items()}, self._sums)
        yield from self._sum([rows[node] for node in wave.summed], wave.summed, features)
        subtracted = yield Compute(
            [
                _Subtract(self._key, self._sums[node // 2], self._sums[sibling])
                for node, sibling in wave.subtracted
            ]
        )
        self._sums |= zip((node for node, _ in wave.subtracted), subtracted, strict=True)
        shown = yield Compute(
            [
                _ShowCandidates(
                    self._key,
                    self._noise_base,
                    layout,
                    self._sums[query.node],
                    features,
                    n_bins,
                    query.candidates,
                    query.order,
                )
                for query in queries
            ]
        )
        for query, packed in zip(queries, shown, strict=True):
            yield Reply(query.node, self._pieces(packed, len(query.order), layout.capacity))

    def _sum(
        self, rows: Sequence[NDArray[np.int32]], nodes: Sequence[int], features: NDArray[np.int32]
    ) -> Plan[None]:
        """Sum parts of the rows, and then the parts: features that stay together sum jointly."""
        together = np.concatenate(rows)
        slots = np.repeat(np.arange(len(rows), dtype=np.int32), [len(each) for each in rows])
        parts = yield Compute(
            [
                _SumRows(
                    self._key,
                    self._ciphertexts,
                    together[part],
                    slots[part],
                    len(rows),
                    self._bins,
                    features,
                )
                for part in np.array_split(np.arange(len(together)), self._parallelism)
            ]
        )
        merged = yield Compute(
            [_Merge(self._key, [part[slot] for part in parts]) for slot in range(len(nodes))]
        )
        self._sums |= zip(nodes, merged, strict=True)

    def _pieces(self, packed: NDArray[np.uint8], count: int, capacity: int) -> list[Values]:
        most = PIECE_BYTES // packed.shape[1]
        return [
            {
                "packed": packed[start : start + most],
                "count": min(count - start * capacity, most * capacity),
            }
            for start in range(0, max(len(packed), 1), most)
        ]
