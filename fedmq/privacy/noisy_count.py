"""How is a number of people told without telling of one of them? With noise, and rounded.

The noise is of the discrete Laplace distribution (Ghosh, Roughgarden and Sundararajan 2009). Where
lists differ by one person, what is told is at most exp(1 / SCALE) times as likely for one of them.
"""

from __future__ import annotations

import math
from random import Random

__all__ = ["SCALE", "STEP", "drawn_noise", "told"]

SCALE = 20
"""The noise's mean distance from 0, nearly; one person counts for 1/20."""
STEP = 10
"""What is told is a multiple of it."""


def drawn_noise(random: Random) -> int:
    """Noise for one number: the difference of two geometric draws of ``random``."""
    first, second = (math.floor(-SCALE * math.log(1 - random.random())) for _ in range(2))
    return first - second


def told(people: int, noise: int) -> int:
    """The number of ``people`` with ``noise``, rounded; never below 0."""
    return max(0, STEP * round((people + noise) / STEP))
