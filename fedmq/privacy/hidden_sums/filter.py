"""Which few candidates of a node can gain most? Those whose rough gain lies within a proven bound.

Let lambda be ``reg_lambda``, G and H the sums of a node, T = H + 2 lambda and mu = G / T. With
a = H_L + lambda, b = T - a and D = G_L - mu a,

    G_L² / a + G_R² / b = G² / T + T D² / (a b),

so the candidates of a node are ordered by r = D² / (a b). The active party knows T and mu. It
multiplies the shared sums by numbers of its own choice: x = c_x a and d = c_d D in fixed point,
X = c_x T. Of V = x (X - x) and S = d² a circuit computes rho = S / V, in units of what the active
party's own best candidate is worth.

Shares are cut off without any error but a floor: if a + p = v modulo 2^m, then (a >> t) + (p >> t)
lies in (v / 2^t - 2, v / 2^t] modulo 2^(m - t). So all numbers are as short as their bounds allow.

`Precision` has the lengths of all numbers and what follows of them; `NodeFactors` are what the
active party chooses for a node, and the proof that the node keeps to the bounds:

*   |x - c_x a| <= 2.6 and |d - c_d D| <= 3 (checked for each node);
*   the circuit's V^ is V or at most 2 ``weight_error`` more, in units of 2^-19; its S^ is below S
    by ``lowered`` and at most ``square_error`` more or less. V^ is shifted, and cut off, ten times;
*   so the quotient q is at most 2^9 rho, and 2^9 rho at most q + ``slack`` (V), where quotients are
    short; longer ones have other powers of 2, with the same proof;
*   XGBoost's own roundings move r by less than half a unit of q. In 3.2 they are float32's, each
    relative to a side's gain or the node's: of a square, of H + lambda and of their quotient, then
    of a sum and a difference. 3.4 takes a float32 weight w = -(1 + e) G / (H + lambda), and
    -(2 G w + (H + lambda) w²) = (1 - e²) G² / (H + lambda): of e, at most 2^-23, only the square
    counts. float64's roundings are smaller still; one to float32, the sum's and the difference's
    remain. Where w is too small for float32, its side is worth less than 2^-60.

Nothing of this holds for gains of other rules: `GainCircuit.filters` says which.

Let c* be the candidate that XGBoost names: the first of those with the largest float32 gain. Every
candidate c that is heavy enough has q(c) <= 2^9 rho(c) <= 2^9 rho(c*) + 1 <= upper(c*), where
``upper`` is q + slack + 1. If c* gains more than the active party's best, then upper(c*) is also
at least that one's quotient, rounded down. So c* is among the candidates whose ``upper`` is at
least the largest q of candidates that are certainly heavy enough, and at least what is to beat; as
are all that tie with c*.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.gradients import FixedPoint
from fedmq.boosting.node_rows import taken
from fedmq.boosting.params import TrainParams
from fedmq.boosting.splits import SMALLEST_GAIN
from fedmq.computation import computation
from fedmq.privacy.hidden_sums.shares import Field

__all__ = [
    "MOST_SLOTS",
    "SLOTS",
    "UNRANKED",
    "FilterLevel",
    "KnownNode",
    "NodeFactors",
    "Precision",
    "Unfit",
    "choose_factors",
    "choose_factors_of_rows",
]

SLOTS = 4
"""Candidates of a node that are compared exactly, of most nodes."""

MOST_SLOTS = 16
"""The same of a crowded node, where more may be the best, and where quotients reach far."""


@dataclass(frozen=True, slots=True)
class Precision:
    """The lengths of numbers for fields of ``field_bits``.

    ``x_bits`` and ``d_bits``: binary places of x and d. ``headroom``: bits of d above those.
    ``places``: binary places of S and V in the circuit. ``quotient_bits``: of a quotient in [0, 2).
    ``dropped``: bits dropped from shared sums. ``x_guard``, ``d_guard`` and ``product_guard``:
    bits below a number until it is complete. Of the multipliers of x, of g and, signed, of h:
    ``x_factor``, ``g_factor`` and ``h_factor`` bits. ``reaches``: quotients reach far, so that more
    than what is to beat decides what a quotient of 1 is.
    """

    field_bits: int
    x_bits: int = 20
    d_bits: int = 18
    headroom: int = 6
    places: int = 19
    quotient_bits: int = 10
    dropped: int = 12
    x_guard: int = 3
    d_guard: int = 6
    product_guard: int = 4
    x_factor: int = 21
    g_factor: int = 43
    h_factor: int = 48
    reaches: bool = False

    x_error: ClassVar[float] = 2.6
    """The most that x differs from c_x a, checked for each node."""
    d_error: ClassVar[float] = 3.0
    """The same of d."""

    @classmethod
    def of(cls, field: Field) -> Precision:
        """Of sums in fields: the shortest ones lose no bit."""
        return cls(field.bits, dropped=min(12, max(0, field.bits - 45)))

    @classmethod
    def fine(cls, field: Field) -> Precision:
        """The same for the few candidates in slots, whose quotients have 16 bits."""
        return cls(
            field.bits,
            x_bits=26,
            d_bits=22,
            places=28,
            quotient_bits=16,
            dropped=min(4, max(0, field.bits - 45)),
            g_factor=52,
            h_factor=57,
        )

    @classmethod
    def far(cls, field: Field) -> Precision:
        """Of all candidates, where short quotients tell too few apart, and of those in slots."""
        return replace(
            cls.fine(field),
            x_bits=28,
            d_bits=24,
            headroom=5,
            places=30,
            quotient_bits=18,
            g_factor=54,
            h_factor=59,
            reaches=True,
        )

    @classmethod
    def of_filter(cls, field: Field, *, far: bool) -> Precision:
        """Of all candidates."""
        return cls.far(field) if far else cls.of(field)

    @classmethod
    def of_ranks(cls, field: Field, *, far: bool) -> Precision:
        """Of those in slots."""
        return cls.far(field) if far else cls.fine(field)

    @property
    def lost(self) -> int:
        """Half of what dropped bits of shares take off a sum at most, in units of 2^dropped."""
        return 1 if self.dropped else 0

    @property
    def x_modulus(self) -> int:
        """Bits of x, and of V before it is cut off."""
        return 2 * self.x_bits - 1

    @property
    def d_modulus(self) -> int:
        """Bits of d; S has one more before it is cut off."""
        return 2 * self.d_bits + 2 * self.headroom - 2

    @property
    def x_shift(self) -> int:
        """x's multiplier is an integer times 2 to minus this."""
        return self.field_bits - 1 - self.dropped + 4 - self.x_bits

    @property
    def d_shift(self) -> int:
        """The same of d's multipliers."""
        return self.field_bits - self.dropped + 2

    @property
    def wrap_bits(self) -> int:
        """Bits of a shared carry of a field."""
        return self.d_modulus + self.d_guard + 2

    @property
    def weight_bits(self) -> int:
        """Bits of V."""
        return self.places - 1

    @property
    def square_bits(self) -> int:
        """Bits of S, and of its sign."""
        return self.places + 2 * self.headroom - 1

    @property
    def weight_shift(self) -> int:
        """Bits that V is cut off by, first."""
        return 2 * self.x_bits - self.places - self.product_guard

    @property
    def square_shift(self) -> int:
        """Bits that S is cut off by, first."""
        return 2 * self.d_bits - self.places - self.product_guard

    @property
    def shared_weight_bits(self) -> int:
        """Bits of V while it is summed up."""
        return self.x_modulus - self.weight_shift

    @property
    def shared_square_bits(self) -> int:
        """Bits of S while it is summed up."""
        return self.d_modulus + 1 - self.square_shift

    @property
    def unit(self) -> int:
        """A quotient of 1."""
        return 1 << (self.quotient_bits - 1)

    @property
    def weight_error(self) -> int:
        """In units of V: V^ - 2 * this < V <= V^."""
        error = self.x_error * 2**self.x_bits + self.x_error**2
        of_x = math.ldexp(error, self.places - 2 * self.x_bits)
        return math.ceil(of_x + self._floors(self.x_modulus)) + 1

    def square_error(self, weight: float) -> float:
        """Of S, in units of 2^-places, where V is ``weight`` and rho at most 2."""
        of_d = math.ldexp(math.sqrt(2 * weight) * self.d_error, 1 + self.places - self.d_bits)
        more = math.ldexp(self.d_error**2, self.places - 2 * self.d_bits)
        return of_d + more + self._floors(self.d_modulus)

    def _floors(self, parts: int) -> float:
        """Half of what the floors of so many parts of a product, and of the product, take off."""
        return (math.ldexp(parts + 2, -self.product_guard) + 2) / 2

    @property
    def lowered(self) -> int:
        """What is taken off S, so that no quotient is too large."""
        return math.ceil(self.quotient_bits + self.square_error(0.25))

    def slack(self, weight: float) -> float:
        """The most by which 2^9 rho exceeds q, where V^ is at least ``weight``."""
        lost = self.lowered + self.square_error(weight) + 4 * self.weight_error
        return 1 + math.ldexp(self.unit * lost / weight, -self.places)

    def slacks(self) -> list[tuple[int, int]]:
        """By the least V^, a power of two as its exponent, what the circuit adds to q.

        One more than the slack, for XGBoost's own roundings. Below the last exponent every
        candidate may be the best.
        """
        exponent, added, place, found = self.places - 4, 3, 2, []
        while exponent > _LIGHTEST:
            found.append((exponent, added))
            if place <= self.quotient_bits:
                added += 1 << place
            place += 2
            exponent -= 2
        return [*found, (_LIGHTEST, added)]

    @property
    def doubt_bits(self) -> int:
        """A V^ above the least weight's by 2 to this is certainly heavy enough."""
        return (2 * self.weight_error + 2).bit_length()

    def check(self) -> None:
        """Raise ValueError unless the circuit's slacks are enough: a property of the lengths."""
        largest = 1 << self.quotient_bits
        for exponent, added in self.slacks():
            needed = self.slack(2.0 ** (exponent - self.places)) + 1
            if added < min(needed, largest):
                raise ValueError(f"a slack of {added} where {needed:.1f} is needed")


