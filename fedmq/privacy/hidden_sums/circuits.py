"""Which circuits find a node's winner? XGBoost's gains, bit for bit, a tournament, a chain.

`GainCircuit` is the rule of `fedmq.boosting.gain` over gates. Where the rule is the oldest
release's quotient of a square, squares come from outside, and are rounded once to float32: XGBoost
rounds sums and squares to float64 first, which makes another float32 with a chance of about 2^-28
where they are longer than 53 bits. All other circuits round as XGBoost does.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.gain import Gain, GainParameters, GainRule
from fedmq.boosting.gradients import FixedPoint
from fedmq.boosting.params import MOST_CONSTRAINTS, OLDEST, Arithmetic, TrainParams
from fedmq.boosting.splits import (
    ALONE,
    ANY_PATH,
    SMALLEST_GAIN,
    UNCONSTRAINED,
    NodeConstraints,
    WeightBounds,
    gain_in_the_clear,
)
from fedmq.errors import DataError, MessageError
from fedmq.privacy.engine import Place
from fedmq.privacy.garbling.circuit import (
    DOUBLE,
    FALSE,
    TRUE,
    Circuit,
    CircuitNumbers,
    Format,
    Real,
    Word,
    at_least,
    constant,
    difference,
    real_bits,
    select,
    total,
    when,
)
from fedmq.privacy.garbling.half_gates import Labels
from fedmq.privacy.garbling.schedule import Schedule
from fedmq.privacy.hidden_sums.shares import Field
from fedmq.privacy.oblivious_transfer.correlated import bits_of, wide

__all__ = [
    "GAIN_BITS",
    "GainCircuit",
    "NodeInputs",
    "Run",
    "circuit_of",
    "gain_bits",
    "gain_parameters",
    "link_schedule",
    "match_schedule",
    "owner_bits",
    "signed_sum",
    "taken_bits",
    "tournament",
]

GAIN_BIAS = 128
"""The bias of a gain's exponent: quotients of sums lie between 2^-64 and 2^124."""

GAIN_FORM = Format(8, GAIN_BIAS)
"""That of gains which a circuit compares, whatever it computes with."""

GAIN_BITS = GAIN_FORM.bits(signed=False)

OLDEST_RULE = GainRule(OLDEST)

_WIDE = Format(11, 1024)


