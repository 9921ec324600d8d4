"""Which objective do parameters name? A new one is a class of `Objective`, and a place here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from fedmq.boosting.objectives.expectiles import ExpectileError
from fedmq.boosting.objectives.multiclass import SoftMax, SoftProb
from fedmq.boosting.objectives.objective import Objective
from fedmq.boosting.objectives.ranking import RankMAP, RankNDCG, RankPairs
from fedmq.boosting.objectives.regression import (
    AbsoluteError,
    BinaryLogistic,
    Gamma,
    Hinge,
    LogitRaw,
    Poisson,
    PseudoHuberError,
    QuantileError,
    RegLogistic,
    SquaredError,
    SquaredLogError,
    Tweedie,
)
from fedmq.boosting.objectives.side_by_side import SideBySide
from fedmq.boosting.objectives.survival import AcceleratedFailureTime, CoxHazards

__all__ = ["OBJECTIVES", "REFUSED", "REFUSED_METRICS", "objective_of"]

OBJECTIVES: dict[str, type[Objective]] = {
    objective.name: objective
    for objective in (
        BinaryLogistic,
        LogitRaw,
        Hinge,
        RegLogistic,
        SquaredError,
        SquaredLogError,
        PseudoHuberError,
        AbsoluteError,
        QuantileError,
        ExpectileError,
        Poisson,
        Gamma,
        Tweedie,
        SoftProb,
        SoftMax,
        AcceleratedFailureTime,
        CoxHazards,
        RankNDCG,
        RankPairs,
        RankMAP,
    )
}
"""Objectives by XGBoost's names."""

REFUSED: Mapping[str, str] = {
    "reg:linear": "it is called reg:squarederror",
}
"""XGBoost's other objectives, and why they are refused."""

REFUSED_METRICS: Mapping[str, str] = {
    "ams": "it was made for one competition; write it as a custom_metric",
}
"""XGBoost's other metrics, and why they are refused."""


class Parameters(Protocol):
    """Training parameters, as far as they name an objective."""

    @property
    def objective(self) -> str: ...

    @property
    def num_target(self) -> int | None: ...


def objective_of(params: Parameters) -> Objective:
    """The objective of a training."""
    parts = OBJECTIVES[params.objective].parts_of(params)
    return parts[0] if len(parts) == 1 else SideBySide(parts, params.num_target is not None)