_ROWS_AT_ONCE = 2**14  # their numbers stay in a cache

_LIGHTEST = 6
"""Of a lighter V^ than 2^6 units nothing is known."""


@dataclass(frozen=True, slots=True)
class KnownNode:
    """What the active party knows of a node: integers of fixed point, and gains.

    ``g``, ``h``: its sums; ``to_beat``: the gain of the best so far. ``spread``: an upper bound of
    sum of g² / h over its rows, inf if unknown. ``deviation``: half of sum of |g - mu h|.
    ``lightest``: the least positive h of a row. ``foreseen``: a gain that the best may be near, 0
    if none is known. All but gains in fixed point.
    """

    g: int
    h: int
    to_beat: float
    spread: float
    deviation: float
    lightest: int
    foreseen: float = 0.0

    @classmethod
    def of(
        cls,
        pairs: NDArray[np.int64],
        total: NDArray[np.int64],
        to_beat: float,
        foreseen: float,
        reg_lambda: int,
    ) -> KnownNode:
        """``pairs`` int64 (rows, 2): g and h of the node's rows, whose sums are ``total``."""
        total_g, total_h = map(int, total)
        middle = total_g / (total_h + 2 * reg_lambda) if total_h + reg_lambda > 0 else 0.0
        spread, deviation, lightest = 0.0, 0.0, np.iinfo(np.int64).max
        for start in range(0, len(pairs), _ROWS_AT_ONCE):
            columns = np.ascontiguousarray(pairs[start : start + _ROWS_AT_ONCE].T)
            g, h = columns.astype(np.float64)
            deviation += float(np.abs(g - middle * h).sum())
            of_h = columns[1]
            positive = of_h > 0
            if not positive.all():
                if (columns[0].astype(np.bool_) & ~positive).any():
                    spread = math.inf
                h = np.where(positive, h, 1.0)
                of_h = np.where(positive, of_h, lightest)
            spread += float((g * g / h).sum())
            lightest = int(of_h.min(initial=lightest))
        return cls(total_g, total_h, to_beat, spread, deviation / 2, lightest, foreseen)


