"""Both halves of a level in one process, and all that goes between them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fedmq.privacy.lattice.hidden.circuits import NodeInputs
from fedmq.privacy.lattice.hidden.evaluator import LevelEvaluator
from fedmq.privacy.lattice.hidden.garbler import LevelGarbler
from fedmq.privacy.oblivious_transfer.extension import Extended, Permutation, Tweaks
from tests.privacy.lattice.hidden.drawn_level import DrawnLevel
from tests.privacy.oblivious_transfer.base import extension

PERMUTATION = Permutation(b"public")


@dataclass(frozen=True, eq=False)
class Told:
    """What both sides learn of each node, and what the active party was sent.

    ``shares`` (nodes, candidates, 2) are its own, which follow from the answer on a lattice.
    """

    shares: np.ndarray
    seen_won: list[bool]
    won: list[bool]
    index: list[int]
    received: list[np.ndarray]
    sent_bytes: int
    claimed_bits: int
    """That the passive party is told of each node."""


class LevelPair:
    """Levels of one session, which share their tweaks."""

    def __init__(self) -> None:
        self.receiver, self.sender = extension()
        self.tweaks = (Tweaks(), Tweaks())

    def halves(
        self, level: DrawnLevel, to_beat: np.ndarray, seed: bytes
    ) -> tuple[LevelEvaluator, LevelGarbler]:
        own, other = drawn_shares(level, seed)
        inputs = NodeInputs.of(level.totals, to_beat, level.scale, level.params, level.field)
        evaluator = LevelEvaluator(
            level.field, own, inputs, self.receiver, PERMUTATION, self.tweaks[0]
        )
        garbler = LevelGarbler(level.field, other, self.sender, PERMUTATION, self.tweaks[1], seed)
        return evaluator, garbler

    def run(self, level: DrawnLevel, to_beat: np.ndarray, seed: bytes = b"s" * 32) -> Told:
        evaluator, garbler = self.halves(level, to_beat, seed)
        sent: list[Extended] = [evaluator.choose_carries()]
        received = [garbler.offer_carries(sent[-1])]
        sent += evaluator.choose_squares(received[-1])
        received += garbler.offer_squares(*sent[-2:])
        sent += evaluator.choose_labels(*received[-2:])
        for piece in garbler.pieces(*sent[-2:]):
            evaluator.take(piece)
            received.append(piece)
        seen_won, claimed = evaluator.winners()
        won, index = garbler.winners(claimed)
        size = sum(part.nbytes for message in sent for part in arrays(message))
        own, _ = drawn_shares(level, seed)
        return Told(
            own, seen_won.tolist(), won.tolist(), index.tolist(), received, size, len(claimed)
        )


def drawn_shares(level: DrawnLevel, seed: bytes) -> tuple[np.ndarray, np.ndarray]:
    """Of the active party, and of the passive party."""
    return level.shares(np.random.default_rng(list(seed)))


def arrays(message: Extended) -> Iterator[np.ndarray]:
    yield from (message.columns, message.choice_hash, message.column_hashes)
