"""How much of everything does a level of nodes take, and in which parcels does it travel?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fedmq.errors import MessageError
from fedmq.privacy.engine import ALONE, Place
from fedmq.privacy.garbling.half_gates import TABLE_BYTES, Labels
from fedmq.privacy.lattice.hidden.circuits import (
    candidate_inputs,
    gain_schedule,
    link_schedule,
    match_schedule,
    node_input_bits,
    owner_bits,
    taken_bits,
)
from fedmq.privacy.lattice.hidden.shares import Field
from fedmq.privacy.oblivious_transfer.base_transfers import TRANSFERS
from fedmq.privacy.oblivious_transfer.extension import BLOCK_BYTES, HASH_BYTES, Extended, Tweaks
from fedmq.privacy.plan import LARGEST_PIECE_BYTES, Values

__all__ = [
    "HiddenLevel",
    "LevelTweaks",
    "Unpacked",
    "bits_in",
    "evaluator_bytes",
    "extended_bytes",
    "extensions_in",
    "extensions_of",
    "garbler_bytes",
    "named_labels",
    "pieces_of",
]

_INSTANCES_AT_ONCE = 160  # of the gain circuit, at most: their labels fit into a cache


@dataclass(frozen=True, slots=True)
class HiddenLevel:
    """A level of ``nodes`` nodes with ``candidates`` candidates each, at least one of both.

    ``place`` is that of the passive party among those of the session.
    """

    field: Field
    nodes: int
    candidates: int
    place: Place = ALONE

    @property
    def instances(self) -> int:
        """Instances of the gain circuit."""
        return self.nodes * self.candidates

    @property
    def carry_transfers(self) -> int:
        return 2 * self.instances

    @property
    def share_transfers(self) -> int:
        return (self.field.square_bits - 1) * self.instances

    @property
    def total_transfers(self) -> int:
        return (self.field.bits - 1) * self.nodes

    @property
    def candidate_bits(self) -> Mapping[str, int]:
        """Bits of each party's inputs of a candidate."""
        return candidate_inputs(self.field)

    @property
    def node_bits(self) -> Mapping[str, int]:
        """Bits of the active party's inputs of a node."""
        bits = node_input_bits(self.field)
        return bits | taken_bits(self.place) if self.place.is_first else bits

    @property
    def candidate_labels(self) -> int:
        return sum(self.candidate_bits.values()) * self.instances

    @property
    def node_labels(self) -> int:
        return sum(self.node_bits.values()) * self.nodes

    @property
    def taken_labels(self) -> int:
        """Labels of the best so far, if the active party does not know it."""
        return 0 if self.place.is_first else sum(taken_bits(self.place).values()) * self.nodes

    def batches(self) -> Iterator[slice]:
        """Instances of the gain circuit that are garbled together, about as many each time."""
        parts = -(-self.instances // _INSTANCES_AT_ONCE)
        for part in range(parts):
            yield slice(self.instances * part // parts, self.instances * (part + 1) // parts)

    def gain_inputs(
        self, batch: slice, own: Labels, other: Labels, by_node: Mapping[str, Labels]
    ) -> dict[str, Labels]:
        """Inputs of the gain circuit by name, of the instances of ``batch``.

        ``own`` are labels of the passive party's bits, of the batch alone; ``other`` those of the
        active party's, and ``by_node`` those of its nodes, of all instances and nodes.
        """
        node = np.arange(batch.start, batch.stop) // self.candidates
        return {
            **named_labels(own, self.candidate_bits, "own "),
            **named_labels(other[:, batch], self.candidate_bits, "other "),
            **{name: labels[:, node] for name, labels in by_node.items()},
        }


@dataclass(frozen=True, slots=True, eq=False)
class LevelTweaks:
    """Tweaks for each use, the same on both sides: extensions, what they transfer, and circuits."""

    carry_rows: Tweaks
    carries: Tweaks
    share_rows: Tweaks
    shares: Tweaks
    total_rows: Tweaks
    totals: Tweaks
    candidate_rows: Tweaks
    node_rows: Tweaks
    taken_rows: Tweaks
    circuits: Tweaks

    @classmethod
    def take(cls, session: Tweaks, level: HiddenLevel) -> LevelTweaks:
        """Take a level's tweaks from the session's; a restarted level takes new ones."""
        counts = {
            "carry_rows": level.carry_transfers,
            "carries": level.carry_transfers,
            "share_rows": level.share_transfers,
            "shares": level.share_transfers,
            "total_rows": level.total_transfers,
            "totals": level.total_transfers,
            "candidate_rows": level.candidate_labels,
            "node_rows": level.node_labels,
            "taken_rows": level.taken_labels,
            # A gain for each candidate, a match for each but one of a node, and its link.
            "circuits": 2 * level.instances,
        }
        return cls(**{name: session.take(count) for name, count in counts.items()})


def named_labels(labels: Labels, bits: Mapping[str, int], prefix: str = "") -> dict[str, Labels]:
    """Labels (all bits, ...) as inputs by name."""
    parts, start = {}, 0
    for name, count in bits.items():
        parts[prefix + name] = labels[start : start + count]
        start += count
    return parts


# How do arrays travel from one half to the other? One after the other, cut into pieces.
#
# Both halves know which arrays come next, and of which shape: nothing but their bytes travels.


def pieces_of(*arrays: NDArray[Any]) -> list[Values]:
    """A parcel of ``arrays``: at least one piece, of `LARGEST_PIECE_BYTES` at most."""
    parts = [np.ascontiguousarray(array).reshape(-1).view(np.uint8) for array in arrays]
    joined = parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.uint8), *parts])
    return [
        {"bytes": joined[start : start + LARGEST_PIECE_BYTES]}
        for start in range(0, max(1, len(joined)), LARGEST_PIECE_BYTES)
    ]