class Unfit(Exception):
    """A node that the fixed point of the filter does not hold."""


@dataclass(frozen=True, slots=True)
class NodeFactors:
    """What the active party chooses for a node.

    ``x``, ``g``, ``h``: multipliers, of which x is ``x`` 2^-x_shift H and d is
    (``g`` G - ``h`` H) 2^-d_shift; ``total`` is X; ``x_offset`` and ``d_offset`` are added to x and
    d, guard bits included. ``least_weight``: V^ of the least heavy side. ``to_beat``: a quotient.
    ``beaten``: a quotient, 1 less than one that surely gains more. ``unit``: r of rho = 1, in
    integers of fixed point. ``fine``: the same for ranks; None if that does not fit.
    """

    x: int
    g: int
    h: int
    total: int
    x_offset: int
    d_offset: int
    least_weight: int
    to_beat: int
    beaten: int
    unit: float
    fine: NodeFactors | None = None

    @classmethod
    def of(
        cls,
        known: KnownNode,
        precision: Precision,
        scale: FixedPoint,
        params: TrainParams,
    ) -> NodeFactors:
        """The factors of a node.

        A quotient of 2 is six times what is to beat, or, if it ``reaches`` far, more than that and
        16 times what is foreseen.

        Raises:
            Unfit: the node does not keep to the bounds of ``precision``.
        """
        c = precision
        reg_lambda = math.ldexp(float(np.float32(params.reg_lambda)), scale.h_bits)
        if not reg_lambda.is_integer():
            raise Unfit("lambda")
        lam = int(reg_lambda)
        whole = known.h + 2 * lam
        if whole <= 0:
            raise Unfit("a node without weight")
        weight = whole / 2.0**c.dropped
        x = _few_bits(min(0.98 * 2.0 ** (c.x_bits + c.x_shift) / weight, 2.0**62))
        if not 8 <= x < 1 << c.x_factor:
            raise Unfit("a node of another weight than most")
        c_x = math.ldexp(x, -c.x_shift)
        if c.lost * c_x + 0.5 + (8 / 2.0**c.x_guard + 2) / 2 > c.x_error:
            raise Unfit("x too coarse")

        # The node's own gain, and what is to beat, of r; XGBoost rounds each side's.
        least = max(1, known.lightest, _fixed(params.min_child_weight, scale))
        own = known.g * known.g / (known.h + lam) if known.h + lam else 0.0
        constant = own - known.g * known.g / whole
        shift = 2 * scale.g_bits - scale.h_bits
        to_beat = math.ldexp(max(known.to_beat, params.gamma, float(SMALLEST_GAIN)), shift)
        worth = (to_beat + constant) / whole
        most = known.spread - known.g * known.g / whole
        side = (least + lam) / whole
        if 0 < side < 0.5:
            most = min(most, known.deviation**2 / (whole * side * (1 - side)))
        most = max(most, 0.0) * _ABOVE / whole
        rounded = 2.0**-20 * own / whole

        # Any unit is right; a good one is some times what the best candidate is worth. Where that
        # is unknown, a unit below what is to beat would tell no candidate that wins from others.
        expected = 3 * worth
        if c.reaches and known.foreseen:
            foreseen = math.ldexp(known.foreseen, shift) + constant
            expected = 8 * max(worth, foreseen / whole)
        elif c.reaches:
            expected = max(48 * worth, most / 4)
        elif known.to_beat <= SMALLEST_GAIN:
            expected = max(2 * worth, most / _EXPECTED)
        unit = max(min(expected, most), most * 2.0 ** (-2 * c.headroom), _SMALLEST)
        if not math.isfinite(unit):
            raise Unfit("a gain without a bound")
        for _ in range(_TRIES):
            c_d = c_x * 2.0 ** (c.d_bits - c.x_bits) / math.sqrt(unit)
            g = _few_bits(min(math.ldexp(c_d, c.d_shift), (1 << c.g_factor) - 1))
            if g < 8:
                raise Unfit("gradients of another scale than most")
            c_d = math.ldexp(g, -c.d_shift)
            unit = (c_x * 2.0 ** (c.d_bits - c.x_bits) / c_d) ** 2
            h = (2 * g * known.g + whole) // (2 * whole)
            signed = -h % (1 << c.h_factor)
            floors = (2 * g.bit_count() + 2 * signed.bit_count() + 3) / 2.0**c.d_guard
            lost_g = 1 + 2.0**-c.dropped  # with the carry from h
            error = c.lost * (c_d * lost_g + math.ldexp(abs(h), -c.d_shift)) + (floors + 2) / 2
            error += 0.5 * math.ldexp(weight, -c.d_shift)
            if (
                abs(h) < 1 << (c.h_factor - 1)
                and error <= c.d_error
                and 2 * rounded <= unit / c.unit * (1 - 2.0 ** max(-6, c.quotient_bits - 20))
            ):
                break
            unit *= 2
        else:
            raise Unfit("d too coarse")

        lost = c.lost << c.dropped
        bound = 1 << (c.field_bits - 2)  # which the active party has added to its field of g
        of_x = _times_power(x * (lam + lost), c.x_guard - c.x_shift - c.dropped)
        of_d = _times_power(
            g * (lost - bound) - h * (lam + lost), c.d_guard - c.d_shift - c.dropped
        )
        lightest = (least + lam) / 2.0**c.dropped * c_x
        total = c_x * weight
        none = (1 << c.weight_bits) - 1  # more than any V
        least_weight = lightest * (total - lightest) * 2.0 ** (c.places - 2 * c.x_bits)
        rounding = 2.0**-20 * (to_beat + 2 * constant + own)
        least_beat, most_beat = (
            max(0.0, to_beat + constant + moved) / whole / unit * c.unit
            for moved in (-rounding, rounding)
        )
        return cls(
            x,
            g,
            h,
            round(total),
            of_x + 4 + (1 << c.x_guard),
            of_d + int(floors * 2**c.d_guard / 2 + 2**c.d_guard),
            none if 2 * (least + lam) > whole else max(0, math.floor(least_weight * (1 - 1e-9))),
            min(1 << c.quotient_bits, math.floor(least_beat)),
            math.ceil(most_beat) if most_beat < 1 << c.quotient_bits else 1 << c.quotient_bits,
            unit,
        )


