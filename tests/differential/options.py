"""Training parameters drawn at random, each left out as often as not."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

__all__ = [
    "drawn_categories",
    "drawn_dart",
    "drawn_later",
    "drawn_options",
    "drawn_signs",
    "drawn_together",
]

Draw = Callable[[np.random.Generator], Any]

OPTIONS: Mapping[str, Draw] = {
    "reg_lambda": lambda random: float(random.choice([0.0, 0.3, 5.0])),
    "reg_alpha": lambda random: float(random.choice([0.05, 0.7, 3.0])),
    "max_delta_step": lambda random: float(random.choice([0.1, 0.7])),
    "gamma": lambda random: float(random.choice([0.1, 1.0])),
    "min_child_weight": lambda random: float(random.choice([0.0, 0.2, 3.0])),
    "eta": lambda random: float(random.choice([0.1, 1.0])),
}


GROWTH: Sequence[Mapping[str, Any]] = (
    {"grow_policy": "lossguide"},
    {"grow_policy": "lossguide", "max_leaves": 7},
    {"grow_policy": "lossguide", "max_leaves": 12, "max_depth": 0},
    {"max_leaves": 5},
    {"max_leaves": 9, "max_depth": 0},
)


def drawn_options(random: np.random.Generator) -> dict[str, Any]:
    """Keyword arguments of `TrainParams`."""
    chosen = {name: draw(random) for name, draw in OPTIONS.items()}
    kept = {name: value for name, value in chosen.items() if random.random() < 0.5}
    if "max_delta_step" in kept:
        # Where all weights are bounded, a gain is what rounding leaves: nobody should split for it.
        kept.setdefault("gamma", 0.01)
    return {
        "num_boost_round": 3,
        "max_depth": int(random.integers(1, 6)),
        **(GROWTH[int(random.integers(len(GROWTH)))] if random.random() < 0.4 else {}),
        "max_bin": int(random.choice([4, 16, 256])),
        **kept,
    }


def drawn_signs(random: np.random.Generator, columns: int) -> list[int]:
    """Monotone constraints of columns; none in half of the cases."""
    signs: list[int] = random.choice([-1, 0, 1], columns).tolist()
    return signs if random.random() < 0.5 else [0] * columns


def drawn_together(random: np.random.Generator, columns: int) -> list[list[int]]:
    """Interaction constraints that overlap and leave columns out; none in half of the cases."""
    constraints = [
        np.flatnonzero(random.random(columns) < random.choice([0.3, 0.6])).tolist()
        for _ in range(int(random.integers(1, 4)))
    ]
    held: list[list[int]] = [constraint for constraint in constraints if constraint]
    return held if random.random() < 0.5 else []


def drawn_later(random: np.random.Generator, *, vectors: bool) -> dict[str, Any]:
    """Further keyword arguments, of another generator: what seeds have drawn before stays.

    ``vectors``: leaves are, and XGBoost has no such trees of DART.
    """
    forest = {"num_parallel_tree": int(random.integers(2, 5))} if random.random() < 0.25 else {}
    dart = drawn_dart(random) if random.random() < 0.25 else {}
    return forest if vectors else forest | dart


def drawn_categories(
    random: np.random.Generator, columns: int, vectors: bool
) -> tuple[list[int], dict[str, Any]]:
    """Columns that hold categories, and from how many on they are split by sets.

    None in half of the cases, and none where leaves are ``vectors``: XGBoost has no such splits.
    """
    chosen = np.flatnonzero(random.random(columns) < 0.5).tolist()
    by_sets = {"max_cat_to_onehot": int(random.choice([1, 3, 4, 8]))}
    if random.random() < 0.5:
        by_sets["max_cat_threshold"] = int(random.choice([1, 2, 5]))
    return ([], {}) if vectors or random.random() < 0.5 else (chosen, by_sets)


def drawn_dart(random: np.random.Generator) -> dict[str, Any]:
    """Parameters of DART, and enough rounds to leave trees out."""
    return {
        "booster": "dart",
        "num_boost_round": 6,
        "rate_drop": float(random.choice([0.2, 0.6, 1.0])),
        "one_drop": bool(random.random() < 0.5),
        "skip_drop": float(random.choice([0.0, 0.3])),
        "sample_type": str(random.choice(["uniform", "weighted"])),
        "normalize_type": str(random.choice(["tree", "forest"])),
        "seed": int(random.integers(1000)),
    }