class Unpacked:
    """The arrays of a parcel, one after the other.

    Raises:
        MessageError: ``parcel`` has other pieces than bytes.
    """

    def __init__(self, parcel: Sequence[Values] | NDArray[np.uint64]) -> None:
        self._taken = 0
        if isinstance(parcel, np.ndarray):
            self._data = parcel.view(np.uint8)
            return
        parts = [np.empty(0, np.uint8)]
        for piece in parcel:
            part = piece.get("bytes")
            if len(piece) != 1 or not isinstance(part, np.ndarray) or part.dtype != np.uint8:
                raise MessageError("a parcel of other pieces than bytes")
            parts.append(part.reshape(-1))
        self._data = np.concatenate(parts)

    def take(self, dtype: DTypeLike, shape: Sequence[int]) -> NDArray[Any]:
        """The next array. Raises `MessageError` if it is missing."""
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        part = self._data[self._taken : self._taken + size]
        if len(part) < size:
            raise MessageError(f"a parcel of {len(self._data):,} bytes, which is too short")
        self._taken += size
        return np.frombuffer(part, dtype).reshape(shape)

    def end(self) -> None:
        """Raise `MessageError` unless all bytes are taken."""
        if self._taken < len(self._data):
            raise MessageError(f"a parcel of {len(self._data):,} bytes, which is too long")


def extensions_of(*extensions: Extended) -> Iterator[NDArray[np.uint8]]:
    """The arrays that the receiver of transfers sends."""
    for sent in extensions:
        yield from (sent.columns, sent.choice_hash, sent.column_hashes)


def extensions_in(parcel: Unpacked, *counts: int) -> list[Extended]:
    """The extensions of a parcel, of ``counts`` transfers each; the parcel holds nothing else."""
    found = [
        Extended(
            parcel.take(np.uint8, (TRANSFERS, -(-count // 8) + HASH_BYTES)),
            parcel.take(np.uint8, (HASH_BYTES,)),
            parcel.take(np.uint8, (TRANSFERS, HASH_BYTES)),
        )
        for count in counts
    ]
    parcel.end()
    return found


def bits_in(parcel: Unpacked, shape: tuple[int, int]) -> NDArray[np.bool_]:
    """The bits of a parcel of `numpy.packbits`, of this shape; the parcel holds nothing else."""
    count = shape[0] * shape[1]
    packed = parcel.take(np.uint8, (-(-count // 8),))
    parcel.end()
    return np.unpackbits(packed, count=count).reshape(shape).astype(np.bool_)


def extended_bytes(count: int) -> int:
    """Bytes of an extension of ``count`` transfers."""
    return TRANSFERS * (-(-count // 8) + 2 * HASH_BYTES) + HASH_BYTES


# How much travels about a level, in all parcels together?


_WORD_BYTES = 8


def evaluator_bytes(level: HiddenLevel) -> int:
    """Bytes that the active party sends: choices, and its claim."""
    transfers = (
        level.carry_transfers,
        level.share_transfers,
        level.total_transfers,
        level.candidate_labels,
        level.node_labels,
        level.taken_labels,
    )
    claim = (1 + _rounds(level)) * level.nodes * BLOCK_BYTES
    return sum(extended_bytes(count) for count in transfers if count) + claim


def garbler_bytes(level: HiddenLevel) -> int:
    """Bytes that the passive party sends: numbers of transfers, labels, tables and colours."""
    numbers = level.carry_transfers + level.share_transfers
    numbers += level.total_transfers * level.candidates
    ands = gain_schedule(level.field).ands * level.instances
    left = level.candidates
    for bits in range(_rounds(level)):
        ands += match_schedule(bits).ands * (left // 2) * level.nodes
        left -= left // 2
    ands += link_schedule(level.place, _rounds(level)).ands * level.nodes
    colours = owner_bits(level.place.number) * level.nodes * _WORD_BYTES
    return (numbers + level.candidate_labels) * BLOCK_BYTES + ands * TABLE_BYTES + colours


def _rounds(level: HiddenLevel) -> int:
    """Rounds of the tournament: bits of an index."""
    return max(level.candidates - 1, 0).bit_length()