UNRANKED = NodeFactors(0, 0, 0, 0, 0, 0, 0, 0, 0, 0.0)
"""Factors of a node of which nothing is asked."""


@computation("ChooseFactors")
def choose_factors_of_rows(
    gradients: NDArray[np.int64],
    rows: Sequence[NDArray[np.int32]],
    totals: NDArray[np.int64],
    best: NDArray[np.float32],
    foreseen: NDArray[np.float32],
    scale: FixedPoint,
    params: TrainParams,
    field: Field,
    far: bool,
) -> list[NodeFactors | None]:
    """`choose_factors` for nodes of these ``rows`` of all ``gradients``, int64 (all rows, 2)."""
    pairs = [taken(gradients, of_node) for of_node in rows]
    return choose_factors(pairs, totals, best, foreseen, scale, params, field, far=far)


def choose_factors(
    pairs: Sequence[NDArray[np.int64]],
    totals: NDArray[np.int64],
    best: NDArray[np.float32],
    foreseen: NDArray[np.float32],
    scale: FixedPoint,
    params: TrainParams,
    field: Field,
    *,
    far: bool,
) -> list[NodeFactors | None]:
    """The factors of nodes, None where the filter does not fit one.

    ``pairs``: of each node g and h of its rows, int64 (rows, 2). ``totals`` int64 (nodes, 2),
    ``best`` float32 (nodes,): the gains of the active party's best candidates; ``foreseen`` those
    that the best of all may be near, 0 where none is known. ``far``: quotients reach far.
    """
    precisions = Precision.of_filter(field, far=far), Precision.of_ranks(field, far=far)
    reg_lambda = round(math.ldexp(float(np.float32(params.reg_lambda)), scale.h_bits))
    found: list[NodeFactors | None] = []
    for of_rows, total, gain, near in zip(pairs, totals, best, foreseen, strict=True):
        known = KnownNode.of(of_rows, total, float(gain), float(near), reg_lambda)
        chosen, fine = (_fitting(known, precision, scale, params) for precision in precisions)
        found.append(chosen and replace(chosen, fine=fine))
    return found


