"""Which circuits sort the categories of a column, of which sets are made, and tell one set?

XGBoost sorts the categories of a column by the weight that a leaf of each alone would have, as
float32, and among equals by their place; sets are beginnings of that order. One circuit computes
the weight of each category, bit for bit. Comparators sort categories: Batcher's odd-even merge sort
(Knuth, The Art of Computer Programming 3, 5.2.2, algorithm M), all pairs of a layer at once. The
sorted sums are masked, and so shared anew. Whether a comparator has exchanged its pair stays a
label: the circuit that tells the winning set sends its beginning the same way back.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import zip_longest
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.gain import Gain
from fedmq.boosting.splits import CategorySet
from fedmq.privacy.engine import Winner
from fedmq.privacy.garbling.circuit import (
    FALSE,
    SINGLE,
    Circuit,
    CircuitNumbers,
    Real,
    Word,
    at_least,
    swap,
    total,
)
from fedmq.privacy.garbling.half_gates import Labels
from fedmq.privacy.garbling.schedule import Schedule
from fedmq.privacy.hidden_sums.circuits import GainCircuit, Run, gain_parameters, signed_sum

__all__ = [
    "MOST_ORDERED_BITS",
    "MOST_WEIGHT_ANDS",
    "SetColumns",
    "comparators",
    "exchange_schedule",
    "mask_schedule",
    "place_labels",
    "set_schedule",
    "sorted_categories",
    "weight_inputs",
    "weight_schedule",
]

Layer = tuple[tuple[int, int], ...]
"""Pairs of places that are compared at once, the first of each below the second."""


@dataclass(frozen=True, slots=True)
class SetColumns:
    """Columns that are split by sets, among the shown ``candidates`` of a node.

    ``columns``: the candidates of each column's two or more categories, ascending. ``most``: no set
    is scanned of as many categories, XGBoost's ``max_cat_threshold``.

    What is scanned in place of candidates: a candidate of no column stays, and sets stand where the
    first category of their column does. They are the beginnings of its order on the right, with
    missing values on the left, shortest first; then its ends on the left.
    """

    candidates: int
    columns: tuple[tuple[int, ...], ...]
    most: int

    @property
    def categories(self) -> int:
        """The number of categories of all columns."""
        return sum(map(len, self.columns))

    @property
    def members(self) -> NDArray[np.int64]:
        """The candidates of all categories, column by column."""
        return np.array([place for column in self.columns for place in column], np.int64)

    def slices(self) -> list[slice]:
        """The categories of each column among all."""
        stops = np.cumsum([len(column) for column in self.columns]).tolist()
        return [
            slice(stop - len(column), stop)
            for column, stop in zip(self.columns, stops, strict=True)
        ]

    def steps(self, column: int) -> int:
        """The number of sets of ``column`` either way."""
        return min(self.most, len(self.columns[column])) - 1

    @property
    def scanned(self) -> NDArray[np.int64]:
        """For all that is scanned the candidate, of a set the first one of its column."""
        first = {column[0]: self.steps(number) for number, column in enumerate(self.columns)}
        others = {place for column in self.columns for place in column[1:]}
        return np.array(
            [
                place
                for place in range(self.candidates)
                if place not in others
                for _ in range(2 * first[place] if place in first else 1)
            ],
            np.int64,
        )

    def starts(self) -> list[int]:
        """Where the sets of each column begin among all that is scanned."""
        first = [column[0] for column in self.columns]
        starts: list[int] = np.searchsorted(self.scanned, first).tolist()
        return starts

    def sizes(self, column: int) -> list[int]:
        """How many categories of ``column`` go right in each of its sets, as they are scanned."""
        steps = self.steps(column)
        count = len(self.columns[column])
        return [*range(1, steps + 1), *range(count - 1, count - 1 - steps, -1)]

    def split(self, place: int, right: NDArray[np.bool_]) -> Winner:
        """What is scanned at ``place``; ``right`` (categories,): those that the circuit told.

        ``candidates`` if nothing is scanned there.
        """
        for number, (start, held) in enumerate(zip(self.starts(), self.slices(), strict=True)):
            steps = self.steps(number)
            if start <= place < start + 2 * steps:
                chosen = np.array(self.columns[number])[right[held]].astype(np.uint32)
                return CategorySet(chosen, default_left=place < start + steps)
        return int(self.scanned[place]) if place < len(self.scanned) else self.candidates


# The weight of a category alone.


def weight_inputs(circuit: GainCircuit) -> Mapping[str, int]:
    """The active party's inputs of each node, and their bits: some of those of a gain."""
    known = circuit.node_bits
    return {name: known[name] for name in _WEIGHT_INPUTS if name in known}