@dataclass(frozen=True, slots=True)
class GainCircuit:
    """The circuit of a candidate's gain by a ``rule``, from shares of sums in a ``field``.

    ``whole``: lambda is a number of units of hidden hessians, below the field's. ``interactions``:
    the number of interaction constraints. The first release's quotients take squares from outside,
    which transfers make at a fortieth of the bytes; all other rules take the sums alone.
    ``ranked``: the few candidates that the filter finds are ranked first, so that this circuit
    takes fewer. ``far``: quotients of the filter and of ranks are those of `Precision.far`.
    ``sets``: sets of fewer categories are scanned, ``max_cat_threshold``; 0: none.
    """

    field: Field
    rule: GainRule = OLDEST_RULE
    whole: bool = True
    interactions: int = 0
    ranked: bool = False
    sets: int = 0
    far: bool = False

    @property
    def takes_squares(self) -> bool:
        return self.whole and not self.rule.weighs and not self.rule.shrinks

    @property
    def filters(self) -> bool:
        """Whether gains are what `fedmq.privacy.hidden_sums.filter` bounds, of any candidate."""
        rule = self.rule
        bare = not (rule.shrinks or rule.limits or rule.bounds)
        return self.whole and bare and not self.interactions

    def ranked_at(self, place: Place) -> GainCircuit:
        """This circuit, ranked where the filter holds, of the passive party in ``place``.

        In a chain the best candidate's gain is computed of its sums, which a circuit that takes
        squares does not have.
        """
        ranked = self.filters and (place.parties == 1 or not self.takes_squares)
        return replace(self, ranked=ranked)

    @property
    def candidate_bits(self) -> Mapping[str, int]:
        """The shared inputs of each candidate, and their bits.

        ``sums``: the field of h, and that of g above it.
        """
        field = self.field
        if self.takes_squares:
            return {"G_L²": field.square_bits, "G_R²": field.square_bits, "H_L": field.bits}
        return {"sums": 2 * field.bits}

    @property
    def column_bits(self) -> Mapping[str, int]:
        """The passive party's inputs of each candidate, about its column.

        Whether it must rise or fall; a bit for each interaction constraint that holds it, and one
        more if it is alone.
        """
        bits = {"rises": 1, "falls": 1} if self.rule.bounds else {}
        return bits | ({"constraints": self.interactions + 1} if self.interactions else {})

    @property
    def node_bits(self) -> Mapping[str, int]:
        """The active party's inputs of each node, and their bits.

        ``path``: a bit for each interaction constraint that may follow, one for the column that is
        alone, and one if any column may follow.
        """
        field, form, rule = self.field, self.form, self.rule
        bits = {
            "H": field.bits,
            "lambda": field.weight_bits if self.whole else form.bits(signed=False),
            "least weight": field.bits,
            "node gain": form.bits(signed=rule.bounds),
        }
        if not self.takes_squares:
            bits["G"] = field.bits
        if rule.shrinks:
            bits["alpha"] = form.bits(signed=False)
        if rule.limits:
            bits["limit"] = form.bits(signed=False)
        if rule.bounds:
            bits |= dict.fromkeys(("lower", "upper"), form.bits(signed=True))
        if self.interactions:
            bits["path"] = self.interactions + 2
        return bits

    @property
    def form(self) -> Format:
        """How the circuit keeps exponents."""
        return GAIN_FORM if self.takes_squares else _WIDE

    def told(self) -> NDArray[np.uint8]:
        """What the passive party must know of the circuit: words.

        ``ahead``: numbers of transfers leave before the choices among them. A party of before this
        word was told expects other messages, and refuses it.
        """
        rule = self.rule
        parts = {
            "ahead": True,
            rule.arithmetic: not rule.is_oldest,
            "alpha": rule.shrinks,
            "limit": rule.limits,
            "bounds": rule.bounds,
            "real": not self.whole,
            f"interactions={self.interactions}": self.interactions > 0,
            "ranked": self.ranked,
            "far": self.far,
            f"sets={self.sets}": self.sets > 0,
        }
        words = " ".join(word for word, is_told in parts.items() if is_told)
        return np.frombuffer(words.encode(), np.uint8)

    @classmethod
    def read(cls, field: Field, told: NDArray[np.uint8]) -> GainCircuit:
        """The circuit that was `told`. Raises `MessageError` if it is none."""
        words = told.tobytes().decode("ascii", "replace").split()
        rule = GainRule(
            next((release for release in get_args(Arithmetic) if release in words), OLDEST),
            shrinks="alpha" in words,
            limits="limit" in words,
            bounds="bounds" in words,
        )
        interactions = _told_number(words, "interactions", 2)
        whole, ranked, far = "real" not in words, "ranked" in words, "far" in words
        sets = _told_number(words, "sets", 10)
        circuit = cls(field, rule, whole, min(interactions, MOST_CONSTRAINTS), ranked, sets, far)
        filtered = ranked or far
        if not np.array_equal(circuit.told(), told) or (filtered and not circuit.filters):
            raise MessageError("circuits of gains by rules that this party does not know")
        return circuit

    def of_columns(self, signs: NDArray[np.int8], held: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """`column_bits` of candidates: bool (bits, nodes * candidates).

        ``signs`` (candidates,) and ``held`` (nodes, candidates) are those of constraints on their
        columns. Raises `MessageError` if there are signs, which this circuit passes over.
        """
        if signs.any() and not self.rule.bounds:
            raise MessageError("circuits that keep no monotone constraint of this party")
        nodes = len(held)
        bits = [np.tile(signs > 0, nodes), np.tile(signs < 0, nodes)] if self.rule.bounds else []
        if self.interactions:
            bits += [(held.reshape(-1) & bit) != 0 for bit in _constraint_bits(self.interactions)]
        return np.array(bits, np.bool_).reshape(len(bits), held.size)

    @property
    def most_ands(self) -> int:
        """At least as many as `schedule` has, which takes seconds to make."""
        return 6_000 if self.takes_squares else 40_000

    def schedule(self) -> Schedule:
        """``gain`` of shares ``own …`` of the garbler and ``other …`` of the evaluator.

        A float of 32 bits: 0 where a side is too light, or nothing is gained.
        """
        return _gain_schedule(replace(self, ranked=False, sets=0, far=False))

    def floats(self, numbers: NDArray[np.float64], name: str) -> NDArray[np.bool_]:
        """Bits of numbers of float32 as the input ``name`` of nodes: bool (bits, nodes).

        Raises ValueError for numbers that are too large or too small.
        """
        signed = self.node_bits[name] > self.form.bits(signed=False)
        return real_bits(numbers, self.form, signed=signed)


def _told_number(words: Sequence[str], name: str, digits: int) -> int:
    """The number of at most so many ``digits`` that one of the ``words`` tells; 0 if none does."""
    form = re.compile(rf"{name}=([1-9][0-9]{{0,{digits - 1}}})")
    found = [match for word in words if (match := form.fullmatch(word))]
    return int(found[0][1]) if found else 0


def _constraint_bits(interactions: int) -> list[np.uint64]:
    """The bits of so many constraints, and of a column that is alone."""
    return [*(np.uint64(1 << number) for number in range(interactions)), ALONE]


@cache
def _gain_schedule(circuit: GainCircuit) -> Schedule:
    c = Circuit()
    words = _InputWords(c, circuit)
    sides = words.sides()
    kind = CircuitNumbers(c, weighed=True)
    gain = Gain(kind, circuit.rule, words.parameters())
    node = words.real("node gain")
    allowed = words.allowed()
    for _, hessian in sides:
        assert hessian.whole is not None
        allowed = c.both(allowed, at_least(c, hessian.whole, words.known["least weight"]))
    if circuit.rule.bounds:
        rises, falls = (words.columns[name][0] for name in ("rises", "falls"))
        found, ordered = gain.of_ordered_split(rises, falls, *sides, node)
        allowed = c.both(allowed, ordered)
    else:
        found = gain.of_split(*sides, node)
    c.output("gain", _gain_word(c, found, allowed))
    return Schedule.of(c)


class _InputWords:
    """The inputs of a gain's circuit, as words and as numbers."""

    def __init__(self, c: Circuit, circuit: GainCircuit) -> None:
        self._c = c
        self._circuit = circuit
        self._shared = {
            name: total(c, c.input(f"own {name}", bits), c.input(f"other {name}", bits))
            for name, bits in circuit.candidate_bits.items()
        }
        self.columns = {name: c.input(name, bits) for name, bits in circuit.column_bits.items()}
        self.known = {name: c.input(name, bits) for name, bits in circuit.node_bits.items()}

    def real(self, name: str) -> Real:
        """A float32 of the active party."""
        return known_real(self._c, self._circuit.form, self.known[name])

    def parameters(self) -> GainParameters[Real]:
        return gain_parameters(self._c, self._circuit, self.known)

    def sides(self) -> tuple[tuple[Real, Real], tuple[Real, Real]]:
        """G and H on the left and on the right."""
        c, field, known = self._c, self._circuit.field, self.known
        if self._circuit.takes_squares:
            h_left = self._shared["H_L"]
            squares = self._shared["G_L²"], self._shared["G_R²"]
            gradients = [self._of_square(square) for square in squares]
        else:
            sums = self._shared["sums"]
            h_left, g_left = sums[: field.bits], sums[field.bits :]
            both = g_left, difference(c, known["G"], g_left)
            gradients = [signed_sum(c, self._circuit, gradient) for gradient in both]
        hessians = h_left, difference(c, known["H"], h_left)
        once = self._circuit.takes_squares
        weights = [
            Real.of_whole(c, self._circuit.form, hessian[: field.bits - 2], once=once)
            for hessian in hessians
        ]
        return (gradients[0], weights[0]), (gradients[1], weights[1])

    def _of_square(self, square: Word) -> Real:
        """A number of which only the square is known."""
        form = self._circuit.form
        squared = Real.of_whole(self._c, form, square, once=True)
        return replace(Real.of_whole(self._c, form, [FALSE]), squared=squared)

    def allowed(self) -> int:
        """Whether the column may stand below those of the path."""
        if not self._circuit.interactions:
            return TRUE
        c, path, held = self._c, self.known["path"], self.columns["constraints"]
        shared = [c.both(bit, other) for bit, other in zip(path[:-1], held, strict=True)]
        return c.either(path[-1], c.any_of(shared))


def known_real(c: Circuit, form: Format, word: Word) -> Real:
    """A float32 of the active party."""
    return Real.of_input(c, form, word, signed=len(word) > form.bits(signed=False))


def gain_parameters(
    c: Circuit, circuit: GainCircuit, known: Mapping[str, Word]
) -> GainParameters[Real]:
    """The numbers of the rule of ``circuit``, of the active party's words by name."""
    form, rule = circuit.form, circuit.rule
    if circuit.whole:
        bits = circuit.field.weight_bits - 1
        number = Real.of_whole(c, form, known["lambda"][:bits], once=True)
        reg_lambda = replace(number.single(), whole=number.whole, once=True)
    else:
        reg_lambda = known_real(c, form, known["lambda"])
    none = Real.of_whole(c, form, [FALSE])
    bounds: tuple[Real | None, Real | None] = (None, None)
    if rule.bounds:
        bounds = (known_real(c, form, known["lower"]), known_real(c, form, known["upper"]))
    return GainParameters(
        reg_lambda,
        replace(known_real(c, form, known["alpha"]), precision=DOUBLE) if rule.shrinks else none,
        known_real(c, form, known["limit"]) if rule.limits else none,
        none,  # sides that are too light are told apart by their integers
        *bounds,
    )


def signed_sum(c: Circuit, circuit: GainCircuit, word: Word) -> Real:
    """A sum of g, in two's complement."""
    sign = word[-1]
    magnitude = total(c, [c.xor(bit, sign) for bit in word], [], sign)
    return Real.of_whole(c, circuit.form, magnitude[: circuit.field.bits - 2], sign)


def _gain_word(c: Circuit, gain: Real, allowed: int) -> Word:
    """An ``allowed`` gain above 0 as 32 bits, else 0; one too small for them is 0."""
    bits, kept = gain.form.exponent_bits, c.both(allowed, c.inverse(gain.sign))
    if gain.form == GAIN_FORM:
        return when(c, kept, gain.word)
    moved = gain.form.bias - GAIN_BIAS
    exponent = difference(c, gain.exponent, constant(moved, bits))
    fits = at_least(c, gain.exponent, constant(moved + 1, bits))
    return when(c, c.both(kept, fits), gain.mantissa + exponent[: GAIN_FORM.exponent_bits])


# Which of all candidates gains most? Neighbours meet, and the better one goes on.
#
# Candidates stand in canonical order, and the right one of two wins only if it gains more: among
# equals the first one wins, as with XGBoost. Indices are bits of the circuit, which the active
# party never learns.


Run = Callable[[Schedule, Mapping[str, Labels]], Generator[Any, Any, dict[str, Labels]]]
"""Garble or evaluate a circuit: yields while tables leave or come, and returns its outputs."""


def tournament(gains: Labels, nodes: int, run: Run) -> Generator[Any, Any, dict[str, Labels]]:
    """Labels of the best ``gain`` (32, nodes, 2), and of its ``index`` (rounds, nodes, 2).

    ``gains`` (32, nodes * candidates, 2).
    """
    best = gains.reshape(GAIN_BITS, nodes, -1, 2)
    index = best[:0]
    while best.shape[2] > 1:
        best, index = yield from _round(best, index, run)
    return {"gain": best[:, :, 0], "index": index[:, :, 0]}


def _round(best: Labels, index: Labels, run: Run) -> Generator[Any, Any, tuple[Labels, Labels]]:
    """Half as many candidates, whose indices are one bit longer."""
    nodes, candidates = best.shape[1:3]
    paired = candidates // 2 * 2
    inputs = {}
    for side, start in (("left", 0), ("right", 1)):
        inputs[f"{side} gain"] = _flat(best[:, :, start:paired:2])
        inputs[f"{side} index"] = _flat(index[:, :, start:paired:2])
    found = yield from run(match_schedule(len(index)), inputs)
    best, index = (
        np.concatenate([found[name].reshape(-1, nodes, paired // 2, 2), alone], axis=2)
        for name, alone in (
            ("gain", best[:, :, paired:]),
            ("index", _with_zero(index[:, :, paired:])),
        )
    )
    return best, index


def _flat(labels: Labels) -> Labels:
    bits, nodes, candidates, _ = labels.shape
    return labels.reshape(bits, nodes * candidates, 2)


def _with_zero(index: Labels) -> Labels:
    """``index`` with one more bit, known to be 0: both sides use the label 0 for it."""
    return np.concatenate([index, np.zeros((1, *index.shape[1:]), np.uint64)])


@cache
def match_schedule(bits: int) -> Schedule:
    """The larger ``gain``, and its ``index`` with one bit more: 1 for the right one."""
    c = Circuit()
    gains = [c.input(f"{side} gain", GAIN_BITS) for side in ("left", "right")]
    indices = [c.input(f"{side} index", bits) for side in ("left", "right")]
    left_stays = at_least(c, *gains)
    c.output("gain", select(c, left_stays, *gains))
    c.output("index", [*select(c, left_stays, *indices), c.inverse(left_stays)])
    return Schedule.of(c)


# Which of several passive parties wins? They stand in a chain, and each hands on the best so far.
#
# A link compares the best candidate of one passive party with the best before it: the active
# party's, or that of the chain so far. The earlier one wins ties, as the first column does with
# XGBoost. The result is shared: the active party reads its colours, the passive party hands its own
# colours on to the next, and neither learns a bit of it.


def taken_bits(place: Place) -> dict[str, int]:
    """The inputs of a link from the best so far: its gain, and its owner unless known."""
    bits = {"to beat": GAIN_BITS}
    return bits if place.is_first else bits | {"owner": owner_bits(place.number - 1)}


def owner_bits(number: int) -> int:
    """Bits of the owner's number behind the link of party ``number``."""
    return number.bit_length()


@cache
def link_schedule(place: Place, index_bits: int) -> Schedule:
    """The best of this party and of those before it: its ``owner``, and ``gain`` for the next.

    ``won``: whether it is this party's; ``index``: of the candidate, 0 where not won.
    """
    c = Circuit()
    gain, index = c.input("gain", GAIN_BITS), c.input("index", index_bits)
    taken = {name: c.input(name, bits) for name, bits in taken_bits(place).items()}
    before = taken.get("owner", constant(0, owner_bits(place.number)))
    stays = at_least(c, taken["to beat"], gain)
    won = c.inverse(stays)
    c.output("won", [won])
    c.output("index", when(c, won, index))
    c.output("owner", select(c, won, constant(place.number, owner_bits(place.number)), before))
    if not place.is_last:
        c.output("gain", select(c, stays, taken["to beat"], gain))
    return Schedule.of(c)


# What does the active party bring to the choice of a candidate? What it knows of the node.
#
# Gains in a circuit are those of integers: 2^(2·g_bits - h_bits) times those of real numbers, and
# weights 2^(g_bits - h_bits) times. The numbers are the same but for their exponents, so that they
# are rounded in the same places.


_LARGEST_EXPONENT = 126  # of a gain that float32 has
_NO_GAIN = float(np.ldexp(2.0 - 2.0**-23, 127))  # larger than any


def circuit_of(
    params: TrainParams, scale: FixedPoint, field: Field, constraints: NodeConstraints
) -> GainCircuit:
    """The circuit of a tree with this ``scale``."""
    rule = GainRule.of(params, bounds=constraints.within is not None)
    whole = _whole_lambda(params.reg_lambda, scale, field) is not None
    interactions = 0 if constraints.paths is None else len(params.interaction_constraints)
    return GainCircuit(field, rule, whole, interactions)


@dataclass(frozen=True, slots=True, eq=False)
class NodeInputs:
    """The active party's inputs: ``totals`` int64 (nodes, 2), bits by name bool (bits, nodes)."""

    totals: NDArray[np.int64]
    bits: dict[str, NDArray[np.bool_]]

    @classmethod
    def of(
        cls,
        totals: NDArray[np.int64],
        best: NDArray[np.float32],
        scale: FixedPoint,
        params: TrainParams,
        circuit: GainCircuit,
        constraints: NodeConstraints = UNCONSTRAINED,
    ) -> NodeInputs:
        """The inputs of nodes with these sums and the gain of the active party's ``best``.

        ``best`` float32 (nodes,), -inf where it has none; it wins ties.

        Raises:
            DataError: sums do not fit the field, or gains could leave float32.
        """
        field, count = circuit.field, len(totals)
        _check(totals, scale, params, circuit)
        least = np.float32(params.gamma)
        below = np.nextafter(least, np.float32(-np.inf)) if least > 0 else np.float32(0)
        to_beat = np.maximum(best, np.maximum(below, SMALLEST_GAIN)).astype(np.float64)
        of_gains, of_weights = 2 * scale.g_bits - scale.h_bits, scale.g_bits - scale.h_bits
        above = None if constraints.above is None else WeightBounds(*constraints.above.T)
        node = gain_in_the_clear(params, above).of_side(*scale.to_float(totals).T)
        bits = {
            "H": bits_of(wide(totals[:, 1]), field.bits),
            "G": bits_of(wide(totals[:, 0]), field.bits),
            "to beat": gain_bits(to_beat, of_gains),
        }
        least_weight = _least_weight(params.min_child_weight, scale, field)
        words = {"least weight": least_weight}
        reals = {
            "node gain": (node, of_gains),
            "alpha": (params.reg_alpha, scale.g_bits),
            "limit": (params.max_delta_step, of_weights),
        }
        if constraints.within is not None:
            lower, upper = constraints.within.T
            reals |= {"lower": (lower, of_weights), "upper": (upper, of_weights)}
        whole = _whole_lambda(params.reg_lambda, scale, field)
        if circuit.whole and whole is not None:
            words["lambda"] = whole
        else:
            reals["lambda"] = (params.reg_lambda, scale.h_bits)
        for name, number in words.items():
            numbers = wide(np.full(count, number, np.uint64))
            bits[name] = bits_of(numbers, circuit.node_bits[name])
        for name, (real, shift) in reals.items():
            if name in circuit.node_bits:
                scaled = np.ldexp(np.asarray(real, np.float32).astype(np.float64), shift)
                bits[name] = circuit.floats(np.broadcast_to(scaled, count), name)
        if constraints.paths is not None and circuit.interactions:
            bits["path"] = _path_bits(constraints.paths, circuit.interactions)
        return cls(totals, bits)


def _check(
    totals: NDArray[np.int64], scale: FixedPoint, params: TrainParams, circuit: GainCircuit
) -> None:
    field = circuit.field
    g, h = np.abs(totals[:, 0]), totals[:, 1]
    if not ((g < field.bound) & (h >= 0) & (h < field.bound)).all():
        raise DataError(
            f"sums of gradients that leave {field.bits - 2} bits, as hidden ones may not"
        )
    largest = field.square_bits - 2 * scale.g_bits + max(scale.h_bits, 0)
    if circuit.rule.weighs:
        lightest = _least_weight(params.min_child_weight, scale, field)
        least = math.ldexp(lightest, -scale.h_bits) + params.reg_lambda
        of_weight = field.bits - 1 - scale.g_bits - math.frexp(least)[1]
        largest = max(largest, 2 * of_weight)
    if largest > _LARGEST_EXPONENT:
        raise DataError("gradients are too large for hidden sums: float32 has no such gains")


def _whole_lambda(reg_lambda: float, scale: FixedPoint, field: Field) -> int | None:
    """Lambda in the fixed point of hessians; None if it is no integer there, or too large."""
    scaled = math.ldexp(float(np.float32(reg_lambda)), scale.h_bits)
    if scaled >= 1 << (field.weight_bits - 1) or not scaled.is_integer():
        return None
    return int(scaled)


def _least_weight(min_child_weight: float, scale: FixedPoint, field: Field) -> int:
    """The least hessian of a side in fixed point: at least 1, since a side needs some."""
    scaled = math.ldexp(float(np.float32(min_child_weight)), scale.h_bits)
    return min(max(1, math.ceil(scaled)), field.bound)


def gain_bits(gains: NDArray[np.float64], shift: int = 0) -> NDArray[np.bool_]:
    """``gains`` (n,) times 2^``shift`` as circuits compare them: bool (32, n).

    Smaller ones than they tell from 0 are 0, larger ones the largest: none of theirs lie beyond.
    """
    scaled = np.ldexp(gains, shift)
    scaled = np.where(scaled < 2.0 ** (1 - GAIN_BIAS), 0.0, np.minimum(scaled, _NO_GAIN))
    return real_bits(scaled, GAIN_FORM, signed=False)


def _path_bits(paths: NDArray[np.uint64], interactions: int) -> NDArray[np.bool_]:
    """Bits of what may follow, as ``path`` of `GainCircuit.node_bits`: bool (bits, nodes)."""
    held = [(paths & bit) != 0 for bit in _constraint_bits(interactions)]
    return np.stack([*held, paths == ANY_PATH])
