"""How much of everything does a level of nodes take?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedmq.privacy.engine import ALONE, Place
from fedmq.privacy.garbling.half_gates import TABLE_BYTES, Labels
from fedmq.privacy.garbling.machine_gates import is_available
from fedmq.privacy.hidden_sums.category_order import SetColumns
from fedmq.privacy.hidden_sums.category_sets import SetLevel
from fedmq.privacy.hidden_sums.circuits import (
    GainCircuit,
    Run,
    link_schedule,
    match_schedule,
    owner_bits,
    taken_bits,
)
from fedmq.privacy.hidden_sums.exact import Gains, RankEvaluator, RankGarbler, Ranking
from fedmq.privacy.hidden_sums.filter import MOST_SLOTS, SLOTS, FilterLevel, Precision
from fedmq.privacy.hidden_sums.filtering import (
    FilterEvaluator,
    FilterGarbler,
    Groups,
)
from fedmq.privacy.hidden_sums.quotient import (
    FAR_FILTER_ANDS,
    FILTER_ANDS,
    RANKED_ANDS,
    candidate_in_slot,
    pick_schedule,
)
from fedmq.privacy.hidden_sums.rounds import in_blocks
from fedmq.privacy.hidden_sums.shares import Field, Shares
from fedmq.privacy.hidden_sums.sides import extended_bytes, finished
from fedmq.privacy.oblivious_transfer.extension import (
    BLOCK_BYTES,
    ExtensionReceiver,
    ExtensionSender,
    Permutation,
    Tweaks,
    turned_bytes,
)

__all__ = [
    "LEVEL_TWEAKS",
    "BackTransfers",
    "HiddenLevel",
    "Part",
    "Parts",
    "claimed_labels",
    "evaluator_bytes",
    "garbler_bytes",
    "in_candidates",
    "in_slots",
    "joined",
    "of_fitting",
    "of_some",
    "with_slots",
]

_LEAST_CANDIDATES = 2 * SLOTS  # of which the filter saves something
_BRIEF = 1024  # candidates of all nodes together, of which a step takes a few milliseconds

LEVEL_TWEAKS = 1 << 44
"""More than any level takes, and enough for a million levels, or for their copies."""


@dataclass(frozen=True, slots=True)
class HiddenLevel:
    """A level of ``nodes`` nodes with ``candidates`` candidates each, at least one of both.

    ``circuit`` is that of a candidate's gain. ``place`` is that of the passive party among those of
    the session. ``columns``: those that are split by sets, which are among the candidates in place
    of categories; None without any.
    """

    circuit: GainCircuit
    nodes: int
    candidates: int
    place: Place = ALONE
    columns: SetColumns | None = None

    @classmethod
    def of(
        cls,
        circuit: GainCircuit,
        nodes: int,
        shown: int,
        place: Place,
        columns: SetColumns | None = None,
    ) -> HiddenLevel:
        """The level of nodes in which so many candidates are ``shown``."""
        candidates = shown if columns is None else len(columns.scanned)
        return cls(circuit, nodes, candidates, place, columns)

    @property
    def field(self) -> Field:
        return self.circuit.field

    @property
    def sets(self) -> SetLevel | None:
        """The level of columns that are split by sets."""
        if self.columns is None:
            return None
        return SetLevel(self.circuit, self.nodes, self.columns)

    @property
    def filters(self) -> bool:
        """Whether the filter holds, and candidates are so many that it is worth its cost."""
        return self.circuit.filters and self.candidates >= _LEAST_CANDIDATES

    @property
    def is_brief(self) -> bool:
        """Whether a half takes longer to another process and back than a step of it.

        Exact gains, the order of categories and gates in arrays take longer themselves.
        """
        small = self.nodes * self.candidates <= _BRIEF
        return small and self.filters and self.columns is None and is_available()

    def filter(self, nodes: int) -> FilterLevel:
        """The filter over some of the nodes."""
        precision = Precision.of_filter(self.field, far=self.circuit.far)
        return FilterLevel(precision, nodes, self.candidates)

    def ranking(self, nodes: int, slots: int) -> Ranking:
        """The ranks of the slots' candidates in some of the nodes."""
        precision = Precision.of_ranks(self.field, far=self.circuit.far)
        return Ranking(self.field, precision, nodes, slots, self.is_alone)

    @property
    def is_alone(self) -> bool:
        """Whether no other passive party needs to know the best candidate's gain."""
        return self.place.parties == 1

    def gains(self, nodes: int, candidates: int, *, given: bool = False) -> Gains:
        """The gains of some candidates in some of the nodes."""
        return Gains(self.circuit, nodes, candidates, self.place.is_first, given)

    @property
    def taken_labels(self) -> int:
        """Labels of the best so far, if the active party does not know it."""
        return 0 if self.place.is_first else sum(taken_bits(self.place).values()) * self.nodes

    @property
    def index_bits(self) -> int:
        """Bits of a candidate's number."""
        return max(self.candidates - 1, 0).bit_length()

    @staticmethod
    def take(session: Tweaks, copies: int = 0) -> Tweaks:
        """A level's tweaks, of the session's; a restarted level takes new ones.

        With ``copies``, as many blocks more, behind the first one.
        """
        return session.take((1 + copies) * LEVEL_TWEAKS)


