"""Nodes of a made-up training: sums on the left of candidates, and what XGBoost makes of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from fedmq.boosting.gradients import FixedPoint
from fedmq.boosting.params import OLDEST, TrainParams
from fedmq.boosting.splits import (
    ALONE,
    ANY_PATH,
    UNBOUNDED,
    UNCONSTRAINED,
    InteractionPath,
    MonotoneNode,
    NodeConstraints,
    WeightBounds,
    best,
    is_worthwhile,
    node_weights,
    split_gains,
)
from fedmq.privacy.engine import ComparedColumns
from fedmq.privacy.hidden_sums.category_order import SetColumns
from fedmq.privacy.hidden_sums.circuits import GainCircuit, NodeInputs, circuit_of
from fedmq.privacy.hidden_sums.shares import Field, Shares
from fedmq.privacy.oblivious_transfer.correlated import Wide, subtract

LOGISTIC = "logistic"
SQUARED = "squared error"

LARGEST = np.finfo(np.float32).max


@dataclass(frozen=True, eq=False)
class DrawnLevel:
    """``left`` int64 (nodes, candidates, 2) and ``totals`` int64 (nodes, 2) on one scale.

    ``pairs``: g and h of each node's rows, int64 (rows, 2). ``far``: quotients reach far.
    """

    left: np.ndarray
    totals: np.ndarray
    scale: FixedPoint
    params: TrainParams
    field: Field
    pairs: tuple[np.ndarray, ...]
    constraints: NodeConstraints = UNCONSTRAINED
    columns: ComparedColumns | None = None
    far: bool = False

    @classmethod
    def of(
        cls,
        random: np.random.Generator,
        nodes: int,
        candidates: int,
        rows: int = 4000,
        objective: str = LOGISTIC,
        gradient_bits: int | None = None,
        constrained: bool = False,
        interactions: int = 0,
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
        given = TrainParams(
            **{"xgboost_arithmetic": OLDEST, **params},
            interaction_constraints=[[0]] * interactions,
        )
        drawn = cls(left, totals, scale, given, field, tuple(of_nodes))
        return drawn._with_constraints(random, constrained, interactions)

    def _with_constraints(
        self, random: np.random.Generator, constrained: bool, interactions: int
    ) -> DrawnLevel:
        """Bounds of nodes near their weights, signs of columns, and paths of few constraints."""
        if not constrained and not interactions:
            return self
        nodes, candidates = self.left.shape[:2]
        within = above = paths = None
        signs, held = np.zeros(candidates, np.int8), np.zeros((nodes, candidates), np.uint64)
        if constrained:
            weights = node_weights(self.scale.to_float(self.totals), self.params, UNBOUNDED)
            size = np.abs(weights)[:, np.newaxis] + np.float32(0.1)
            near = np.sort(weights[:, np.newaxis] + size * random.normal(size=(nodes, 4)), axis=1)
            near = near.astype(np.float32)
            near[random.random(near.shape[0]) < 0.3] = [-LARGEST, -LARGEST, LARGEST, LARGEST]
            above, within = near[:, [0, 3]], near[:, [1, 2]]
            signs = random.integers(-1, 2, candidates).astype(np.int8)
        if interactions:
            bits = np.uint64(1) << np.arange(interactions, dtype=np.uint64)
            drawn = [random.random((*held.shape, interactions)) < 0.4 for _ in range(2)]
            held = (drawn[0] * bits).sum(axis=-1, dtype=np.uint64)
            held[random.random(held.shape) < 0.1] |= ALONE
            paths = (drawn[1][:, 0] * bits).sum(axis=-1, dtype=np.uint64)
            paths[random.random(nodes) < 0.2] = ALONE
            paths[random.random(nodes) < 0.2] = ANY_PATH
        constraints = NodeConstraints(within, above, paths)
        return replace(self, constraints=constraints, columns=ComparedColumns(signs, held))

    @property
    def circuit(self) -> GainCircuit:
        """That of a candidate's gain."""
        circuit = circuit_of(self.params, self.scale, self.field, self.constraints)
        return replace(circuit, far=self.far)

    def inputs(self, to_beat: np.ndarray) -> NodeInputs:
        """The active party's, if its own best candidates gain ``to_beat``."""
        return NodeInputs.of(
            self.totals, to_beat, self.scale, self.params, self.circuit, self.constraints
        )

    @property
    def column_bits(self) -> np.ndarray:
        """The passive party's inputs beside its shares."""
        return self.scanned_bits(None)

    def scanned_bits(self, sets: SetColumns | None) -> np.ndarray:
        """The same of what is scanned, sets in place of their categories."""
        held = np.zeros(self.left.shape[:2], np.uint64)
        columns = self.columns or ComparedColumns(held[0].astype(np.int8), held)
        chosen = np.arange(len(columns.signs)) if sets is None else sets.scanned
        return self.circuit.of_columns(columns.signs[chosen], columns.held[:, chosen])

    @property
    def gains(self) -> np.ndarray:
        """XGBoost's: float32 (nodes, candidates)."""
        right = self.totals[:, np.newaxis] - self.left
        sums = [self.scale.to_float(part) for part in (self.left, right, self.totals)]
        constraints, columns = self.constraints, self.columns
        if columns is None:
            return split_gains(*sums, self.params)
        gains = np.empty(self.left.shape[:2], np.float32)
        for node, of_node in enumerate(zip(*sums, strict=True)):
            monotone = None
            if constraints.within is not None and constraints.above is not None:
                bounds = (constraints.within[node], constraints.above[node])
                monotone = MonotoneNode(columns.signs, *(WeightBounds(*pair) for pair in bounds))
            gains[node] = split_gains(*of_node, self.params, monotone)
            if constraints.paths is not None:
                allowed = InteractionPath(constraints.paths[node]).allows(1, columns.held[node])
                gains[node] = np.where(allowed, gains[node], -np.inf)
        return gains

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
