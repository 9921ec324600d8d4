"""Functions of float32 as XGBoost's C++ has them: ``expf``, ``expm1f``, ``logf``, ``log1pf``,
``lgammaf``, ``hypotf``, ``tanhf``.

Each is computed in float64 and rounded once, as a correctly rounded function. NumPy's own float32
functions have larger errors than the C library's.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "exp",
    "expm1",
    "hypot",
    "lgamma",
    "log",
    "log1p",
    "log_of",
    "sigmoid",
    "softplus",
    "tanh",
]

_ONE = np.float32(1)
_LARGEST_EXPONENT = np.float32(88.7)  # exp of more overflows float32

_lgamma = np.frompyfunc(math.lgamma, 1, 1)


def exp(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """e to the ``x``; inf beyond the largest float32."""
    with np.errstate(over="ignore"):
        return np.exp(np.asarray(x, np.float64)).astype(np.float32)


def expm1(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """e to the ``x``, less 1."""
    return np.expm1(np.asarray(x, np.float64)).astype(np.float32)


def log(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """The natural logarithm; -inf of 0, NaN below."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(np.asarray(x, np.float64)).astype(np.float32)


def log_of(x: float | np.float32) -> np.float32:
    """The natural logarithm of one positive number."""
    return np.float32(math.log(np.float32(x)))


def log1p(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """The natural logarithm of ``1 + x``."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log1p(np.asarray(x, np.float64)).astype(np.float32)


def lgamma(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """The logarithm of the gamma function of positive ``x``."""
    return np.asarray(_lgamma(np.asarray(x, np.float64)), np.float64).astype(np.float32)


def hypot(x: NDArray[np.float32], y: NDArray[np.float32]) -> NDArray[np.float32]:
    """The root of ``x * x + y * y``."""
    wide = np.square(np.asarray(x, np.float64)) + np.square(np.asarray(y, np.float64))
    root: NDArray[np.float32] = np.sqrt(wide).astype(np.float32)
    return root


def tanh(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """The hyperbolic tangent."""
    return np.tanh(np.asarray(x, np.float64)).astype(np.float32)


def sigmoid(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """``1 / (1 + exp(-x))``, whose exponential stays below the largest float32."""
    return _ONE / (exp(np.minimum(-x, _LARGEST_EXPONENT)) + _ONE)


def softplus(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """``log(1 + exp(x))``, whose exponential stays below 1."""
    return np.maximum(x, np.float32(0)) + log1p(exp(-np.abs(x)))