T = TypeVar("T", ExtensionReceiver, ExtensionSender)


@dataclass(frozen=True, slots=True, eq=False)
class BackTransfers(Generic[T]):
    """Transfers in which the passive party chooses: one party's end of them.

    Permutations and tweaks are others than those of circuits.
    """

    party: T
    permutation: Permutation
    tweaks: Tweaks

    def of_level(self, level: HiddenLevel) -> BackTransfers[T]:
        """Those of a level."""
        return BackTransfers(self.party, self.permutation, level.take(self.tweaks))


Part = tuple[NDArray[np.bool_], dict[str, Labels]]
"""Some nodes, bool (nodes,), and labels of their best candidates, (bits, of those, 2)."""

Parts = list[Part]


def with_slots(
    parts: Parts,
    rankings: Sequence[RankGarbler | RankEvaluator],
    slots: Sequence[tuple[NDArray[np.bool_], Shares]],
    sure: NDArray[np.bool_],
) -> Parts:
    """``parts``, of which gains of those candidates that ranks are ``sure`` of have their slots."""
    found = list(parts)
    for half, (held, _) in zip(rankings, slots, strict=False):
        for number, (nodes, labels) in enumerate(parts):
            if np.array_equal(nodes, held & sure):
                found[number] = (nodes, {**labels, "index": half.slot(nodes[held])})
    return found


def of_some(part: Part, nodes: NDArray[np.bool_]) -> Parts:
    """What ``part`` has of ``nodes``, bool (nodes,), if it has some."""
    held, labels = part
    here = held & nodes
    return [(here, {name: of[:, here[held]] for name, of in labels.items()})] if here.any() else []


def in_slots(
    groups: Groups, shares: Sequence[Shares], fit: NDArray[np.bool_]
) -> list[tuple[NDArray[np.bool_], Shares]]:
    """The nodes of groups that have some, bool (all nodes,), and their slots' shares."""
    return [
        (of_fitting(nodes, fit), of_slots)
        for (nodes, _), of_slots in zip(groups, shares, strict=True)
        if nodes.any()
    ]


def in_candidates(
    parts: Parts,
    filtering: FilterGarbler | FilterEvaluator,
    slots: Sequence[tuple[NDArray[np.bool_], Shares]],
    fit: NDArray[np.bool_],
    run: Run,
) -> Parts:
    """``parts`` with candidates for ``slots``, of which `in_slots` has the nodes."""
    found: Parts = []
    for nodes, labels in parts:
        best = labels
        for held, shares in slots:
            if (nodes & held).any():
                index = filtering.index(nodes[fit], shares.shape[1])
                picked = candidate_in_slot(filtering.level, index, labels["index"], run)
                best = {**labels, "index": finished(picked)}
        found.append((nodes, best))
    return found


def claimed_labels(found: Mapping[str, Labels]) -> Labels:
    """The labels of a claim, of all that a link found: (bits, nodes, 2)."""
    return np.concatenate([found[name] for name in ("won", "index", "right") if name in found])