MOST_WEIGHT_ANDS = 6_000
"""At least as many as `weight_schedule` has, which takes a while to make."""

MOST_ORDERED_BITS = 40
"""At least as many as a word that is ordered as weights are has."""

_WEIGHT_INPUTS = ("lambda", "least weight", "alpha", "limit")


class _WeighedByIntegers(CircuitNumbers):
    """Numbers of which some sums of hessians are 0; they are compared as integers."""

    def is_heavy(self, x: Real, least: Real) -> int:
        assert x.whole is not None
        assert least.whole is not None
        return at_least(x.circuit, x.whole, least.whole)


def weight_schedule(circuit: GainCircuit) -> Schedule:
    """``weight``: a word ordered as weights are, of shares of a category's ``sums``; and these."""
    return _weight_schedule(replace(circuit, ranked=False, interactions=0, sets=0))


@cache
def _weight_schedule(circuit: GainCircuit) -> Schedule:
    c, field = Circuit(), circuit.field
    sums = total(c, c.input("own sums", 2 * field.bits), c.input("other sums", 2 * field.bits))
    known = {name: c.input(name, bits) for name, bits in weight_inputs(circuit).items()}
    unbounded = replace(circuit, rule=replace(circuit.rule, bounds=False))
    parameters = gain_parameters(c, unbounded, known)
    least = replace(parameters.min_child_weight, whole=known["least weight"])
    parameters = replace(parameters, min_child_weight=least)
    gain = Gain(_WeighedByIntegers(c, weighed=False), unbounded.rule, parameters)
    hessian = Real.of_whole(c, circuit.form, sums[: field.bits - 2])
    weight = gain.leaf(signed_sum(c, circuit, sums[field.bits :]), hessian)
    # The highest bit of a mantissa says no more than that the exponent is not 0.
    ordered = weight.ordered
    c.output("weight", [*ordered[: SINGLE - 1], *ordered[SINGLE:]])
    c.output("sums", sums)
    return Schedule.of(c)


# The order of categories.


def place_labels(columns: SetColumns, secret: NDArray[np.uint64] | None) -> Labels:
    """Labels of each category's place in its column: (bits, categories, 2).

    Both parties know the bits: that of the garbler, who has the ``secret``, stands for 0, and the
    active label is the number 0.
    """
    places = np.concatenate([np.arange(len(column)) for column in columns.columns])
    count = int(places.max()).bit_length()
    bits = (places >> np.arange(count)[:, np.newaxis] & 1).astype(np.bool_)
    known = np.zeros(2, np.uint64) if secret is None else secret
    return np.where(bits[..., np.newaxis], known, np.uint64(0))


@cache
def comparators(count: int) -> tuple[Layer, ...]:
    """The comparators that sort ``count`` categories, layer by layer."""
    layers = []
    size = 1
    while size < count:
        apart = size
        while apart:
            layers.append(
                tuple(
                    (start + place, start + place + apart)
                    for start in range(apart % size, count - apart, 2 * apart)
                    for place in range(min(apart, count - start - apart))
                    if (start + place) // (2 * size) == (start + place + apart) // (2 * size)
                )
            )
            apart //= 2
        size *= 2
    return tuple(layers)


def _layers(columns: SetColumns) -> list[Layer]:
    """The comparators of all columns, by places among all categories."""
    moved = [
        [
            tuple((held.start + low, held.start + high) for low, high in layer)
            for layer in comparators(held.stop - held.start)
        ]
        for held in columns.slices()
    ]
    return [sum(layer, ()) for layer in zip_longest(*moved, fillvalue=())]


