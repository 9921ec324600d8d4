"""The filter's circuit in the clear, beside XGBoost's gains.

``python -m tests.privacy.hidden_sums.filtered [NODES]`` compares so many nodes of each kind of
training, with quotients of each length, and ends with 1 if a winner is missed or a bound is broken.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedmq.boosting.gradients import FixedPoint
from fedmq.boosting.params import TrainParams
from fedmq.boosting.splits import SMALLEST_GAIN
from fedmq.privacy.garbling.schedule import in_the_clear
from fedmq.privacy.hidden_sums.filter import (
    SLOTS,
    NodeFactors,
    Precision,
    choose_factors,
)
from fedmq.privacy.hidden_sums.products import (
    carry_choices,
    factor_choices,
    joined_receiver,
    joined_sender,
    lifted,
    offered_carries,
    offered_factors,
    offered_products,
    own_scaled,
    product_choices,
    received_scaled,
    sent_scaled,
)
from fedmq.privacy.hidden_sums.quotient import quotient_inputs, quotient_schedule
from fedmq.privacy.hidden_sums.shares import Field, Shares
from fedmq.privacy.oblivious_transfer.correlated import Offered, bits_of, wide
from tests.privacy.hidden_sums.drawn_level import LOGISTIC, SQUARED, DrawnLevel

KINDS = {
    "logistic": {"objective": LOGISTIC},
    "3.4": {"objective": LOGISTIC, "xgboost_arithmetic": "3.4"},
    "no lambda, light children": {"reg_lambda": 0.0, "min_child_weight": 0.0},
    "heavy children": {"reg_lambda": 0.3, "min_child_weight": 5.0},
    "children heavier than a node": {"min_child_weight": 300.0},
    "squared error": {"objective": SQUARED, "reg_lambda": 10.0},
    "few rows": {"rows": 40, "reg_lambda": 0.0, "min_child_weight": 0.0},
    "two rows": {"rows": 2, "reg_lambda": 1.0, "min_child_weight": 0.0},
    "many rows": {"rows": 20_000},
    "gradients of 8 bits": {"gradient_bits": 8},
    "gradients of 2 bits": {"gradient_bits": 2, "min_child_weight": 0.0},
}


def transferred(
    random: np.random.Generator, choices: np.ndarray, offered: Offered, *shape: int
) -> tuple[np.ndarray, np.ndarray]:
    """Shares of both parties, of the choices times the numbers, summed over bits."""
    modulus, numbers = np.uint64((1 << offered.bits) - 1), np.concatenate(list(offered.parts()))
    own = random.integers(0, 2**64, numbers.shape, np.uint64)
    chosen = np.where(choices[:, np.newaxis], numbers, np.uint64(0))
    shares = chosen - own & modulus, own & modulus
    received, kept = (of.reshape(-1, *shape).sum(axis=0, dtype=np.uint64) for of in shares)
    return received, kept


def quotients(
    random: np.random.Generator,
    c: Precision,
    field: Field,
    shares: tuple[Shares, Shares],
    factors: Sequence[NodeFactors],
) -> dict[str, np.ndarray]:
    """``low``, ``high`` and ``may`` of all candidates: int64 (nodes, candidates)."""
    own, other = shares
    nodes, candidates, _ = own.shape
    received, kept = transferred(
        random, carry_choices(own, field), offered_carries(other, field, c), own.size, 1
    )
    own_sums = lifted(own, received, field, c, receives=True)
    other_sums = lifted(other, kept, field, c, receives=False)
    choices = np.split(factor_choices(factors, c), [c.x_factor * nodes])
    (own_x, x), (own_d, d) = (
        transferred(random, chosen, offered, nodes, candidates)
        for chosen, offered in zip(choices, offered_factors(other_sums, c), strict=True)
    )
    own_scale = received_scaled(own_scaled(own_sums, factors, c), own_x, own_d, c)
    other_scale = sent_scaled(x, d, c)
    choices = np.split(product_choices(own_scale, factors, c), [c.x_modulus * nodes * candidates])
    (own_v, v), (own_s, s) = (
        transferred(random, chosen, offered, nodes, candidates)
        for chosen, offered in zip(choices, offered_products(other_scale, c), strict=True)
    )
    joined = {
        "other": joined_receiver(own_scale, factors, own_v, own_s, c),
        "own": joined_sender(other_scale, v, s, c),
    }
    inputs = {
        f"{side} {name}": bits_of(wide(np.ascontiguousarray(numbers[name].reshape(-1))), bits)
        for side, numbers in joined.items()
        for name, bits in quotient_inputs(c).items()
    }
    least = np.repeat(np.array([node.least_weight for node in factors], np.uint64), candidates)
    inputs["least weight"] = bits_of(wide(least), c.weight_bits)
    found = in_the_clear(quotient_schedule(c), inputs)
    return {
        name: (bits.astype(np.int64).T @ (1 << np.arange(len(bits)))).reshape(nodes, candidates)
        for name, bits in found.items()
    }


def factors_of(level: DrawnLevel, to_beat: np.ndarray) -> list[NodeFactors | None]:
    """Of each node, None where it does not fit; every other one has a gain that is foreseen."""
    foreseen = level.gains.max(axis=1).clip(0) * np.resize(np.float32([3, 0]), len(to_beat))
    known = (level.pairs, level.totals, to_beat, foreseen)
    return choose_factors(*known, level.scale, level.params, level.field, far=level.far)


@dataclass
class Compared:
    """What was wrong, and how many nodes were compared, did not fit, or had more than slots."""

    missed: int = 0
    broken: int = 0
    nodes: int = 0
    unfit: int = 0
    crowded: int = 0

    def __iadd__(self, other: Compared) -> Compared:
        for name, count in vars(other).items():
            setattr(self, name, getattr(self, name) + count)
        return self


def compared(
    level: DrawnLevel, to_beat: np.ndarray, random: np.random.Generator, kind: str = ""
) -> Compared:
    """The filter of ``level`` beside its gains, of quotients of a ``kind``: "fine", "far" or ""."""
    c = getattr(Precision, kind or "of")(level.field)
    every = factors_of(replace(level, far=kind == "far"), to_beat)
    if kind == "fine":
        every = [None if node is None else node.fine for node in every]
    fit = np.array([node is not None for node in every])
    result = Compared(nodes=len(every), unfit=int((~fit).sum()))
    if not fit.any():
        return result
    factors = [node for node in every if node is not None]
    own, other = level.shares(random)
    found = quotients(random, c, level.field, (own[fit], other[fit]), factors)
    gains, left, totals = level.gains[fit], level.left[fit], level.totals[fit]
    thresholds = np.maximum(found["low"].max(axis=1), np.array([node.to_beat for node in factors]))
    near = found["may"].astype(bool) & (found["high"] >= thresholds[:, np.newaxis])
    best = gains.max(axis=1)
    wins = (best > to_beat[fit]) & (best > SMALLEST_GAIN) & (best >= level.params.gamma)
    ties = (gains == best[:, np.newaxis]) & wins[:, np.newaxis]
    result.missed = int((ties & ~near).any(axis=1).sum())
    result.crowded = int((near.sum(axis=1) > SLOTS).sum())
    heavy = np.isfinite(gains)
    result.broken = broken(level.scale, level.params, c, left, totals, heavy, factors, found)
    return result


def broken(
    scale: FixedPoint,
    params: TrainParams,
    c: Precision,
    left: np.ndarray,
    totals: np.ndarray,
    heavy: np.ndarray,
    factors: Sequence[NodeFactors],
    found: dict[str, np.ndarray],
) -> int:
    """How many candidates lie outside of their bounds, of those whose sides are ``heavy`` enough.

    Of the others, how many count as heavy.
    """
    lam = math.ldexp(float(np.float32(params.reg_lambda)), scale.h_bits)
    whole = totals[:, 1:].astype(np.longdouble) + 2 * lam
    side = left[..., 1] + np.longdouble(lam)
    d = left[..., 0] - totals[:, :1] / whole * side
    unit = np.array([node.unit for node in factors])[:, np.newaxis]
    with np.errstate(all="ignore"):
        ratio = np.where(side * (whole - side) > 0, d * d / (side * (whole - side)), 0)
    ratio = ratio / unit * c.unit
    low, high, may = found["low"], found["high"], found["may"].astype(bool)
    too_high = heavy & (~may | (high < np.minimum(ratio, 1 << c.quotient_bits)))
    too_low = np.where(heavy, low > ratio, low > 0)
    return int((too_high | too_low).sum())


def main(nodes: int) -> int:
    """Compare ``nodes`` of each kind; those that are wrong."""
    wrong = 0
    for name, kind in KINDS.items():
        result = Compared()
        while result.nodes < nodes:
            random = np.random.default_rng(result.nodes)
            level = DrawnLevel.of(random, 20, 150, **kind)
            best = np.maximum(level.gains.max(axis=1), 0)
            parts = random.choice([0, 0.5, 0.99, 1, 2], len(best)).astype(np.float32)
            to_beat = np.where(parts > 0, best * parts, -np.inf)
            for quotients_of in ("", "fine", "far"):
                result += compared(level, to_beat, random, quotients_of)
        print(f"{name}: {result}", flush=True)
        wrong += result.missed + result.broken
    return wrong


if __name__ == "__main__":
    sys.exit(main(int([*sys.argv[1:], "1000"][0])) > 0)
