"""Labels that columns explain in part, and how often each row counts, for any objective."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.params import OLDEST
from fedmq.boosting.xgboost_comparison.parity import installed_arithmetic

__all__ = ["drawn_labels", "drawn_margins", "drawn_rows"]

Doubles = NDArray[np.float64]
Options = dict[str, Any]
Draw = Callable[[np.random.Generator, Doubles], tuple[Doubles, Options]]


def _binary(random: np.random.Generator, signal: Doubles) -> tuple[Doubles, Options]:
    scaled = {"scale_pos_weight": float(random.choice([0.5, 3.0]))} if random.random() < 0.3 else {}
    return (signal > np.median(signal)).astype(np.float64), scaled


def _shares(random: np.random.Generator, signal: Doubles) -> tuple[Doubles, Options]:
    return np.round(1 / (1 + np.exp(-signal)), 2), {}


def _values(random: np.random.Generator, signal: Doubles) -> tuple[Doubles, Options]:
    return np.round(signal * 3, int(random.integers(0, 3))), {}


def _amounts(random: np.random.Generator, signal: Doubles) -> tuple[Doubles, Options]:
    return random.gamma(2.0, np.exp(np.clip(signal, -2, 2))) + 0.01, {}


def _counts(random: np.random.Generator, signal: Doubles) -> tuple[Doubles, Options]:
    return random.poisson(np.exp(np.clip(signal, -2, 2))).astype(np.float64), {}


def _claims(random: np.random.Generator, signal: Doubles) -> tuple[Doubles, Options]:
    power = round(float(random.uniform(1.1, 1.9)), 1)
    return _counts(random, signal)[0], {"tweedie_variance_power": power}


def _huber(random: np.random.Generator, signal: Doubles) -> tuple[Doubles, Options]:
    return _values(random, signal)[0], {"huber_slope": float(random.choice([0.5, 1.0, 2.5]))}


def _quantile(random: np.random.Generator, signal: Doubles) -> tuple[Doubles, Options]:
    return _values(random, signal)[0], {"quantile_alpha": float(random.choice([0.1, 0.5, 0.9]))}


def _classes(random: np.random.Generator, signal: Doubles) -> tuple[Doubles, Options]:
    count = int(random.integers(2, 5))
    ends = np.quantile(signal, np.linspace(0, 1, count + 1)[1:-1])
    vectors = {"multi_strategy": "multi_output_tree"} if random.random() < 0.5 else {}
    return np.searchsorted(ends, signal).astype(np.float64), {"num_class": count, **vectors}


def _events(random: np.random.Generator, signal: Doubles) -> tuple[Doubles, Options]:
    """Times of events, less than 0 where nothing has happened until then."""
    times = np.round(np.exp(np.clip(signal / 2, -3, 3)), int(random.integers(1, 4))) + 0.1
    return np.where(random.random(len(times)) < 0.3, -times, times), {}


def _queries(most: int, random: np.random.Generator, signal: Doubles) -> tuple[Doubles, Options]:
    """Relevances up to ``most`` and queries (rows, 2), in which all rows have pairs."""
    ends = np.quantile(signal, np.linspace(0, 1, most + 2)[1:-1])
    query = np.arange(len(signal)) // 20
    flags = ("lambdarank_normalization", "lambdarank_score_normalization", "ndcg_exp_gain")
    options = {name: bool(random.random() < 0.7) for name in flags}
    return np.stack((np.searchsorted(ends, signal), query), axis=1).astype(np.float64), options


def _times(random: np.random.Generator, signal: Doubles) -> tuple[Doubles, Options]:
    """Bounds of times (rows, 2): exact, and censored on either side or both."""
    low = np.round(np.exp(np.clip(signal / 2, -3, 3)), 1) + 0.1
    high = low.copy()
    kind = random.integers(0, 4, len(low))
    high[kind == 1] = np.inf
    low[kind == 2] = 0
    high[kind == 3] += 1
    return np.stack((low, high), axis=1), {
        "aft_loss_distribution": str(random.choice(["normal", "logistic", "extreme"])),
        "aft_loss_distribution_scale": float(random.choice([0.5, 1.0, 1.5])),
    }


DRAWS: Mapping[str, Draw] = {
    "binary:logistic": _binary,
    "binary:logitraw": _binary,
    "binary:hinge": lambda random, signal: (_binary(random, signal)[0], {}),
    "reg:logistic": _shares,
    "reg:squarederror": _values,
    "reg:squaredlogerror": lambda random, signal: (np.abs(_values(random, signal)[0]), {}),
    "reg:pseudohubererror": _huber,
    "reg:absoluteerror": _values,
    "reg:quantileerror": _quantile,
    "reg:gamma": _amounts,
    "reg:tweedie": _claims,
    "count:poisson": _counts,
    "multi:softprob": _classes,
    "multi:softmax": _classes,
    "survival:aft": _times,
    "survival:cox": _events,
    "rank:ndcg": partial(_queries, 4),
    "rank:pairwise": partial(_queries, 2),
    "rank:map": partial(_queries, 1),
}

_KEEPS_HESSIANS = ("binary:logistic", "reg:squarederror", "reg:absoluteerror", "reg:quantileerror")


def drawn_labels(
    random: np.random.Generator, signal: Doubles, options: Options
) -> tuple[NDArray[np.float32], Options]:
    """Labels float32 (rows,), or (rows, 2), and ``options`` with those of an objective.

    Where hessians may vanish beside others, a side needs some: XGBoost subtracts the other side's
    from the node's, and what its float64 loses there decides whether the side exists.
    """
    objective = str(random.choice(list(DRAWS)))
    labels, own = DRAWS[objective](random, signal)
    if objective not in _KEEPS_HESSIANS:
        own["min_child_weight"] = max(0.1, options.get("min_child_weight", 1.0))
    return labels.astype(np.float32), {**options, "objective": objective, **own}


_ONE_LABEL = ("multi:", "survival:", "rank:")


def drawn_margins(
    random: np.random.Generator, labels: NDArray[np.float32], options: Options
) -> tuple[NDArray[np.float32], Options]:
    """In a fifth of the tables several targets, quantiles or expectiles, half in vector leaves.

    Of another generator: what seeds have drawn before stays.
    """
    objective = options["objective"]
    if random.random() < 0.8 or objective.startswith(_ONE_LABEL):
        return labels, options
    vectors = {"multi_strategy": "multi_output_tree"} if random.random() < 0.5 else {}
    if objective == "reg:quantileerror":
        alphas = sorted(random.choice([0.1, 0.3, 0.5, 0.9], 3).tolist())
        several = {**options, "quantile_alpha": alphas, **vectors}
        if random.random() < 0.5 and installed_arithmetic() != OLDEST:
            del several["quantile_alpha"]
            several.pop("multi_strategy", None)  # equal first expectiles make tiny gradients
            several |= {"objective": "reg:expectileerror", "expectile_alpha": alphas}
        return labels, several
    targets = int(random.integers(2, 4))
    several = np.stack([labels, *(random.permutation(labels) for _ in range(1, targets))], axis=1)
    return several, {**options, "num_target": targets, **vectors}


def drawn_rows(
    random: np.random.Generator, labels: NDArray[np.float32], options: Options
) -> dict[str, NDArray[np.float32]]:
    """``weight`` and ``base_margin``, of some tables.

    No weight is 0: XGBoost makes no cut for a bin in which all are. A query has one weight.
    """
    given = {}
    rows = len(labels)
    alphas = np.size(options.get("quantile_alpha", options.get("expectile_alpha", 0)))
    outputs = options.get("num_class") or options.get("num_target") or alphas
    if random.random() < 0.4:
        weight = np.round(random.exponential(size=rows) + 0.1, 1)
        if options["objective"].startswith("rank:"):
            weight = weight[labels[:, 1].astype(np.intp)]
        given["weight"] = weight.astype(np.float32)
    if random.random() < 0.2:
        shape = rows if outputs == 1 else (rows, outputs)
        given["base_margin"] = random.normal(size=shape).astype(np.float32) / 4
    return given
