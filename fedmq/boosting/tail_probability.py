"""How likely is a chi-square or an F at least this large, if a column says nothing of the label?

By the incomplete gamma and beta functions, as series and continued fractions (Press et al.,
Numerical Recipes, 6.2 and 6.4).
"""

from __future__ import annotations

import math

__all__ = ["above_chi_square", "above_f"]

_MOST_TERMS = 100_000
_EXACT = 1e-15
_TINY = 1e-300


def above_chi_square(value: float, degrees: int) -> float:
    """The chance that a chi-square of so many ``degrees`` of freedom is above ``value``."""
    if value <= 0:
        return 1.0
    a, x = degrees / 2, value / 2
    scale = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1:
        return 1.0 - scale * _gamma_series(a, x)
    return scale * _gamma_fraction(a, x)


def above_f(value: float, between: int, within: int) -> float:
    """The chance that F is above ``value``, of ``between`` and ``within`` degrees of freedom."""
    if value <= 0:
        return 1.0
    a, b = within / 2, between / 2
    explained = between * value
    x, rest = within / (within + explained), explained / (within + explained)
    scale = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log(rest)
    )
    if x < (a + 1) / (a + b + 2):
        return scale * _beta_fraction(a, b, x) / a
    return 1.0 - scale * _beta_fraction(b, a, rest) / b


def _gamma_series(a: float, x: float) -> float:
    term = total = 1 / a
    for number in range(1, _MOST_TERMS):
        term *= x / (a + number)
        total += term
        if term < total * _EXACT:
            break
    return total


def _gamma_fraction(a: float, x: float) -> float:
    b = x + 1 - a
    c, d = 1 / _TINY, 1 / b
    fraction = d
    for number in range(1, _MOST_TERMS):
        numerator = -number * (number - a)
        b += 2
        d = 1 / _away_from_zero(numerator * d + b)
        c = _away_from_zero(b + numerator / c)
        fraction *= d * c
        if abs(d * c - 1) < _EXACT:
            break
    return fraction


def _beta_fraction(a: float, b: float, x: float) -> float:
    c, d = 1.0, 1 / _away_from_zero(1 - (a + b) * x / (a + 1))
    fraction = d
    for number in range(1, _MOST_TERMS):
        even = number * (b - number) * x / ((a + 2 * number - 1) * (a + 2 * number))
        odd = -(a + number) * (a + b + number) * x / ((a + 2 * number) * (a + 2 * number + 1))
        for numerator in (even, odd):
            d = 1 / _away_from_zero(1 + numerator * d)
            c = _away_from_zero(1 + numerator / c)
            fraction *= d * c
        if abs(d * c - 1) < _EXACT:
            break
    return fraction


def _away_from_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
