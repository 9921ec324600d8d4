"""The objectives' names, the parameters that concern each, and the metrics that fit it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from fedmq.errors import ConfigError

__all__ = [
    "AftDistribution",
    "ObjectiveName",
    "check_metric",
    "default_metric",
    "own_parameters",
]

ObjectiveName = Literal[
    "binary:logistic",
    "binary:logitraw",
    "reg:logistic",
    "reg:squarederror",
    "reg:squaredlogerror",
    "reg:pseudohubererror",
    "reg:absoluteerror",
    "reg:quantileerror",
    "count:poisson",
    "reg:gamma",
    "reg:tweedie",
    "multi:softprob",
    "multi:softmax",
    "survival:aft",
]
AftDistribution = Literal["normal", "logistic", "extreme"]

_DEFAULT_METRICS: Mapping[ObjectiveName, str] = {
    "binary:logistic": "logloss",
    "binary:logitraw": "logloss",
    "reg:logistic": "rmse",
    "reg:squarederror": "rmse",
    "reg:squaredlogerror": "rmsle",
    "reg:pseudohubererror": "mphe",
    "reg:absoluteerror": "mae",
    "reg:quantileerror": "quantile",
    "count:poisson": "poisson-nloglik",
    "reg:gamma": "gamma-deviance",
    "reg:tweedie": "tweedie-nloglik",
    "multi:softprob": "mlogloss",
    "multi:softmax": "mlogloss",
    "survival:aft": "aft-nloglik",
}

_OWN: Mapping[ObjectiveName, tuple[str, ...]] = {
    "reg:pseudohubererror": ("huber_slope",),
    "reg:quantileerror": ("quantile_alpha",),
    "reg:tweedie": ("tweedie_variance_power",),
    "multi:softprob": ("num_class",),
    "multi:softmax": ("num_class",),
    "survival:aft": ("aft_loss_distribution", "aft_loss_distribution_scale"),
    **dict.fromkeys(
        ("binary:logistic", "binary:logitraw", "reg:logistic", "reg:squarederror", "reg:gamma"),
        ("scale_pos_weight",),
    ),
}

_OF_SHARES = ("logloss", "auc", "error", "aucpr", "ks", "rmse", "mae")
_OF_TIMES = ("aft-nloglik", "interval-regression-accuracy")
_OF_CLASSES = ("mlogloss", "merror", "auc", "aucpr")
_OF_VALUES = (
    "rmse",
    "rmsle",
    "mae",
    "mape",
    "mphe",
    "quantile",
    "poisson-nloglik",
    "gamma-nloglik",
    "gamma-deviance",
    "tweedie-nloglik",
)
_OF_KIND: Mapping[str, tuple[str, ...]] = {
    "binary:logistic": _OF_SHARES,
    "binary:logitraw": _OF_SHARES,
    "reg:logistic": _OF_SHARES,
    "multi:softprob": _OF_CLASSES,
    "multi:softmax": _OF_CLASSES,
    "survival:aft": _OF_TIMES,
}

# A metric with an argument, as in tweedie-nloglik@1.5: least and most of it, and whether it must be
# given.
_ARGUMENTS: Mapping[str, tuple[float, float, bool]] = {
    "error": (0.0, 1.0, False),
    "tweedie-nloglik": (1.0, 2.0, True),
}


def own_parameters(objective: ObjectiveName) -> Sequence[str]:
    """The parameters that mean something for ``objective``, and not for all."""
    return _OWN.get(objective, ())


def default_metric(objective: ObjectiveName, tweedie_variance_power: float) -> str:
    """XGBoost's metric for ``objective`` where none is asked for."""
    name = _DEFAULT_METRICS[objective]
    return f"{name}@{tweedie_variance_power:g}" if name == "tweedie-nloglik" else name


def check_metric(metric: str, objective: ObjectiveName) -> None:
    """Raise ConfigError where ``metric`` is none, or none of ``objective``."""
    name, at, argument = metric.partition("@")
    allowed = _OF_KIND.get(objective, _OF_VALUES)
    if name not in allowed or (at and name not in _ARGUMENTS):
        raise ConfigError(
            f"eval_metric = {metric!r} does not fit {objective}; use {', '.join(allowed)}"
        )
    if name not in _ARGUMENTS or not (at or _ARGUMENTS[name][2]):
        return
    least, most, _ = _ARGUMENTS[name]
    try:
        fits = least <= float(argument) <= most and float(argument) != 2
    except ValueError:
        fits = False
    if not fits or (name == "tweedie-nloglik" and float(argument) == 1):
        raise ConfigError(f"eval_metric = {metric!r}: write {name}@{(least + most) / 2:g}, say")
