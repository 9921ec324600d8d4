"""Which releases of XGBoost compute alike?

XGBoost 3.4 takes gains from rounded weights, leaves ``min_child_weight`` to splits alone, smooths
the absolute and the quantile error, and draws DART's trees otherwise. A model is that of one of
both, so its parameters name which.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib import metadata
from typing import Any, Literal

__all__ = ["NEWEST", "OLDEST", "Arithmetic", "arithmetic_of", "as_stored", "default_arithmetic"]

Arithmetic = Literal["3.2", "3.4"]
"""The first release that computes so, as far as fedmq has compared them."""

OLDEST: Arithmetic = "3.2"
NEWEST: Arithmetic = "3.4"

_PACKAGES = ("xgboost", "xgboost-cpu")


def arithmetic_of(version: str) -> Arithmetic:
    """The arithmetic of an XGBoost of this ``version``, as in ``"3.4.1"``."""
    major, minor = (int(part) for part in version.split(".")[:2])
    return NEWEST if (major, minor) >= (3, 4) else OLDEST


@functools.cache
def default_arithmetic() -> Arithmetic:
    """That of the XGBoost installed beside fedmq, which a model is compared with; else the newest.

    Newer releases of XGBoost need Python 3.12: where they cannot be had, a default that no XGBoost
    at hand computes could not be checked.
    """
    for package in _PACKAGES:
        try:
            return arithmetic_of(metadata.version(package))
        except metadata.PackageNotFoundError:
            continue
    return NEWEST


def as_stored(params: Any) -> Any:
    """``params`` as a file holds them: one written before they named an arithmetic is of 3.2."""
    return {"xgboost_arithmetic": OLDEST, **params} if isinstance(params, Mapping) else params