def joined(parts: Parts) -> Part:
    """All nodes of ``parts`` as one."""
    order = np.argsort(np.concatenate([np.flatnonzero(nodes) for nodes, _ in parts]))
    labels = {
        name: np.concatenate([of[name] for _, of in parts], axis=1)[:, order]
        for name in parts[0][1]
    }
    return np.any([nodes for nodes, _ in parts], axis=0), labels


def of_fitting(found: NDArray[np.bool_], fit: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """What was ``found`` of the nodes that ``fit``, for all nodes: bool (nodes,)."""
    every = np.zeros(len(fit), np.bool_)  # arrays that have travelled may not be written to
    every[fit] = found
    return every


# How much travels about a level at most, in all parcels together? As if all nodes were crowded.


_WORD_BYTES = 8
_PADDING = 64  # bytes of bits that fill up bytes


def evaluator_bytes(level: HiddenLevel) -> int:
    """The most bytes that the active party sends: choices, tables of shares, and its claim."""
    claim = (1 + level.index_bits) * level.nodes * BLOCK_BYTES
    most = turned_bytes(level.nodes) + claim + _PADDING
    if level.sets is not None:
        most += level.sets.evaluator_bytes
    if level.taken_labels:
        most += extended_bytes(level.taken_labels) + turned_bytes(level.taken_labels)
    sizes = [
        (nodes.stop - nodes.start, block.stop - block.start)
        for nodes, block in in_blocks(level.nodes, level.candidates)
    ]
    most += _PADDING * len(sizes)
    counts = [level.gains(*size).transfers for size in sizes]
    if level.filters:
        filtering = level.filter(level.nodes)
        counts += [level.gains(level.nodes, MOST_SLOTS).transfers, filtering.index_transfers]
        counts += [
            replace(filtering, nodes=some, candidates=width).transfers for some, width in sizes
        ]
        most += filtering.table_bytes + 2 * level.nodes * BLOCK_BYTES
        if level.circuit.ranked:
            counts.append(level.ranking(level.nodes, MOST_SLOTS).transfers)
            most += level.nodes * BLOCK_BYTES
    return most + sum(extended_bytes(count) + turned_bytes(count) for count in counts)


def garbler_bytes(level: HiddenLevel) -> int:
    """The most bytes that the passive party sends: numbers of transfers, tables and colours."""
    most = _gain_bytes(level.gains(level.nodes, level.candidates))
    ands = link_schedule(level.place, level.index_bits).ands * level.nodes
    if level.sets is not None:
        most += level.sets.garbler_bytes + _PADDING
        # A doubtful node has a second link.
        ands += 2 * level.sets.set_ands(level.index_bits) * level.nodes
    most += owner_bits(level.place.number) * level.nodes * _WORD_BYTES + _PADDING
    if level.filters:
        filtering = level.filter(level.nodes)
        most += _gain_bytes(level.gains(level.nodes, MOST_SLOTS))
        most += filtering.number_bytes + filtering.table_bytes
        most += extended_bytes(filtering.index_transfers) + turned_bytes(2 * level.nodes)
        of_one = FAR_FILTER_ANDS if level.circuit.far else FILTER_ANDS
        ands += of_one * filtering.instances
        ands += pick_schedule(MOST_SLOTS, filtering.index_bits).ands * level.nodes
        if level.circuit.ranked:
            ranking = level.ranking(level.nodes, MOST_SLOTS)
            ands += RANKED_ANDS * ranking.stage.instances
            ands += link_schedule(level.place, level.index_bits).ands * level.nodes
            ands += pick_schedule(MOST_SLOTS, filtering.index_bits).ands * level.nodes
            most += owner_bits(level.place.number) * level.nodes * _WORD_BYTES
            most += ranking.level.number_bytes + turned_bytes(level.nodes)
    return most + ands * TABLE_BYTES


def _gain_bytes(gains: Gains) -> int:
    numbers = gains.carry_transfers + gains.share_transfers
    numbers += gains.total_transfers * gains.candidates
    ands = gains.circuit.most_ands * gains.instances
    left, bits = gains.candidates, 0
    while left > 1:
        ands += match_schedule(bits).ands * (left // 2) * gains.nodes
        left, bits = left - left // 2, bits + 1
    return numbers * BLOCK_BYTES + ands * TABLE_BYTES
