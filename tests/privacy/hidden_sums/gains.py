"""Gains of a circuit in the clear, beside `split_gains`.

``python -m tests.privacy.hidden_sums.gains [GAINS]`` compares so many of each kind of training,
and ends with 1 if a bit differs.
"""

from __future__ import annotations

import sys

import numpy as np

from fedmq.privacy.garbling.schedule import in_the_clear
from fedmq.privacy.hidden_sums.circuits import gain_bits
from fedmq.privacy.hidden_sums.stages import named_labels
from fedmq.privacy.oblivious_transfer.correlated import Wide, bits_of, multiply, subtract, wide
from tests.privacy.hidden_sums.drawn_level import LOGISTIC, SQUARED, DrawnLevel

KINDS = {
    "logistic": {"objective": LOGISTIC},
    "no lambda, light children": {"reg_lambda": 0.0, "min_child_weight": 0.0},
    "heavy children": {"reg_lambda": 0.3, "min_child_weight": 5.0},
    "squared error": {"objective": SQUARED, "reg_lambda": 10.0},
    "few rows": {"rows": 40, "reg_lambda": 0.0, "min_child_weight": 0.0},
    "two rows": {"rows": 2, "reg_lambda": 1.0, "min_child_weight": 0.0},
    "many rows": {"rows": 20_000},
    "gradients of 8 bits": {"gradient_bits": 8},
    "gradients of 2 bits": {"gradient_bits": 2, "min_child_weight": 0.0},
}

RULES = {
    "alpha": {"reg_alpha": 0.7},
    "much alpha": {"reg_alpha": 20.0, "reg_lambda": 0.0, "min_child_weight": 0.0},
    "limit": {"max_delta_step": 0.3},
    "bounds": {"constrained": True},
    "interactions": {"interactions": 3},
    "small lambda": {"reg_lambda": 1e-20, "min_child_weight": 0.1},
    "large lambda": {"reg_lambda": 3e9},
    "all at once": {
        "reg_alpha": 0.05,
        "max_delta_step": 0.7,
        "constrained": True,
        "interactions": 2,
        "reg_lambda": 1e-3,
        "min_child_weight": 0.0,
    },
    "all of squared error": {
        "objective": SQUARED,
        "reg_alpha": 30.0,
        "max_delta_step": 40.0,
        "constrained": True,
        "reg_lambda": 0.7,
    },
}

ARITHMETICS = ("3.2", "3.4")

CANDIDATES = 1000
NODES_AT_ONCE = 60


def shared_bits(random: np.random.Generator, name: str, numbers: Wide, bits: int) -> dict:
    own = random.integers(0, 2**64, numbers.shape, np.uint64)
    return {
        f"own {name}": bits_of(own, bits),
        f"other {name}": bits_of(subtract(numbers, own), bits),
    }


def circuit_gains(level: DrawnLevel, random: np.random.Generator) -> np.ndarray:
    """Bits of all gains, of random shares: bool (32, nodes * candidates)."""
    field = level.field
    circuit, left = level.circuit, level.left.reshape(-1, 2)
    right = (level.totals[:, np.newaxis] - level.left).reshape(-1, 2)
    known = level.inputs(np.full(len(level.totals), -np.inf, np.float32)).bits
    if circuit.takes_squares:
        numbers = [wide(side[:, 0].copy()) for side in (left, right)]
        squares = [multiply(number, number) for number in numbers]
        inputs = shared_bits(random, "G_L²", squares[0], field.square_bits)
        inputs |= shared_bits(random, "G_R²", squares[1], field.square_bits)
        inputs |= shared_bits(random, "H_L", wide(left[:, 1].copy()), field.bits)
    else:
        sums = field.joined(left.view(np.uint64))
        inputs = shared_bits(random, "sums", sums, 2 * field.bits)
    for name in circuit.node_bits:
        inputs[name] = np.repeat(known[name], level.left.shape[1], axis=1)
    inputs |= named_labels(level.column_bits, circuit.column_bits)
    return in_the_clear(circuit.schedule(), inputs)["gain"]


def wanted_gains(level: DrawnLevel) -> np.ndarray:
    """Bits of XGBoost's gains, 0 where nothing is gained."""
    gains = np.maximum(level.gains.reshape(-1), np.float32(0)).astype(np.float64)
    return gain_bits(gains, level.gain_shift)


def different_gains(seed: int, nodes: int, candidates: int, **kind: float) -> tuple[int, int]:
    """How many gains have other bits than XGBoost's, and how many are more than 0."""
    random = np.random.default_rng(seed)
    level = DrawnLevel.of(random, nodes, candidates, **kind)
    wanted = wanted_gains(level)
    found = circuit_gains(level, random)
    return int((found != wanted).any(axis=0).sum()), int(wanted.any(axis=0).sum())


def main(gains: int) -> int:
    """Compare ``gains`` of each kind; those that differ."""
    different = 0
    every = {
        f"{name}, {arithmetic}": {"xgboost_arithmetic": arithmetic, **kind}
        for name, kind in (KINDS | RULES).items()
        for arithmetic in ARITHMETICS
    }
    for name, kind in every.items():
        found = above = compared = 0
        while compared < gains:
            nodes = min(NODES_AT_ONCE, -(-(gains - compared) // CANDIDATES))
            wrong, positive = different_gains(compared, nodes, CANDIDATES, **kind)
            found, above, compared = found + wrong, above + positive, compared + nodes * CANDIDATES
        print(f"{name}: {found} of {compared:,} gains differ; {above:,} are above 0", flush=True)
        different += found
    return different


if __name__ == "__main__":
    sys.exit(main(int([*sys.argv[1:], "1000000"][0])) > 0)
