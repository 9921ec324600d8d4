"""Numbers between -1 and 1 under local differential privacy: unbiased, with known variances.

``laplace``: Dwork et al. 2006. ``duchi``: Duchi, Jordan, Wainwright 2013, one dimension.
``piecewise`` and ``hybrid``: Wang et al. 2019 (arXiv 1907.00782), Algorithm 2 and Section III-C.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["MECHANISMS", "Mechanism", "MechanismName"]

MechanismName = Literal["laplace", "duchi", "piecewise", "hybrid"]
Floats = NDArray[np.float64]


class Mechanism(ABC):
    """A random map under which any two numbers in [-1, 1] look alike up to ``exp(epsilon)``."""

    name: ClassVar[MechanismName]

    @abstractmethod
    def perturbed(self, values: Floats, epsilon: float, random: np.random.Generator) -> Floats:
        """``values`` (n,) in [-1, 1], each perturbed; its expectation is the value itself."""

    @abstractmethod
    def variance(self, values: Floats, epsilon: float) -> Floats:
        """The variance of ``perturbed`` at each of ``values``, in closed form."""


class Laplace(Mechanism):
    """Noise of scale ``2 / epsilon``; unbounded."""

    name = "laplace"

    def perturbed(self, values: Floats, epsilon: float, random: np.random.Generator) -> Floats:
        return values + random.laplace(scale=2 / epsilon, size=values.shape)

    def variance(self, values: Floats, epsilon: float) -> Floats:
        return np.full(values.shape, 8 / epsilon**2)


class Duchi(Mechanism):
    """One of two values, ``(e^epsilon + 1) / (e^epsilon - 1)`` or its negative.

    However large epsilon is, one bit is all that is sent: the noise does not go away.
    """

    name = "duchi"

    def perturbed(self, values: Floats, epsilon: float, random: np.random.Generator) -> Floats:
        bound = 1 / math.tanh(epsilon / 2)
        high = random.random(values.shape) < 0.5 + values / (2 * bound)
        return np.where(high, bound, -bound)

    def variance(self, values: Floats, epsilon: float) -> Floats:
        return 1 / math.tanh(epsilon / 2) ** 2 - np.square(values)


class Piecewise(Mechanism):
    """Mostly uniform in a short interval around the value, else anywhere in [-C, C]."""

    name = "piecewise"

    def perturbed(self, values: Floats, epsilon: float, random: np.random.Generator) -> Floats:
        bound = 1 / math.tanh(epsilon / 4)
        low = values * (bound + 1) / 2 - (bound - 1) / 2
        near = random.random(values.shape) < 1 / (1 + math.exp(-epsilon / 2))
        place = random.random(values.shape)
        # Outside [low, low + C - 1] lie C + low on the left and 1 - low on the right.
        far = place * (bound + 1) - bound
        far = np.where(far < low, far, far + bound - 1)
        return np.where(near, low + place * (bound - 1), far)

    def variance(self, values: Floats, epsilon: float) -> Floats:
        less = math.expm1(min(epsilon / 2, 350.0))
        return np.square(values) / less + (less + 4) / (3 * less) / less


class Hybrid(Mechanism):
    """``piecewise`` with probability ``1 - exp(-epsilon / 2)``, else ``duchi``.

    Only ``duchi`` up to epsilon = 0.61, where it has the smaller worst variance.
    """

    name = "hybrid"
    threshold: ClassVar[float] = 0.61

    def perturbed(self, values: Floats, epsilon: float, random: np.random.Generator) -> Floats:
        piecewise = _PIECEWISE.perturbed(values, epsilon, random)
        duchi = _DUCHI.perturbed(values, epsilon, random)
        return np.where(random.random(values.shape) < self._share(epsilon), piecewise, duchi)

    def variance(self, values: Floats, epsilon: float) -> Floats:
        share = self._share(epsilon)
        of_piecewise, of_duchi = (m.variance(values, epsilon) for m in (_PIECEWISE, _DUCHI))
        return share * of_piecewise + (1 - share) * of_duchi

    def _share(self, epsilon: float) -> float:
        return -math.expm1(-epsilon / 2) if epsilon > self.threshold else 0.0


_PIECEWISE, _DUCHI = Piecewise(), Duchi()

MECHANISMS: Mapping[MechanismName, Mechanism] = {
    mechanism.name: mechanism for mechanism in (Laplace(), _DUCHI, _PIECEWISE, Hybrid())
}
"""Mechanisms by name."""
