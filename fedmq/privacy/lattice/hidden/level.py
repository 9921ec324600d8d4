"""How much of everything does a level of nodes take? Transfers, labels, and tweaks of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from fedmq.privacy.contest import ALONE, Place
from fedmq.privacy.garbling.half_gates import Labels
from fedmq.privacy.lattice.hidden.chain import taken_bits
from fedmq.privacy.lattice.hidden.field import Field
from fedmq.privacy.lattice.hidden.gain_circuit import candidate_inputs, node_input_bits
from fedmq.privacy.oblivious_transfer.tweaks import Tweaks

__all__ = ["Level", "LevelTweaks", "named_labels"]

_INSTANCES_AT_ONCE = 160  # of the gain circuit, at most: their labels fit into a cache


@dataclass(frozen=True, slots=True)
class Level:
    """So many ``nodes`` with as many ``candidates`` each, at least one of both.

    ``place`` is that of the feature holder among those of the session.
    """

    field: Field
    nodes: int
    candidates: int
    place: Place = ALONE

    @property
    def instances(self) -> int:
        """Of the gain circuit."""
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
        """Of the inputs that each party has of a candidate."""
        return candidate_inputs(self.field)

    @property
    def node_bits(self) -> Mapping[str, int]:
        """Of the inputs that the label holder has of a node."""
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
        """Of the best so far, where the label holder does not know it."""
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

        ``own`` are labels of the feature holder's bits, of the batch alone; ``other`` those of the
        label holder's, and ``by_node`` those of its nodes, of all instances and nodes.
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
    def take(cls, session: Tweaks, level: Level) -> LevelTweaks:
        """Those that a level uses, from the session's; a level that begins anew takes others."""
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
