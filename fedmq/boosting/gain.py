"""What does a split gain, and what does a leaf weigh? Each rule of XGBoost, written once.

A rule combines numbers by operators, which round as IEEE 754 says: to float64 if an operand is a
float64, else to float32. The numbers are NumPy's arrays where sums are in the clear (`InTheClear`),
and words of a circuit where they are hidden. `NumberKind` says what a kind of numbers has beside
its operators.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.params import OLDEST, Arithmetic, TrainParams

__all__ = [
    "IN_THE_CLEAR",
    "Conditions",
    "Floats",
    "Gain",
    "GainParameters",
    "GainRule",
    "InTheClear",
    "NumberKind",
]


class _Operators(Protocol):
    def __add__(self, other: Any, /) -> Any: ...
    def __mul__(self, other: Any, /) -> Any: ...
    def __rmul__(self, other: Any, /) -> Any: ...
    def __neg__(self, /) -> Any: ...
    def __abs__(self, /) -> Any: ...


Number = TypeVar("Number", bound=_Operators)
Condition = TypeVar("Condition")


class NumberKind(Protocol[Number, Condition]):
    """What a kind of numbers has beside its operators."""

    def single(self, x: Number) -> Number:
        """``x`` rounded to float32."""

    def quotient(self, x: Number, y: Number, condition: Condition) -> Number:
        """``x / y`` under the condition that makes ``y`` positive, else 0."""

    def clipped(self, x: Number, lower: Number, upper: Number) -> Number:
        """``x`` moved to the nearer bound if it passes one."""

    def nearer_to_zero(self, x: Number, by: Number) -> Number:
        """``x``, nearer to zero but not beyond it: ``ThresholdL1``."""

    def excess(self, x: Number, y: Number) -> Number:
        """``x - y``; where that is below 0, any number below 0."""

    def when(self, condition: Condition, x: Number) -> Number:
        """``x`` under the condition, else 0."""

    def is_positive(self, x: Number) -> Condition:
        """``x > 0``, of a sum of hessians."""

    def at_least(self, x: Number, y: Number) -> Condition:
        """``x >= y``."""

    def is_heavy(self, x: Number, least: Number) -> Condition:
        """``x > 0`` and ``x >= least``, of a sum of hessians."""

    def both(self, x: Condition, y: Condition) -> Condition:
        """Whether both conditions hold."""

    def follows(self, x: Condition, y: Condition) -> Condition:
        """Whether ``y`` holds if ``x`` does."""


@dataclass(frozen=True)
class GainRule:
    """Which parts of XGBoost's rules a training needs, of the ``arithmetic`` of which release.

    ``shrinks``: sums of g, by ``reg_alpha``. ``limits``: weights, by ``max_delta_step``.
    ``bounds``: weights, by monotone constraints.
    """

    arithmetic: Arithmetic
    shrinks: bool = False
    limits: bool = False
    bounds: bool = False

    @staticmethod
    def of(params: TrainParams, *, bounds: bool = False) -> GainRule:
        """The rule of ``params``; ``bounds``: some column is under a monotone constraint."""
        shrinks, limits = params.reg_alpha > 0, params.max_delta_step > 0
        return _rule(params.xgboost_arithmetic, shrinks, limits, bounds)

    @cached_property
    def is_oldest(self) -> bool:
        """Whether the arithmetic is that of XGBoost 3.2."""
        return self.arithmetic == OLDEST

    @cached_property
    def weighs(self) -> bool:
        """Whether a gain is computed from a weight; else it is a quotient of sums."""
        return not self.is_oldest or self.limits or self.bounds


@cache
def _rule(arithmetic: Arithmetic, shrinks: bool, limits: bool, bounds: bool) -> GainRule:
    return GainRule(arithmetic, shrinks, limits, bounds)


@dataclass(frozen=True, slots=True, eq=False)
class GainParameters(Generic[Number]):
    """The numbers of a rule, all of which float32 has; products with ``reg_alpha`` are float64.

    ``lower`` and ``upper`` bound weights, and are None where nothing does.
    """

    reg_lambda: Number
    reg_alpha: Number
    max_delta_step: Number
    min_child_weight: Number
    lower: Number | None = None
    upper: Number | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Gain(Generic[Number, Condition]):
    """The gains of splits, and the weights of leaves, by a rule and its numbers.

    ``G`` and ``H`` are sums of g and h in float64.
    """

    kind: NumberKind[Number, Condition]
    rule: GainRule
    parameters: GainParameters[Number]

    def of_split(
        self, left: tuple[Number, Number], right: tuple[Number, Number], node: Number
    ) -> Number:
        """The gain of a split over its ``node`` unsplit: float32 of the sums G and H of sides."""
        return self.kind.excess(self.of_side(*left) + self.of_side(*right), node)

    def of_ordered_split(
        self,
        rises: Condition,
        falls: Condition,
        left: tuple[Number, Number],
        right: tuple[Number, Number],
        node: Number,
    ) -> tuple[Number, Condition]:
        """The same under bounds, and whether a column that must rise or fall has its weights so."""
        kind, leaves = self.kind, (self.leaf(*left), self.leaf(*right))
        sides = self.of_leaf(*left, leaves[0]) + self.of_leaf(*right, leaves[1])
        rising = kind.follows(rises, kind.at_least(leaves[1], leaves[0]))
        falling = kind.follows(falls, kind.at_least(leaves[0], leaves[1]))
        return kind.excess(sides, node), kind.both(rising, falling)

    def of_side(self, G: Number, H: Number) -> Number:
        """The value of a side, float32.

        3.2 computes L1(G)^2 / (H + lambda), a quotient of float32s, unless weights have bounds.
        """
        if self.rule.weighs:
            return self.of_leaf(G, H, self.leaf(G, H))
        kind, present = self.kind, self.kind.is_positive(H)
        shrunk = self.shrunk(G)
        square = kind.single(shrunk * shrunk)
        return kind.quotient(square, kind.single(H + self.parameters.reg_lambda), present)

    def of_leaf(self, G: Number, H: Number, weight: Number) -> Number:
        """The value of a side with this weight, float32: ``CalcGainGivenWeight``.

        3.4 computes it in float64, 3.2 in float32.
        """
        kind = self.kind
        if self.rule.is_oldest:
            gain = self.of_weight(kind.single(G), kind.single(H), weight)
        else:
            gain = kind.single(self.of_weight(G, H, weight))
        return kind.when(kind.is_positive(H), gain)

    def of_weight(self, G: Number, H: Number, w: Number) -> Number:
        """-(2 G w + (H + lambda) w^2 + 2 alpha |w|): ``CalcGainGivenWeight``; 3.2 has no alpha."""
        numbers = self.parameters
        loss = 2 * G * w + (H + numbers.reg_lambda) * (w * w)
        if self.rule.shrinks and not self.rule.is_oldest:
            loss = loss + 2 * numbers.reg_alpha * abs(w)
        gain: Number = -loss
        return gain

    def leaf(self, G: Number, H: Number) -> Number:
        """The weight of a leaf without eta, within its bounds: float32."""
        numbers, weight = self.parameters, self.kind.single(self.weight(G, H))
        if numbers.lower is None or numbers.upper is None:
            return weight
        return self.kind.clipped(weight, numbers.lower, numbers.upper)

    def weight(self, G: Number, H: Number) -> Number:
        """-L1(G) / (H + lambda), at most max_delta_step from zero, in float64: ``CalcWeight``.

        Zero without hessian, and in 3.2 where a node is lighter than min_child_weight.
        """
        kind, numbers = self.kind, self.parameters
        if self.rule.is_oldest:
            heavy = kind.is_heavy(H, numbers.min_child_weight)
        else:
            heavy = kind.is_positive(H)
        weight = kind.quotient(-self.shrunk(G), H + numbers.reg_lambda, heavy)
        if self.rule.limits:
            limit = numbers.max_delta_step
            weight = kind.clipped(weight, -limit, limit)
        return weight

    def shrunk(self, G: Number) -> Number:
        """G, nearer to zero by alpha."""
        return self.kind.nearer_to_zero(G, self.parameters.reg_alpha) if self.rule.shrinks else G


Floats = NDArray[Any]
"""Numbers in the clear: float64 or float32."""

Conditions = NDArray[np.bool_]


class InTheClear:
    """NumPy's arrays; `NumberKind` says what each operation is.

    Parameters are Python's numbers, which take the type of the array they meet.
    """

    def single(self, x: Floats) -> Floats:
        return x.astype(np.float32)

    def quotient(self, x: Floats, y: Floats, condition: Conditions) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore"):
            found = np.asarray(x / y)
        np.putmask(found, ~condition, 0)
        return found

    def clipped(self, x: Floats, lower: Floats, upper: Floats) -> Floats:
        return np.clip(x, lower, upper)

    def nearer_to_zero(self, x: Floats, by: Floats) -> Floats:
        return np.where(by < x, x - by, np.where(-by > x, x + by, 0.0))

    def excess(self, x: Floats, y: Floats) -> Floats:
        return x - y

    def when(self, condition: Conditions, x: Floats) -> Floats:
        return np.where(condition, x, x.dtype.type(0))

    def is_positive(self, x: Floats) -> Conditions:
        return x > 0

    def at_least(self, x: Floats, y: Floats) -> Conditions:
        return x >= y

    def is_heavy(self, x: Floats, least: Floats) -> Conditions:
        return (x > 0) & (x >= least)

    def both(self, x: Conditions, y: Conditions) -> Conditions:
        return x & y

    def follows(self, x: Conditions, y: Conditions) -> Conditions:
        return ~x | y


IN_THE_CLEAR = InTheClear()
