"""Which objective do parameters name?

A new one is a class of `objective.Objective` in a file here, a line in `OBJECTIVES`, and its name
and default metric in `boosting.objective_name`; parameters of its own stand in `boosting.params`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fedmq.boosting.objective_name import ObjectiveName
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
    SmoothAbsoluteError,
    SmoothQuantileError,
    SquaredError,
    SquaredLogError,
    Tweedie,
)
from fedmq.boosting.objectives.survival import AcceleratedFailureTime
from fedmq.boosting.params import TrainParams

__all__ = ["OBJECTIVES", "objective_of"]


def _quantile_error(params: TrainParams) -> Objective:
    assert params.quantile_alpha is not None
    if params.xgboost_arithmetic == "3.2":
        return QuantileError(params.quantile_alpha)
    return SmoothQuantileError(params.quantile_alpha)


def _absolute_error(params: TrainParams) -> Objective:
    return AbsoluteError() if params.xgboost_arithmetic == "3.2" else SmoothAbsoluteError()


OBJECTIVES: Mapping[ObjectiveName, Callable[[TrainParams], Objective]] = {
    "reg:squarederror": lambda params: SquaredError(params.scale_pos_weight),
    "reg:squaredlogerror": lambda _: SquaredLogError(),
    "reg:logistic": lambda params: RegLogistic(params.scale_pos_weight),
    "binary:logistic": lambda params: BinaryLogistic(params.scale_pos_weight),
    "binary:logitraw": lambda params: LogitRaw(params.scale_pos_weight),
    "reg:pseudohubererror": lambda params: PseudoHuberError(params.huber_slope),
    "reg:absoluteerror": _absolute_error,
    "reg:quantileerror": _quantile_error,
    "count:poisson": lambda params: Poisson(params.max_delta_step),
    "reg:gamma": lambda params: Gamma(params.scale_pos_weight),
    "reg:tweedie": lambda params: Tweedie(params.tweedie_variance_power),
    "multi:softprob": lambda params: SoftProb(params.outputs),
    "multi:softmax": lambda params: SoftMax(params.outputs),
    "survival:aft": lambda params: AcceleratedFailureTime(
        params.aft_loss_distribution, params.aft_loss_distribution_scale
    ),
}
"""How each objective is made of the parameters that concern it."""


def objective_of(params: TrainParams) -> Objective:
    """The objective of a training."""
    return OBJECTIVES[params.objective](params)
