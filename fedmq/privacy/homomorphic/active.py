"""The active party's half of the encrypting engines: it encrypts gradients and decrypts sums.

Where sums are hidden it decrypts shares of them (`AdditiveActiveShares`), which circuits compare.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray

from fedmq.boosting.gradients import RESOLUTION_BITS, Gradients
from fedmq.boosting.splits import ROOT, parent, sibling
from fedmq.computation import Computation, computation
from fedmq.errors import ConfigError, MessageError
from fedmq.privacy.engine import (
    ActiveHalf,
    Answer,
    AskedNode,
    BroadcastPiece,
    HiddenSums,
    SizeLimit,
    Sums,
)
from fedmq.privacy.hidden_sums.shares import ActiveShares, Field, Shares, sums_field
from fedmq.privacy.homomorphic import HIDDEN_VERSION
from fedmq.privacy.homomorphic.instructions import LANES, eight_times, is_available
from fedmq.privacy.homomorphic.packing import MOST_SHARED, SlotLayout
from fedmq.privacy.homomorphic.residues import from_wire, to_wire, width
from fedmq.privacy.homomorphic.scheme import PrivateKey
from fedmq.privacy.plan import PIECE_BYTES, Compute, Exchange, Plan, Values
from fedmq.privacy.random_stream import fresh_seed

__all__ = ["AdditiveActive", "AdditiveActiveShares"]

_ROW_BYTES = 4
_MOST_ROWS_PER_PIECE = 2048  # small keys would make pieces too large to share out
# Noise is made ahead in small batches, since a decryption may wait for a batch. It takes at most
# some 100 MB.
_NOISE_AT_ONCE = 256
_MOST_NOISE = 200_000

# The time to pack and decrypt a ciphertext relative to encrypting one, measured at 2048 bits, and
# the part of the time for products that packing and decrypting eight at once saves.
_PACKING = 130
_SAVED_BY_EIGHT = 0.7

_FEWEST_AT_ONCE = (
    8  # ciphertexts; decrypting fewer here is faster than sending them to another process
)


# There are many pieces, and no party waits for one as parties wait for a sum.
@computation("_Encrypt", urgency=-1)
def _encrypt(
    key: PrivateKey, layout: SlotLayout, pairs: NDArray[np.int64], noise: NDArray[np.uint8]
) -> NDArray[np.uint8]:
    several = layout.outputs > 1
    g, h = (pairs[:, turn::2] if several else pairs[:, turn] for turn in (0, 1))
    plaintexts = layout.join(g, h)
    modulus = key.public.modulus
    return to_wire(key.encrypt(plaintexts, from_wire(noise, modulus)), modulus)


# For the next tree: work for the current one goes first.
@computation("_DrawNoise", urgency=-2)
def _draw_noise(key: PrivateKey, count: int) -> NDArray[np.uint8]:
    return to_wire(key.draw_noise(count), key.public.modulus)


@computation("_EncryptOne")
def _encrypt_one(key: PrivateKey) -> mpz:
    """A ciphertext of 1, by which passive parties add plaintexts."""
    [one] = key.encrypt([1])
    return one


@computation("_Decrypt")
def _decrypt(
    key: PrivateKey, layout: SlotLayout, packed: NDArray[np.uint8], count: int, vectors: bool
) -> NDArray[np.int64] | Shares:
    """The left sums of candidates, or shares of them if the layout hides sums."""
    plaintexts = key.decrypt(from_wire(packed, key.public.modulus), vectors=vectors)
    if layout.hidden:
        return layout.unpack_shares(plaintexts, count)
    sums = np.stack(layout.unpack(plaintexts, count), axis=-1)
    return sums.reshape(count, 2 * layout.outputs)


class AdditiveActive(ActiveHalf):
    """``make_key`` makes a :class:`PrivateKey`; `AdditiveEngine` explains the settings."""

    def __init__(
        self,
        make_key: Computation,
        parallelism: int,
        *,
        pack_sums: bool = True,
        noise_ahead: bool = True,
        share_ciphertexts: bool = True,
        vectors: bool = True,
    ) -> None:
        self._make_key = make_key
        self._parallelism = parallelism
        self._pack_sums = pack_sums
        self._noise_ahead = noise_ahead
        self._share_ciphertexts = share_ciphertexts
        self._vectors = vectors
        self._sums_of_tree = 0
        self._noise: list[NDArray[np.uint8]] = []
        self._noise_coming = 0
        self._carried = 0
        self._key: PrivateKey
        self._layout: SlotLayout

    def open(self) -> Plan[Values]:
        [self._key] = yield Compute([self._make_key])
        public = self._key.public
        return {
            "n": _to_bytes(public.n),
            "noise": _to_bytes(public.noise_base),
            "noise_bits": public.noise_bits,
        }

    def broadcast(self, gradients: Gradients) -> Sequence[Plan[BroadcastPiece]]:
        public = self._key.public
        rows = np.flatnonzero(gradients.carried).astype(np.uint32)
        # A bound that holds for any gradients, so that the public layout discloses nothing of them.
        bound = max(1, len(rows)) << gradients.scale.value_bits
        self._layout = self._best_layout(bound, len(rows), gradients)
        size = min(_MOST_ROWS_PER_PIECE, PIECE_BYTES // (width(public.modulus) + _ROW_BYTES))
        # Pieces are whole batches of noise, so that no noise made ahead is wasted.
        size = size // _NOISE_AT_ONCE * _NOISE_AT_ONCE or size
        size = max(1, size * self._layout.rows // self._layout.parts)
        pieces = [rows[start : start + size] for start in range(0, max(len(rows), 1), size)]
        self._carried = self._ciphertexts(len(rows))
        return [self._piece(piece, gradients.pairs) for piece in pieces]

    def _ciphertexts(self, rows: int) -> int:
        """The number of broadcast ciphertexts that hold ``rows`` rows."""
        return -(-rows // self._layout.rows) * self._layout.parts

    def _best_layout(self, bound: int, rows: int, gradients: Gradients) -> SlotLayout:
        """The layout in which a tree is estimated to take the least time.

        Rows that share a ciphertext save encryptions, but take room from sums. The number of sums
        is estimated from the previous tree.
        """
        public = self._key.public
        outputs = gradients.params.vector_outputs
        single = self._tightest(bound, 1, outputs)
        # Before the first tree, assume that every node is asked for one column of full bins.
        nodes = 2 << gradients.params.depth_limit
        if gradients.params.max_leaves:
            nodes = min(nodes, 2 * gradients.params.max_leaves)
        guess = gradients.params.max_bin * nodes
        sums, self._sums_of_tree = self._sums_of_tree or guess, 0
        if not self._pack_sums:
            return replace(single, capacity=1)
        if (
            gradients.params.gradient_bits is None
            or not self._share_ciphertexts
            or not public.adds_plaintexts
            or outputs > 1
        ):
            return single
        layouts = [single]
        for shared in range(2, MOST_SHARED + 1):
            try:
                layouts.append(self._tightest(bound, shared, outputs))
            except ConfigError:
                break
        # Assume that other parties' processors are like this one.
        faster = _SAVED_BY_EIGHT * LANES / eight_times()
        packing = _PACKING / (faster if self._vectors and is_available() else 1)
        return min(
            layouts,
            key=lambda layout: -(-rows // layout.rows) + packing * layout.packed_count(sums),
        )

    def _tightest(self, bound: int, rows: int, outputs: int) -> SlotLayout:
        """The layout for sums up to ``bound``, with so many ``rows`` in a ciphertext."""
        bits = self._key.public.plaintext_bits
        return SlotLayout.for_sums(bound, bound, bits, rows, outputs)

    def _piece(self, rows: NDArray[np.uint32], pairs: NDArray[np.int64]) -> Plan[BroadcastPiece]:
        layout = self._layout
        noise = self._take_noise(self._ciphertexts(len(rows)))
        step = _encrypt.bind(self._key, layout, pairs[rows], noise)
        [ciphertexts] = yield Compute([step])
        slots = {"h": layout.h_bits, "slot": layout.slot_bits, "capacity": layout.capacity}
        if layout.rows > 1:
            slots["rows"] = layout.rows
        return BroadcastPiece(rows, {"ciphertexts": ciphertexts, **slots})

    def _take_noise(self, rows: int) -> NDArray[np.uint8]:
        """Remove and return noise made ahead, for at most ``rows`` rows."""
        taken = [np.empty((0, width(self._key.public.modulus)), np.uint8)]
        while self._noise and rows >= len(self._noise[-1]):
            taken.append(self._noise.pop())
            rows -= len(taken[-1])
        return np.concatenate(taken)

    def prepare(self) -> Sequence[Plan[None]]:
        """Make noise for as many rows as the last broadcast had."""
        if not self._noise_ahead:
            return ()
        stock = sum(map(len, self._noise)) + self._noise_coming
        batches = (min(self._carried, _MOST_NOISE) - stock) // _NOISE_AT_ONCE
        return [self._draw_noise() for _ in range(batches)]

    def _draw_noise(self) -> Plan[None]:
        self._noise_coming += _NOISE_AT_ONCE
        [noise] = yield Compute([_draw_noise.bind(self._key, _NOISE_AT_ONCE)])
        self._noise_coming -= _NOISE_AT_ONCE
        self._noise.append(noise)

    def largest_reply(self, candidates: int, rows: int) -> SizeLimit:
        size = width(self._key.public.modulus)
        most = self._layout.whole_parts(PIECE_BYTES // size)
        return SizeLimit.of(self._layout.packed_count(candidates), size, most)

    def ask(self, peer: str, asked: AskedNode) -> Plan[Answer]:
        pieces = yield Exchange()
        return Sums((yield from self._decrypted(pieces)))

    def _decrypted(self, pieces: Sequence[Values]) -> Plan[NDArray[Any]]:
        """What each candidate's ciphertext holds, as `_Decrypt` reads it."""
        try:
            steps = [
                step
                for piece in pieces
                for step in self._decryptions(piece["packed"], int(piece["count"]))
            ]
        except (KeyError, TypeError, ValueError):
            raise MessageError("sums that are not packed as they should be") from None
        decrypted = np.concatenate((yield Compute(steps)))
        self._sums_of_tree += len(decrypted)
        return decrypted

    def _decryptions(self, packed: NDArray[np.uint8], count: int) -> list[Computation]:
        """Shares of a reply for each core; the last takes what is left of ``count``."""
        parts = self._layout.parts
        share = max(1, -(-len(packed) // self._parallelism))
        # Shares are whole sums and multiples of eight: eight take the time of one.
        whole = _FEWEST_AT_ONCE * parts
        share = -(-share // whole) * whole
        sums = share // parts * self._layout.capacity
        last = max(0, len(packed) - 1) // share
        return [
            _decrypt.bind(
                self._key,
                self._layout,
                packed[part * share : (part + 1) * share],
                min(sums, count - part * sums) if part < last else count - part * sums,
                self._vectors,
            )
            for part in range(last + 1)
        ]


class AdditiveActiveShares(AdditiveActive, ActiveShares):
    """The half that decrypts its shares of sums."""

    def __init__(self, make_key: Computation, parallelism: int, **settings: bool) -> None:
        super().__init__(make_key, parallelism, **settings)
        self._seed = fresh_seed()
        self._field: Field
        self._shares: dict[tuple[str, int], Shares] = {}
        self._rests: dict[tuple[str, int], int] = {}
        """Candidates of nodes whose shares are their parent's less their sibling's."""

    @property
    def public_seed(self) -> bytes:
        return self._seed

    @property
    def field(self) -> Field:
        return self._field

    def start_session(
        self,
        training: NDArray[np.bool_],
        value_bits: int = RESOLUTION_BITS,
        outputs: int = 1,
    ) -> None:
        super().start_session(training, value_bits, outputs)
        self._field = sums_field(training, value_bits)

    def open(self) -> Plan[Values]:
        public = yield from super().open()
        public["seed"] = np.frombuffer(self._seed, np.uint8)
        public["version"] = HIDDEN_VERSION
        if not self._key.public.adds_plaintexts:
            [one] = yield Compute([_encrypt_one.bind(self._key)])
            public["one"] = _to_bytes(one)
        return public

    def broadcast(self, gradients: Gradients) -> Sequence[Plan[BroadcastPiece]]:
        self._shares.clear()
        self._rests.clear()
        return super().broadcast(gradients)

    def _tightest(self, bound: int, rows: int, outputs: int) -> SlotLayout:
        return SlotLayout.for_shares(self._field.bits, self._key.public.plaintext_bits, rows)

    def ask(self, peer: str, asked: AskedNode) -> Plan[Answer]:
        pieces = yield Exchange()
        if asked.node > ROOT and pieces and set(pieces[0]) == {"rest"}:
            return self._rest(peer, asked.node, pieces)
        shares = yield from self._decrypted(pieces)
        self._shares[peer, asked.node] = shares
        return HiddenSums(len(shares))

    def _rest(self, peer: str, node: int, pieces: Sequence[Values]) -> HiddenSums:
        """The answer about a node whose shares follow once its sibling's are there."""
        candidates, above = pieces[0]["rest"], (peer, parent(node))
        known = self._rests.get(above, len(self._shares[above]) if above in self._shares else None)
        if len(pieces) != 1 or not isinstance(candidates, int) or candidates != known:
            raise MessageError(f"the rest of node {parent(node)}, of other candidates than it has")
        self._rests[peer, node] = candidates
        return HiddenSums(candidates)

    def shares(self, peer: str, node: int) -> Shares:
        if (peer, node) not in self._shares:
            above, beside = self.shares(peer, parent(node)), self._shares.get((peer, sibling(node)))
            if beside is None or len(beside) != len(above):
                raise MessageError(f"the rest of node {parent(node)}, without its other part")
            self._shares[peer, node] = self._field.less(above, beside)
        return self._shares[peer, node]


def _to_bytes(number: mpz) -> NDArray[np.uint8]:
    return np.frombuffer(number.to_bytes(-(-number.bit_length() // 8), "little"), np.uint8)
