"""Tables and parameters made from a seed, trained by all parties and by XGBoost alone."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xgboost
from numpy.typing import NDArray

import fedmq
from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.boosting.xgboost.parity import compare, labelled, train_reference

ENCRYPTED = {
    "ou": {"key_bits": 512, "allow_weak_keys": True},
    "paillier": {"key_bits": 512, "allow_weak_keys": True},
}
ENCRYPTED_SHARE = 0.1
OBJECTIVES = (
    "binary:logistic",
    "binary:logitraw",
    "reg:logistic",
    "reg:squarederror",
    "reg:squaredlogerror",
    "reg:pseudohubererror",
    "reg:absoluteerror",
    "reg:quantileerror",
    "reg:gamma",
    "reg:tweedie",
    "survival:aft",
)

Random = np.random.Generator


@dataclass(frozen=True)
class Case:
    """What all parties hold, and how they train; the same from the same ``seed``."""

    seed: int
    tables: Mapping[str, NDArray[np.float32]]
    label: NDArray[np.float32]
    settings: Mapping[str, Any]
    engine: str = "plain"
    rows: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, seed: int) -> Case:
        random = np.random.default_rng(seed)
        n = int(random.integers(20, 160))
        joined = _columns(random, n, int(random.integers(3, 8)))
        signal = np.nan_to_num(joined[:, 0]) + np.nan_to_num(joined[:, -1]) ** 2
        objective = str(random.choice(OBJECTIVES))
        label, own = _labels(random, objective, signal.astype(np.float64))
        parties = int(random.integers(2, 5))
        hands = np.array_split(np.arange(joined.shape[1]), min(parties, joined.shape[1]))
        names = ("active", "telco", "shop", "clinic")
        encrypted = random.random() < ENCRYPTED_SHARE
        return cls(
            seed,
            {name: joined[:, hand] for name, hand in zip(names, hands, strict=False)},
            label,
            {"objective": objective, **_settings(random), **own},
            str(random.choice(list(ENCRYPTED))) if encrypted else "plain",
            _rows(random, n),
        )

    @property
    def joined(self) -> NDArray[np.float32]:
        return np.concatenate(list(self.tables.values()), axis=1)

    @property
    def params(self) -> fedmq.TrainParams:
        return fedmq.TrainParams.model_validate(dict(self.settings))

    def train(self) -> fedmq.SimulatedModel:
        active, *_ = self.tables.values()
        passive = dict(list(self.tables.items())[1:])
        return fedmq.simulate(
            active=active,
            label=self.label,
            passive=passive,
            params=self.params,
            engine=self.engine,
            engine_options=ENCRYPTED.get(self.engine),
            workers=1,
            **self.rows,
        )


def disagreement(case: Case) -> str | None:
    """The first thing in which all parties' model is not XGBoost's; None where there is none."""
    model = case.train()
    bins = BinMatrix.of(case.joined, Cuts.of(case.joined, case.params.max_bin))
    labels = case.label.astype(np.float32)
    reference = train_reference(bins, labels, case.params, **case.rows)
    theirs = _base_score(reference)
    if not np.isclose(model.share.base_score, theirs, rtol=1e-5, atol=1e-7):
        return f"base_score {model.share.base_score}, XGBoost {theirs}"
    parity = compare(reference, model.joined_trees(), bins)
    if parity.first_difference is not None:
        return parity.first_difference
    exported = model.to_xgboost()
    data = labelled(case.joined, labels)
    data.feature_names = exported.feature_names
    active, *_ = case.tables.values()
    passive = dict(list(case.tables.items())[1:])
    ours = model.predict(active=active, passive=passive)
    if not np.allclose(ours, exported.predict(data), rtol=1e-5, atol=1e-6, equal_nan=True):
        return "to_xgboost() predicts otherwise"
    codes = np.where(bins.is_missing, np.float32(np.nan), bins.codes.astype(np.float32))
    pooled = reference.predict(xgboost.DMatrix(codes))
    if not np.allclose(ours, pooled, rtol=1e-4, atol=1e-5):
        return "predictions differ"
    return None


def _base_score(booster: Any) -> float:
    document = json.loads(booster.save_raw("json"))
    return float(json.loads(document["learner"]["learner_model_param"]["base_score"])[0])


def _columns(random: Random, rows: int, features: int) -> NDArray[np.float32]:
    """Coarse values, so that there are ties; one column of a few, and cells that are missing."""
    values = np.round(random.normal(size=(rows, features)), int(random.integers(0, 3)))
    values[:, random.integers(features)] = random.integers(0, 3, rows)
    values[random.random(values.shape) < random.choice([0, 0.05, 0.3])] = np.nan
    return values.astype(np.float32)


def _labels(
    random: Random, objective: str, signal: NDArray[np.float64]
) -> tuple[NDArray[np.float32], dict[str, Any]]:
    """Labels that the columns explain in part, and parameters of the objective."""
    noisy = signal + random.normal(size=len(signal))
    own: dict[str, Any] = {}
    if objective.startswith("binary:"):
        label = (noisy > 1).astype(np.float64)
    elif objective == "reg:logistic":
        label = np.round(1 / (1 + np.exp(1 - noisy)), 2)
    elif objective == "reg:gamma":
        label = random.gamma(2.0, np.exp(np.clip(signal, -2, 2)))+0.01
    elif objective in ("reg:tweedie", "count:poisson"):
        label = random.poisson(np.exp(np.clip(signal / 2, -2, 2))).astype(np.float64)
    elif objective == "reg:squaredlogerror":
        label = np.round(np.abs(noisy), 1)
    elif objective == "survival:aft":
        return _times(random, noisy)
    else:
        label = np.round(noisy * 3, int(random.integers(0, 3)))
    if objective == "reg:tweedie":
        own["tweedie_variance_power"] = round(float(random.uniform(1.1, 1.9)), 1)
    if objective == "reg:pseudohubererror":
        own["huber_slope"] = float(random.choice([0.5, 1.0, 2.5]))
    if objective == "reg:quantileerror":
        own["quantile_alpha"] = float(random.choice([0.1, 0.5, 0.9]))
    scaled = objective in ("binary:logistic", "binary:logitraw", "reg:logistic")
    if scaled and random.random() < 0.3:
        own["scale_pos_weight"] = float(random.choice([0.5, 3.0]))
    return label.astype(np.float32), own


def _times(random: Random, noisy: NDArray[np.float64]) -> tuple[NDArray[np.float32], dict[str, Any]]:
    """Bounds of times: exact, and censored on either side or both."""
    low = np.round(np.exp(np.clip(noisy / 2, -3, 3)), 1) + 0.1
    high = low.copy()
    kind = random.integers(0, 4, len(low))
    high[kind == 1] = np.inf
    low[kind == 2] = 0
    high[kind == 3] += 1
    return np.stack((low, high), axis=1).astype(np.float32), {
        "aft_loss_distribution": str(random.choice(["normal", "logistic", "extreme"])),
        "aft_loss_distribution_scale": float(random.choice([0.5, 1.0, 1.5])),
    }


def _settings(random: Random) -> dict[str, Any]:
    return {
        "num_boost_round": 3,
        "max_depth": int(random.integers(1, 6)),
        "eta": float(random.choice([0.1, 0.3, 1.0])),
        "reg_lambda": float(random.choice([0.0, 1.0, 3.0])),
        "gamma": float(random.choice([0.0, 0.0, 0.3])),
        # A side whose hessians vanish beside the other's: XGBoost's subtraction leaves it none.
        "min_child_weight": float(random.choice([0.1, 1.0, 2.0])),
        "max_bin": int(random.choice([4, 16, 256])),
    }


def _rows(random: Random, rows: int) -> dict[str, Any]:
    """Weights and first margins, of some tables."""
    given: dict[str, Any] = {}
    if random.random() < 0.4:
        # Not 0: what tells only such rows apart is chosen by lot.
        given["weight"] = np.round(random.exponential(size=rows) + 0.1, 1).astype(np.float32)
    if random.random() < 0.2:
        given["base_margin"] = random.normal(size=rows).astype(np.float32) / 4
    return given
