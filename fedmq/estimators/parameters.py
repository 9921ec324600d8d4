"""The parameters of a training, by the names of XGBoost's scikit-learn estimators."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from fedmq.boosting.params import ALIASES, TrainParams

__all__ = ["DEFAULT_ROUNDS", "TRAINING_PARAMETERS", "check_known", "with_training_parameters"]

DEFAULT_ROUNDS = 100
"""Rounds where ``n_estimators`` is left out, as in XGBoost's estimators."""

_NAMES = {"eta": "learning_rate", "num_boost_round": "n_estimators", "seed": "random_state"}
_FROM_LABELS = "num_class"

TRAINING_PARAMETERS: Mapping[str, str] = {
    _NAMES.get(field, field): field for field in TrainParams.model_fields if field != _FROM_LABELS
}
"""The field of :class:`fedmq.TrainParams` by the estimators' name for it."""


def with_training_parameters(init: Callable[..., None]) -> Callable[..., None]:
    """``init`` whose signature shows every training parameter in place of its ``**params``.

    Each is None where it is left out: XGBoost's default then.
    """
    signature = inspect.signature(init)
    own = [given for given in signature.parameters.values() if given.kind != given.VAR_KEYWORD]
    named = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None)
        for name in TRAINING_PARAMETERS
    ]
    shown = signature.replace(parameters=[*own, *named])
    init.__signature__ = shown  # type: ignore[attr-defined]  # inspect reads it from any function
    return init


def check_known(estimator: str, params: Mapping[str, Any]) -> None:
    """Raise `TypeError` where ``params`` names what is no training parameter of ``estimator``."""
    for name in params:
        if name in TRAINING_PARAMETERS:
            continue
        if name == _FROM_LABELS:
            raise TypeError(f"{estimator}: {name} is read from the labels; leave it out")
        field = ALIASES.get(name, name)
        known = _NAMES.get(field, field)
        meant = f"; it is called {known} here" if known in TRAINING_PARAMETERS else ""
        raise TypeError(f"{estimator}: unexpected parameter {name!r}{meant}")
