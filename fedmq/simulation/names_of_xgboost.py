"""Arguments as ``xgboost.train`` and ``xgboost.cv`` take them, answered by what to use here."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

__all__ = ["answering_names_of_xgboost"]

_ELSEWHERE = {
    "data": "active and passive are its parts, and label in a training",
    "dtrain": "active, label and passive are its parts",
    "early_stopping_rounds": "it belongs into params",
    "eval_set": "evaluation says which rows, {'eval': mask}, or has tables of its own",
    "evals": "evaluation says which rows, {'eval': mask}, or has tables of its own",
    "evals_result": "the model that is returned has it",
    "feval": "it is called custom_metric",
    "num_boost_round": "it belongs into params",
    "sample_weight": "it is called weight",
    "show_stdv": "the result has the standard deviations",
    "verbose_eval": "on_report is called after each tree",
    "xgb_model": "it is called continue_from",
}
"""XGBoost's names, and what to use here."""

_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")


def answering_names_of_xgboost(function: Callable[_Given, _Found]) -> Callable[_Given, _Found]:
    """``function``, whose `TypeError` for XGBoost's arguments is a line that says what to give."""
    taken = inspect.signature(function).parameters
    places = sum(given.kind != given.KEYWORD_ONLY for given in taken.values())
    named = [
        f"{name}=..."
        for name, given in taken.items()
        if given.kind == given.KEYWORD_ONLY and given.default is given.empty
    ]

    @functools.wraps(function)
    def call(*args: _Given.args, **kwargs: _Given.kwargs) -> _Found:
        if len(args) > places:
            usage = f"{function.__name__}({', '.join(named)}, ...)"
            raise TypeError(f"{function.__name__}: every argument has its name here: {usage}")
        for name in kwargs:
            if name in _ELSEWHERE and name not in taken:
                raise TypeError(f"{function.__name__}: {name}: {_ELSEWHERE[name]}")
        return function(*args, **kwargs)

    return call
