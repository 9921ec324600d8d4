"""Which objective do parameters name? A new one is a class of `Objective`, and a place here."""

from __future__ import annotations

from typing import Protocol

from fedmq.boosting.objectives.multiclass import SoftMax, SoftProb
from fedmq.boosting.objectives.objective import Objective
from fedmq.boosting.objectives.regression import (
    AbsoluteError,
    BinaryLogistic,
    Gamma,
    LogitRaw,
    Poisson,
    PseudoHuberError,
    QuantileError,
    RegLogistic,
    SquaredError,
    SquaredLogError,
    Tweedie,
)
from fedmq.boosting.objectives.survival import AcceleratedFailureTime

__all__ = ["OBJECTIVES", "objective_of"]

OBJECTIVES: dict[str, type[Objective]] = {
    objective.name: objective
    for objective in (
        BinaryLogistic,
        LogitRaw,
        RegLogistic,
        SquaredError,
        SquaredLogError,
        PseudoHuberError,
        AbsoluteError,
        QuantileError,
        Poisson,
        Gamma,
        Tweedie,
        SoftProb,
        SoftMax,
        AcceleratedFailureTime,
    )
}
"""Objectives by XGBoost's names."""


class Parameters(Protocol):
    """Training parameters, as far as they name an objective."""

    @property
    def objective(self) -> str: ...


def objective_of(params: Parameters) -> Objective:
    """The objective of a training."""
    return OBJECTIVES[params.objective].of(params)
