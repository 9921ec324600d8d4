"""Both halves of a level in one process, and all that goes between them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedmq.computation import Given
from fedmq.privacy.engine import ALONE
from fedmq.privacy.hidden_sums.category_order import SetColumns
from fedmq.privacy.hidden_sums.evaluator import LevelEvaluator
from fedmq.privacy.hidden_sums.filter import NodeFactors
from fedmq.privacy.hidden_sums.garbler import LevelGarbler
from fedmq.privacy.hidden_sums.level import BackTransfers
from fedmq.privacy.hidden_sums.steps import Learned, evaluate_level, garble_level
from fedmq.privacy.oblivious_transfer.extension import Permutation, Tweaks
from tests.privacy.hidden_sums.drawn_level import DrawnLevel
from tests.privacy.hidden_sums.driven import Parcel, Running, run_all, size
from tests.privacy.hidden_sums.filtered import factors_of
from tests.privacy.oblivious_transfer.base import extension, extension_of

PERMUTATION = Permutation(b"public")
BACK = Permutation(b"public back")
SEED = b"m" * 32
"""Of the passive party's masks."""


@dataclass(frozen=True, eq=False)
class Told:
    """What both sides learn of each node, and what the active party was sent.

    ``shares`` (nodes, candidates, 2) are its own, which follow from the answer on a lattice.
    """

    shares: np.ndarray
    seen_won: list[bool]
    won: list[bool]
    index: list[int]
    crowded: list[bool]
    overfull: list[bool]
    doubtful: list[bool]
    received: list[Parcel]
    sent: list[Parcel]

    @property
    def bytes(self) -> int:
        """All that goes both ways."""
        return sum(map(size, [*self.received, *self.sent]))


class LevelPair:
    """Levels of one session, which share their tweaks."""

    def __init__(self) -> None:
        self.receiver, self.sender = extension()
        back_receiver, back_sender = extension_of(9)
        self.tweaks = (Tweaks(), Tweaks())
        self.back = (
            BackTransfers(back_sender, BACK, Tweaks()),
            BackTransfers(back_receiver, BACK, Tweaks()),
        )

    def halves(
        self,
        level: DrawnLevel,
        to_beat: np.ndarray,
        seed: bytes = b"s" * 32,
        factors: list[NodeFactors | None] | None = None,
        masks: bytes = SEED,
        sets: SetColumns | None = None,
    ) -> tuple[LevelEvaluator, LevelGarbler]:
        """``factors``: None for those that fit. ``sets``: the columns that are split by sets."""
        circuit = level.circuit.ranked_at(ALONE)
        if sets is not None:
            circuit = replace(circuit, sets=sets.most)
        own, other = drawn_shares(level, seed)
        inputs = level.inputs(to_beat)
        if factors is None:
            factors = factors_of(level, to_beat)
        evaluator = LevelEvaluator(
            circuit,
            own,
            inputs,
            Given(factors),
            self.receiver,
            PERMUTATION,
            self.tweaks[0],
            self.back[0],
            sets=sets,
        )
        garbler = LevelGarbler(
            circuit,
            other,
            level.scanned_bits(sets),
            self.sender,
            PERMUTATION,
            self.tweaks[1],
            self.back[1],
            masks,
            sets=sets,
        )
        return evaluator, garbler

    def run(
        self,
        level: DrawnLevel,
        to_beat: np.ndarray,
        seed: bytes = b"s" * 32,
        factors: list[NodeFactors | None] | None = None,
        apart: bool = False,
    ) -> Told:
        evaluator, garbler = self.halves(level, to_beat, seed, factors)
        learned, winners, received, sent = talked(evaluator, garbler, apart)
        own, _ = drawn_shares(level, seed)
        return Told(
            own,
            learned.won.tolist(),
            [winner is not None for winner in winners],
            [winner or 0 for winner in winners],
            learned.crowded.tolist(),
            learned.overfull.tolist(),
            learned.doubtful.tolist(),
            received,
            sent,
        )


def talked(
    evaluator: LevelEvaluator, garbler: LevelGarbler, apart: bool
) -> tuple[Learned, list[Any], list[Parcel], list[Parcel]]:
    """What both halves return, what the active party receives, and what it sends."""
    active = Running(evaluate_level(evaluator, 1), apart=apart)
    passive = Running(garble_level(garbler, 1), active.hear, opened=False, apart=apart)
    active.send = passive.hear
    active_result, passive_result = run_all([active, passive])
    return active_result, passive_result, active.heard, passive.heard


def drawn_shares(level: DrawnLevel, seed: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Of the active party, and of the passive party."""
    return level.shares(np.random.default_rng(list(seed)))