def _fitting(
    known: KnownNode, precision: Precision, scale: FixedPoint, params: TrainParams
) -> NodeFactors | None:
    try:
        return NodeFactors.of(known, precision, scale, params)
    except Unfit:
        return None


_ABOVE = 1.0001  # than bounds in floating point
_SMALLEST = 1e-300
_EXPECTED = 32  # of a gain's bound to a unit, where the active party has no candidate of its own
_TRIES = 60


def _few_bits(number: float) -> int:
    """The integer part of ``number``, of four significant bits: few transfers are not of zeros."""
    whole = int(number)
    down = max(0, whole.bit_length() - 4)
    return whole >> down << down


def _times_power(number: int, power: int) -> int:
    """``number`` times 2 to the ``power``, rounded down."""
    return number << power if power >= 0 else number >> -power


def _fixed(min_child_weight: float, scale: FixedPoint) -> int:
    scaled = math.ldexp(float(np.float32(min_child_weight)), scale.h_bits)
    return math.ceil(min(scaled, 2.0**62))


@dataclass(frozen=True, slots=True)
class FilterLevel:
    """The filter over ``nodes`` nodes with ``candidates`` candidates each."""

    precision: Precision
    nodes: int
    candidates: int

    @property
    def slots(self) -> tuple[int, ...]:
        """A node has as few of these, which are ascending, as hold what may be the best."""
        return (MOST_SLOTS,) if self.precision.reaches else (SLOTS, MOST_SLOTS)

    @property
    def instances(self) -> int:
        """Candidates of all nodes."""
        return self.nodes * self.candidates

    @property
    def index_bits(self) -> int:
        """Bits of a candidate's number."""
        return max(1, (self.candidates - 1).bit_length())

    @property
    def carry_transfers(self) -> int:
        return 2 * self.instances

    @property
    def factor_transfers(self) -> int:
        """Of x and d: each transfers numbers of all candidates of a node."""
        c = self.precision
        return (c.x_factor + c.g_factor + c.h_factor) * self.nodes

    @property
    def product_transfers(self) -> int:
        c = self.precision
        return (c.x_modulus + c.d_modulus) * self.instances

    @property
    def quotient_transfers(self) -> int:
        """All of numbers."""
        return self.carry_transfers + self.factor_transfers + self.product_transfers

    @property
    def labels(self) -> int:
        c = self.precision
        of_nodes = (c.weight_bits + c.quotient_bits + 1) * self.nodes
        return (c.square_bits + c.weight_bits) * self.instances + of_nodes

    @property
    def index_transfers(self) -> int:
        return self.index_bits * MOST_SLOTS * self.nodes

    @property
    def transfers(self) -> int:
        """All that the active party chooses."""
        return self.quotient_transfers + self.labels + self.index_transfers

    @property
    def number_bytes(self) -> int:
        """Bytes of the passive party's numbers of transfers."""
        c = self.precision
        parts = (
            (c.wrap_bits, self.carry_transfers),
            (c.x_modulus + c.x_guard, c.x_factor * self.instances),
            (c.d_modulus + c.d_guard, (c.g_factor + c.h_factor) * self.instances),
            (c.shared_weight_bits, c.x_modulus * self.instances),
            (c.shared_square_bits, c.d_modulus * self.instances),
        )
        return sum(-(-bits // 8) * count for bits, count in parts)

    @property
    def table_bytes(self) -> int:
        """Bytes of a party's tables of shares at most."""
        return (16 << self.index_bits) * MOST_SLOTS * self.nodes
