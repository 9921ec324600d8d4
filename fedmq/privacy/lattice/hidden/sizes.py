"""How much travels about a level, in all parcels together?"""

from __future__ import annotations

from fedmq.privacy.garbling.half_gates import TABLE_BYTES
from fedmq.privacy.lattice.hidden.chain import link_schedule, owner_bits
from fedmq.privacy.lattice.hidden.gain_circuit import gain_schedule
from fedmq.privacy.lattice.hidden.level import Level
from fedmq.privacy.lattice.hidden.parcels import extended_bytes
from fedmq.privacy.lattice.hidden.tournament import match_schedule
from fedmq.privacy.oblivious_transfer.hashing import BLOCK_BYTES

__all__ = ["evaluator_bytes", "garbler_bytes"]

_WORD_BYTES = 8


def evaluator_bytes(level: Level) -> int:
    """What the label holder sends: choices, and its claim."""
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


def garbler_bytes(level: Level) -> int:
    """What the feature holder sends: numbers of transfers, labels, tables and colours."""
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


def _rounds(level: Level) -> int:
    """Of the tournament: bits of an index."""
    return max(level.candidates - 1, 0).bit_length()