@cache
def exchange_schedule(ordered: int, carried: int) -> Schedule:
    """``left`` and ``right``, ``turned`` if the right one is less by its ``ordered`` lowest bits.

    So many bits more are ``carried`` along.
    """
    c = Circuit()
    left, right = (c.input(side, ordered + carried) for side in ("left", "right"))
    turned = c.inverse(at_least(c, right[:ordered], left[:ordered]))
    left, right = swap(c, turned, left, right)
    c.output("left", left)
    c.output("right", right)
    c.output("turned", [turned])
    return Schedule.of(c)


@cache
def mask_schedule(bits: int) -> Schedule:
    """``masked``: the ``sums`` and the garbler's ``mask``."""
    c = Circuit()
    c.output("masked", total(c, c.input("sums", bits), c.input("mask", bits)))
    return Schedule.of(c)


def sorted_categories(
    columns: SetColumns, found: Mapping[str, Labels], places: Labels, nodes: int, run: Run
) -> Generator[Any, Any, dict[str, Labels]]:
    """Labels of the ``sums`` of each column's categories in order, and what was ``turned``.

    ``found``: those of `weight_schedule`, of all categories of all nodes; ``places`` (bits,
    categories, 2): those of the categories' places, which decide ties. ``sums`` (bits, nodes *
    categories, 2), ``turned`` (comparators, nodes, 2).
    """
    every = np.broadcast_to(places[:, np.newaxis], (len(places), nodes, *places.shape[1:]))
    parts = [every.reshape(len(places), -1, 2), found["weight"], found["sums"]]
    words = np.concatenate(parts).reshape(-1, nodes, columns.categories, 2)
    carried = len(found["sums"])
    schedule = exchange_schedule(len(words) - carried, carried)
    turned = []
    for layer in _layers(columns):
        low, high = np.array(layer, np.intp).T
        sides = {
            name: words[:, :, place].reshape(len(words), -1, 2)
            for name, place in (("left", low), ("right", high))
        }
        sorted_ = yield from run(schedule, sides)
        for name, place in (("left", low), ("right", high)):
            words[:, :, place] = sorted_[name].reshape(len(words), nodes, -1, 2)
        turned.append(sorted_["turned"].reshape(nodes, -1, 2).swapaxes(0, 1))
    sums = words[-carried:].reshape(carried, -1, 2)
    return {"sums": sums, "turned": np.concatenate(turned)}


# The winning set.


@lru_cache(maxsize=256)
def set_schedule(columns: SetColumns, index_bits: int) -> Schedule:
    """Whether each category goes ``right`` in the set at ``index``; none if not ``won``.

    ``turned``: what comparators did to sort the categories of the node.
    """
    c = Circuit()
    [won], index = c.input("won", 1), c.input("index", index_bits)
    layers = _layers(columns)
    turned = iter(c.input("turned", sum(map(len, layers))))
    by_layer = [[(*pair, next(turned)) for pair in layer] for layer in layers]
    right = [FALSE] * columns.categories
    for number, (start, held) in enumerate(zip(columns.starts(), columns.slices(), strict=True)):
        for scanned, size in enumerate(columns.sizes(number)):
            chosen = _is_number(c, won, index, start + scanned)
            for place in range(held.start, held.start + size):
                right[place] = c.xor(right[place], chosen)  # no two of them are chosen
    for layer in reversed(by_layer):
        for low, high, exchanged in layer:
            moved = c.both(exchanged, c.xor(right[low], right[high]))
            right[low], right[high] = c.xor(right[low], moved), c.xor(right[high], moved)
    c.output("right", right)
    return Schedule.of(c)


def _is_number(c: Circuit, condition: int, word: Word, number: int) -> int:
    """Whether ``word`` is ``number`` under the ``condition``.

    Numbers with the same highest bits share gates.
    """
    found = condition
    for place in reversed(range(len(word))):
        found = c.both(found, word[place] if number >> place & 1 else c.inverse(word[place]))
    return found
