"""Nodes of a made-up training: sums on the left of candidates, and what XGBoost makes of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedmq.boosting.gradients import FixedPoint
from fedmq.boosting.params import OLDEST, TrainParams
from fedmq.boosting.splits import best, is_worthwhile, split_gains
from fedmq.privacy.hidden_sums.shares import Field, Shares
from fedmq.privacy.oblivious_transfer.correlated import Wide, subtract

LOGISTIC = "logistic"
SQUARED = "squared error"


@dataclass(frozen=True, eq=False)
class DrawnLevel:
    """``left`` int64 (nodes, candidates, 2) and ``totals`` int64 (nodes, 2) on one scale.

    ``pairs``: g and h of each node's rows, int64 (rows, 2).
    """

    left: np.ndarray
    totals: np.ndarray
    scale: FixedPoint
    params: TrainParams
    field: Field
    pairs: tuple[np.ndarray, ...]

    @classmethod
    def of(
        cls,
        random: np.random.Generator,
        nodes: int,
        candidates: int,
        rows: int = 4000,
        objective: str = LOGISTIC,
        gradient_bits: int | None = None,
        **params: float | str,
    ) -> DrawnLevel:
        """Rows fall into nodes; a candidate takes the first rows of one of a few orders."""
        floats = gradients(random, rows, objective)
        if gradient_bits is None:
            scale = FixedPoint.of(floats)
            pairs = scale.encode(floats)
        else:
            scale = FixedPoint.of_bits(floats, gradient_bits)
            pairs = scale.round_by_lot(floats, random.random(floats.shape))
        left = np.empty((nodes, candidates, 2), np.int64)
        totals = np.empty((nodes, 2), np.int64)
        of_nodes = []
        for node in range(nodes):
            own = pairs[random.random(rows) < random.choice([1, 0.5, 0.05])]
            of_nodes.append(own)
            totals[node] = own.sum(axis=0)
            for start in range(0, candidates, 100):
                order = random.permutation(len(own))
                if start % 200 == 0:
                    order = np.argsort(own[:, 0] + random.normal(size=len(own)) * 2.0**40)
                running = np.concatenate([np.zeros((1, 2), np.int64), own[order].cumsum(axis=0)])
                stop = min(start + 100, candidates)
                picked = random.integers(0, len(running), stop - start)
                left[node, start:stop] = running[picked]
        field = Field(scale.value_bits + max(rows - 1, 1).bit_length() + 2)
        arithmetic = {"xgboost_arithmetic": OLDEST, **params}
        return cls(left, totals, scale, TrainParams(**arithmetic), field, tuple(of_nodes))

    @property
    def gains(self) -> np.ndarray:
        """XGBoost's: float32 (nodes, candidates)."""
        right = self.totals[:, np.newaxis] - self.left
        sums = (self.scale.to_float(part) for part in (self.left, right, self.totals))
        return split_gains(*sums, self.params)

    @property
    def gain_shift(self) -> int:
        """Gains in a circuit are 2^shift times those."""
        return 2 * self.scale.g_bits - self.scale.h_bits

    def winners(self, to_beat: np.ndarray) -> tuple[list[bool], list[int]]:
        """Who wins against the active party's best gains (nodes,), and which candidate."""
        won, index = [], []
        for gains, own in zip(self.gains, to_beat, strict=True):
            gain, reached = best(gains)
            won.append(bool(is_worthwhile(gain, self.params) and gain > own))
            index.append(int(reached[0]) if won[-1] else 0)
        return won, index

    def shares(self, random: np.random.Generator) -> tuple[Shares, Shares]:
        """Of the active party, and of the passive party, which are uniform."""
        own = random.integers(0, 2**64, self.left.shape, np.uint64) & self.field.mask
        joint: Wide = self.field.joined(self.left.view(np.uint64))
        return self.field.parted(subtract(joint, self.field.joined(own))), own


def gradients(random: np.random.Generator, rows: int, objective: str) -> np.ndarray:
    """g and h of random margins: float32 (rows, 2)."""
    margin = random.normal(-1, 1, rows).astype(np.float32)
    label = (random.random(rows) < 0.3).astype(np.float32)
    if objective == SQUARED:
        return np.stack([margin - label * 100, np.ones(rows, np.float32)], axis=-1)
    chance = 1 / (1 + np.exp(-margin))
    return np.stack([chance - label, chance * (1 - chance)], axis=-1).astype(np.float32)
